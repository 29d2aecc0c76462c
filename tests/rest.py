"""The API server over HTTP, as an administrator: what a test asks a hundred times in a minute.

kubectl is a user's view and is used for what is kubectl's own; a process for every question would
cost more than what is tested.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
_PLACES = {
    "configmaps": "api/v1",
    "deployments": "apis/apps/v1",
    "events": "api/v1",
    "jobs": "apis/batch/v1",
    "limitranges": "api/v1",
    "leases": "apis/coordination.k8s.io/v1",
    "pods": "api/v1",
    "persistentvolumeclaims": "api/v1",
    "resourcequotas": "api/v1",
    "services": "api/v1",
    "vllmtrials": "apis/vllmtuning.io/v1alpha1",
    "vllmtunings": "apis/vllmtuning.io/v1alpha1",
}


class Rest:
    """One connection per request, so that any thread may ask."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._host = urlsplit(cluster["server"]).netloc
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as pair:
            for part in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[part]))
            pair.flush()
            self._tls.load_cert_chain(pair.name)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        **query: str,
    ) -> tuple[int, Any]:
        """Send a request; returns the code and the object of the answer."""
        connection = http.client.HTTPSConnection(self._host, context=self._tls, timeout=60)
        try:
            connection.request(
                method,
                f"/{path}?{urlencode(query)}",
                body=None if body is None else json.dumps(body),
                headers={"Content-Type": content_type, "Accept": "application/json"},
            )
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read() or b"null")
        finally:
            connection.close()


def path_of(plural: str, namespace: str, name: str = "") -> str:
    """Path of an object or a collection."""
    path = f"{_PLACES[plural]}/namespaces/{namespace}/{plural}"
    return f"{path}/{name}" if name else path


def plural_of(kind: str) -> str:
    """``Deployment`` and ``deployments`` to ``deployments``."""
    lower = kind.lower()
    return lower if lower.endswith("s") else f"{lower}s"
