"""What the API tests do with a control plane.

Objects go over one HTTP connection: a test asks dozens of questions, and a kubectl for each would
take a minute of processor time. kubectl is used for what is kubectl's: columns, explain, wait.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
CRDS = ROOT / "crds"
CHART = ROOT / "charts" / "vllm-tuning-operator"

_OURS = "apis/vllmtuning.io/v1alpha1"
_RBAC = "apis/rbac.authorization.k8s.io/v1"
_PLACES = {
    "VLLMTuning": (_OURS, "vllmtunings"),
    "VLLMTrial": (_OURS, "vllmtrials"),
    "VLLMSLAPolicy": (_OURS, "vllmslapolicies"),
    "Deployment": ("apis/apps/v1", "deployments"),
    "Pod": ("api/v1", "pods"),
    "Role": (_RBAC, "roles"),
    "RoleBinding": (_RBAC, "rolebindings"),
    "SubjectAccessReview": ("apis/authorization.k8s.io/v1", "subjectaccessreviews"),
}
_SHORT = {"vt": "VLLMTuning", "vtrial": "VLLMTrial", "vsp": "VLLMSLAPolicy"}
_CLUSTER_SCOPED = {"VLLMSLAPolicy", "SubjectAccessReview"}
MERGE_PATCH = "application/merge-patch+json"


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Ask again and again until the answer is yes; the test fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


class ControlPlane(Protocol):
    """The part of the ``control_plane`` fixture that is used here."""

    @property
    def kubeconfig(self) -> Path: ...

    def kubectl(self, *args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]: ...

    def helm(self, *args: str) -> subprocess.CompletedProcess[str]: ...


@dataclass(frozen=True)
class Answer:
    """What the API server said."""

    code: int
    body: dict[str, Any]

    @property
    def ok(self) -> bool:
        """Whether it did what was asked."""
        return self.code < 300

    @property
    def words(self) -> str:
        """Its message, as kubectl shows it to a user."""
        return "" if self.ok else str(self.body.get("message"))


class APIServer:
    """A control plane, and the chart as one release of it."""

    def __init__(self, control_plane: ControlPlane, release: str = "api-tests") -> None:
        self.plane = control_plane
        self.kubectl = control_plane.kubectl
        self.helm = control_plane.helm
        self.release = release
        self.namespace = release
        """Of the release."""
        self._connection = _connect(control_plane.kubeconfig)

    @property
    def service_account(self) -> str:
        """User name of the operator that the chart installs."""
        return f"system:serviceaccount:{self.namespace}:{self.release}-vllm-tuning-operator"

    def install_crds(self) -> None:
        """Apply ``crds/`` and wait until the API server serves them."""
        self.must("apply", "--server-side", "--force-conflicts", "-f", str(CRDS))
        self.must("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRDS))
        # Established, but lists are answered with 429 for a moment more; kubectl waits and retries.
        self.must("get", ",".join(_SHORT), "--all-namespaces")

    def install_chart(self, *options: str) -> None:
        """Install or upgrade the chart without its CRDs."""
        done = self.helm(
            "upgrade",
            "--install",
            self.release,
            str(CHART),
            f"--namespace={self.namespace}",
            "--create-namespace",
            "--set=crds.install=false",
            *options,
        )
        assert done.returncode == 0, done.stderr

    def uninstall_chart(self) -> None:
        """Remove the release; its namespace goes in the background."""
        done = self.helm("uninstall", self.release, f"--namespace={self.namespace}")
        assert done.returncode == 0, done.stderr
        self.must("delete", "namespace", self.namespace, "--wait=false")

    def must(self, *args: str, stdin: str | None = None) -> str:
        """Run kubectl and return its output; the test fails if kubectl does."""
        done = self.kubectl(*args, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        user: str | None = None,
        content_type: str = "application/json",
        **query: str,
    ) -> Answer:
        """Send one request, as an administrator or as ``user``."""
        headers = {"Content-Type": content_type}
        if user is not None:
            headers["Impersonate-User"] = user
        url = f"/{path}?{urlencode(query)}" if query else f"/{path}"
        text = None if body is None else json.dumps(body)
        self._connection.request(method, url, text, headers)
        response = self._connection.getresponse()
        return Answer(response.status, json.loads(response.read()))

    def try_create(
        self, body: dict[str, Any], *, namespace: str = "default", user: str | None = None
    ) -> Answer:
        """Let the API server check an object as kubectl has it checked, without storing it."""
        path = _path(body["kind"], namespace)
        return self.request("POST", path, body, user=user, dryRun="All", fieldValidation="Strict")

    def create(self, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        """Store an object."""
        answer = self.request("POST", _path(body["kind"], namespace), body)
        assert answer.ok, answer.words
        return answer.body

    def patch(
        self,
        namespace: str,
        name: str,
        body: dict[str, Any],
        *,
        subresource: str = "",
        user: str | None = None,
    ) -> Answer:
        """Merge-patch an object, e.g. ``vt/chat``."""
        path = _named(namespace, name) + (f"/{subresource}" if subresource else "")
        return self.request("PATCH", path, body, user=user, content_type=MERGE_PATCH)

    def get(self, namespace: str, name: str) -> dict[str, Any]:
        """Return an object."""
        answer = self.request("GET", _named(namespace, name))
        assert answer.ok, answer.words
        return answer.body

    def delete(self, namespace: str, name: str, *, user: str | None = None) -> Answer:
        """Delete an object."""
        return self.request("DELETE", _named(namespace, name), user=user)


def _path(kind: str, namespace: str) -> str:
    api, plural = _PLACES[kind]
    where = "" if kind in _CLUSTER_SCOPED else f"namespaces/{namespace}/"
    return f"{api}/{where}{plural}"


def _named(namespace: str, name: str) -> str:
    kind, _, rest = name.partition("/")
    return f"{_path(_SHORT[kind], namespace)}/{rest}"


def _connect(kubeconfig: Path) -> http.client.HTTPSConnection:
    """Open a connection by the first cluster and user of a kubeconfig."""
    config = YAML(typ="safe").load(Path(kubeconfig).read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    with tempfile.TemporaryDirectory() as folder:

        def file(data: dict[str, Any], key: str) -> str:
            if key in data:
                return str(Path(kubeconfig).parent / data[key])
            path = Path(folder) / key
            path.write_bytes(base64.b64decode(data[f"{key}-data"]))
            return str(path)

        context = ssl.create_default_context(cafile=file(cluster, "certificate-authority"))
        context.load_cert_chain(file(user, "client-certificate"), file(user, "client-key"))
    server = urlsplit(cluster["server"])
    return http.client.HTTPSConnection(
        server.hostname or "", server.port, context=context, timeout=60
    )
