"""Many users of one operator: the cases of a file live side by side instead of one by one.

An operator, its chart and its pods' kubelet take seconds to start, and most of a case is waiting.
So a file has one operator that serves all namespaces, every test has a namespace of its own, and
what ``given`` says is done for all of them before the first test looks: a test then mostly reads.
"""

from __future__ import annotations

import inspect
import threading
import traceback
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from aiohttp import web

from tests.cluster_fixtures.cluster import Cluster
from tests.operator_process import Operator
from tests.played_node import NO_IMAGE, SCHEDULER, Kubelet, a_played_target
from tests.user import User

ENGINE_IMAGE = "vllm/vllm-openai:v0.20.0"
"""Never pulled: its pods are played."""
ARGS = ["m", "--max-num-seqs=4", "--max-num-batched-tokens=2048"]
NEW_ARGS = ["m", "--max-num-seqs=64", "--max-num-batched-tokens=4096"]
"""What the played bench recommends."""
STEP_SECONDS = 0.2

T = TypeVar("T", bound=Callable[..., Any])


class Tenant(User):
    """One of the users, in the namespace of one test."""

    def __init__(self, fleet: Fleet, namespace: str) -> None:
        super().__init__(fleet.operator.cluster, namespace)
        self.fleet = fleet
        self.kubelet = Kubelet(self)
        self.before: Callable[[str, str, bytes], web.Response | None] = lambda *_: None
        """Called before each of the operator's requests in this namespace."""

    @property
    def writes(self) -> list[tuple[str, str]]:
        """The operator's writes in this namespace that were accepted: method and path."""
        place = f"/namespaces/{self.namespace}/"
        return [w for w in self.fleet.operator.proxy.accepted if place in w[1]]

    def patches(self, name: str) -> int:
        """Count the operator's patches of a Deployment."""
        return len([w for w in self.writes if w[1].endswith(f"/deployments/{name}")])

    def _meanwhile(self) -> None:
        self.fleet.check()

    def _tell(self) -> str:
        return f"{super()._tell()}\n{self.fleet.operator.log[-4000:]}"


class Fleet:
    """An operator for all namespaces, and the kubelet of every tenant."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self.operator = Operator(cluster, namespace, folder, NO_IMAGE, everywhere=True)
        self._tenants: dict[str, Tenant] = {}
        self._stopped = threading.Event()
        self._trouble = ""
        self._thread = threading.Thread(target=self._play, daemon=True)

    def __enter__(self) -> Self:
        self.operator.__enter__()
        self.operator.proxy.logs = self._log
        self.operator.proxy.before = self._before
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self.operator.__exit__()
        for namespace in self._tenants:
            rest, path = self.operator.rest, f"api/v1/namespaces/{namespace}"
            rest.request("DELETE", path, {"propagationPolicy": "Background"})

    def admit(self, labels: dict[str, str]) -> Tenant:
        """Make a namespace for a test."""
        name = f"edge-{uuid.uuid4().hex[:8]}"
        body = {"metadata": {"name": name, "labels": labels}}
        self.operator.must("POST", "api/v1/namespaces", body)
        tenant = self._tenants[name] = Tenant(self, name)
        return tenant

    def wait_for_accounts(self, tenants: Iterable[Tenant]) -> None:
        """Wait until pods can be made: they need an account that a controller makes."""
        for tenant in tenants:
            path = f"api/v1/namespaces/{tenant.namespace}/serviceaccounts/default"
            tenant.wait(partial(self._exists, path), path)

    def _exists(self, path: str) -> bool:
        return bool(self.operator.rest.request("GET", path)[0] == 200)

    def check(self) -> None:
        """Fail if the operator or the kubelet has died."""
        assert self.operator.running, f"the operator ended\n{self.operator.log[-4000:]}"
        assert not self._trouble, self._trouble

    def _play(self) -> None:
        rest, where = self.operator.rest, {"fieldSelector": f"spec.schedulerName={SCHEDULER}"}
        try:
            while not self._stopped.wait(STEP_SECONDS):
                for pod in rest.request("GET", "api/v1/pods", **where)[1]["items"]:
                    tenant = self._tenants.get(pod["metadata"]["namespace"])
                    if tenant is not None:
                        tenant.kubelet.play(pod)
        except Exception:  # noqa: BLE001 - whatever it is, the test that waits shall say it
            self._trouble = traceback.format_exc()

    def _log(self, pod: str, container: str) -> bytes | None:
        for tenant in list(self._tenants.values()):
            text = tenant.kubelet.log(pod, container)
            if text is not None:
                return text
        return None

    def _before(self, method: str, path: str, body: bytes) -> web.Response | None:
        _, _, rest = path.partition("/namespaces/")
        tenant = self._tenants.get(rest.partition("/")[0])
        return tenant.before(method, path, body) if tenant else None


def given(setup: Callable[..., None], **labels: str) -> Callable[[T], T]:
    """Say how a test's namespace begins; ``labels`` are the namespace's own.

    ``setup`` gets the tenant, and by name those of a parametrized test's parameters that it takes.
    """

    def remember(test: T) -> T:
        test.__dict__["given"] = (setup, {k.replace("__", "/"): v for k, v in labels.items()})
        return test

    return remember


def begin(fleet: Fleet, tests: Sequence[Any]) -> dict[str, Tenant]:
    """Make the namespaces of these tests (pytest's items) and what they begin with."""
    found = [(item, *getattr(item.function, "given", (lambda _: None, {}))) for item in tests]
    tenants = {item.nodeid: fleet.admit(labels) for item, _, labels in found}
    fleet.wait_for_accounts(tenants.values())
    for item, setup, _ in found:
        setup(tenants[item.nodeid], **_parameters(item, setup))
    return tenants


def _parameters(item: Any, setup: Callable[..., None]) -> dict[str, Any]:
    given_to_test = item.callspec.params if hasattr(item, "callspec") else {}
    taken = inspect.signature(setup).parameters
    return {name: value for name, value in given_to_test.items() if name in taken}


def a_server(name: str = "llama", *, replicas: int = 1, **container: Any) -> dict[str, Any]:
    """A played target that runs a release of vLLM that is known."""
    body = a_played_target(name, ENGINE_IMAGE, **{"args": ARGS, **container})
    body["spec"]["replicas"] = replicas
    return body
