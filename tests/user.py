"""A user of one namespace: applies objects, looks at them, waits for what they become."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import yaml

from tests.cluster_fixtures.cluster import Cluster
from tests.rest import APPLY, JSON_PATCH, MERGE_PATCH, Rest, path_of, plural_of

ARGS_PATH = "/spec/template/spec/containers/0/args"
PATIENCE = 150.0
"""Seconds that a test waits for what must come: a waiting test costs nothing, and two cores with a
cold build beside it are slow.
"""


class User:
    """Acts in one namespace as an administrator."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.rest = Rest(cluster.kubeconfig)

    def apply(self, *bodies: dict[str, Any]) -> None:
        """Create or change objects in the namespace."""
        for body in bodies:
            path = path_of(plural_of(body["kind"]), self.namespace, body["metadata"]["name"])
            self.must("PATCH", path, body, APPLY, fieldManager="user", force="true")

    def must(self, method: str, path: str, *args: Any, **query: str) -> Any:
        """Send a request; the test fails if the API server refuses it."""
        code, answer = self.rest.request(method, path, *args, **query)
        assert code < 300, answer
        return answer

    def kubectl(self, *args: str) -> str:
        """Run kubectl in the namespace."""
        done = self.cluster.kubectl("-n", self.namespace, *args)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def annotate(self, kind: str, name: str, key: str, value: str) -> None:
        """Annotate an object."""
        self.merge(kind, name, {"metadata": {"annotations": {key: value}}})

    def merge(self, kind: str, name: str, body: dict[str, Any]) -> None:
        """Merge-patch an object."""
        self.must("PATCH", path_of(kind, self.namespace, name), body, MERGE_PATCH)

    def delete(self, kind: str, name: str) -> None:
        """Delete an object; what it owns goes in the background."""
        path = path_of(kind, self.namespace, name)
        self.must("DELETE", path, {"propagationPolicy": "Background"})

    def write_args(self, name: str, args: list[str]) -> None:
        """Edit the launch arguments of a Deployment by hand."""
        patch = [{"op": "replace", "path": ARGS_PATH, "value": args}]
        self.must("PATCH", path_of("deployments", self.namespace, name), patch, JSON_PATCH)

    def scale(self, name: str, replicas: int) -> None:
        """Scale a Deployment as an autoscaler does."""
        path = f"{path_of('deployments', self.namespace, name)}/scale"
        self.must("PATCH", path, {"spec": {"replicas": replicas}}, MERGE_PATCH)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object, e.g. ``get("jobs", "x")``."""
        body: dict[str, Any] = self.must("GET", path_of(kind, self.namespace, name))
        return body

    def items(self, kind: str, **query: str) -> list[dict[str, Any]]:
        """Return objects; ``labelSelector`` and ``fieldSelector`` as the API has them."""
        found: list[dict[str, Any]] = self.must("GET", path_of(kind, self.namespace), **query)[
            "items"
        ]
        return found

    def args_of(self, name: str) -> list[str]:
        """Return the launch arguments of a Deployment."""
        body = self.get("deployments", name)
        args: list[str] = body["spec"]["template"]["spec"]["containers"][0]["args"]
        return args

    def events(self, reason: str, about: str | None = None) -> list[str]:
        """Return the messages of events of a reason, about a kind of object if that is named."""
        found = self.items("events", fieldSelector=f"reason={reason}")
        return [e["message"] for e in found if about in (None, e["involvedObject"]["kind"])]

    def conditions(self, name: str) -> dict[str, tuple[str, str, str]]:
        """Type to (status, reason, message) of a tuning."""
        found = self.get("vllmtunings", name).get("status", {}).get("conditions", [])
        return {c["type"]: (c["status"], c["reason"], c["message"]) for c in found}

    def wait_for(
        self,
        name: str,
        type_: str,
        status: str,
        reason: str | None = None,
        seconds: float = PATIENCE,
    ) -> str:
        """Wait until a tuning has a condition; returns its message."""

        def met() -> str | None:
            found = self.conditions(name).get(type_)
            if found and found[0] == status and reason in (None, found[1]):
                return found[2] or "-"
            return None

        found: str = self.wait(met, f"{name}: {type_}={status}/{reason}", seconds)
        return found

    def wait(self, condition: Callable[[], Any], what: str, seconds: float = PATIENCE) -> Any:
        """Wait for a truthy answer."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            self._meanwhile()
            assert time.monotonic() < deadline, f"waited in vain for {what}\n{self._tell()}"
            time.sleep(0.2)
        return found

    def _meanwhile(self) -> None:
        """Do what must go on while a test waits."""

    def _tell(self) -> str:
        tunings = self.kubectl("get", "vt,vtrial,jobs,pods")
        states = {
            body["metadata"]["name"]: body.get("status", {}).get("conditions")
            for body in self.items("vllmtunings")
        }
        return f"{tunings}\n{yaml.safe_dump(states)}"
