"""What kopf is used for: watching, with everything that makes watching hard.

Its handlers only enqueue keys. Only ``on.event`` and ``index``: they write nothing. Timers,
daemons, ``on.update`` and ``on.resume`` would put annotations or finalizers on what they watch, and
a dead operator would then block deletes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import kopf

from vllm_tuning.cluster.gather import Key
from vllm_tuning.reconcile.names import GROUP, LABEL_TUNING, VERSION

WATCH_TIMEOUT_SECONDS: Final = 600
CONNECT_TIMEOUT_SECONDS: Final = 15
REQUEST_TIMEOUT_SECONDS: Final = 60

Enqueue = Callable[[Key], None]


def build_registry(enqueue: Enqueue, *, namespaced: bool) -> kopf.OperatorRegistry:
    """Build the registry of all handlers.

    ``namespaced``: there is no right to look at the cluster's namespaces and CRDs, so kopf must not
    try; it would give up after a minute of refusals, and end.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: object) -> None:
        settings.peering.standalone = True  # our own Lease decides who works
        settings.posting.enabled = False
        settings.scanning.disabled = namespaced
        settings.watching.server_timeout = WATCH_TIMEOUT_SECONDS
        settings.watching.connect_timeout = CONNECT_TIMEOUT_SECONDS
        settings.networking.request_timeout = REQUEST_TIMEOUT_SECONDS

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - kopf's own arguments
        """As ``cluster.client.connect`` does: the pod's account, else the file in KUBECONFIG."""
        in_pod = kopf.login_with_service_account(**kwargs)
        if in_pod is not None:
            return replace(in_pod, server=_in_cluster_server())
        return kopf.login_with_kubeconfig(**kwargs)

    @kopf.index(GROUP, VERSION, "vllmtunings", registry=registry, id="tunings_by_target")
    def tunings_by_target(
        namespace: str | None, name: str | None, spec: Mapping[str, Any], **_: object
    ) -> dict[tuple[str | None, str], str | None]:
        return {(namespace, spec["targetRef"]["name"]): name}

    @kopf.on.event(GROUP, VERSION, "vllmtunings", registry=registry, id="tuning")
    def on_tuning(
        namespace: str | None,
        name: str | None,
        spec: Mapping[str, Any],
        **kwargs: Any,  # noqa: ANN401 - kopf's own arguments and our index
    ) -> None:
        _add(enqueue, namespace, name)
        target = str((spec.get("targetRef") or {}).get("name"))
        for rival in kwargs["tunings_by_target"].get(
            (namespace, target), ()
        ):  # who wins may have changed
            _add(enqueue, namespace, rival)

    @kopf.on.event("apps", "v1", "deployments", registry=registry, id="deployment")
    def on_deployment(
        namespace: str | None,
        name: str | None,
        **kwargs: Any,  # noqa: ANN401 - kopf's own arguments and our index
    ) -> None:
        for tuning in kwargs["tunings_by_target"].get((namespace, str(name)), ()):
            _add(enqueue, namespace, tuning)

    for group, plural in (("batch", "jobs"), ("", "pods")):
        _wake_owner(enqueue, registry, group, plural)
    return registry


def _in_cluster_server() -> str:
    """Return the API server as the kubelet names it, by address.

    kopf goes by the name ``kubernetes.default.svc``, which needs a cluster DNS that works.
    """
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _wake_owner(enqueue: Enqueue, registry: kopf.OperatorRegistry, group: str, plural: str) -> None:
    """Watch our own Jobs and pods: the label tells whose they are."""

    @kopf.on.event(
        group, "v1", plural, registry=registry, id=plural, labels={LABEL_TUNING: kopf.PRESENT}
    )
    def on_ours(
        namespace: str | None,
        labels: Mapping[str, str],
        meta: Mapping[str, Any],
        **_: object,
    ) -> None:
        owners = [o["name"] for o in meta.get("ownerReferences") or () if o["kind"] == "VLLMTuning"]
        _add(enqueue, namespace, owners[0] if owners else labels[LABEL_TUNING])


def _add(enqueue: Enqueue, namespace: str | None, name: str | None) -> None:
    if namespace is not None and name is not None:
        enqueue(Key(namespace, name))
