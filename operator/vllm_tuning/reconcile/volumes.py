"""Volumes that the benchmark pod shares with the target: where that is possible, and where not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from vllm_tuning.api.reasons import Reason
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.reconcile.observed import Body

ONE_POD: Final = "ReadWriteOncePod"
ONE_NODE: Final = "ReadWriteOnce"


def claim_names(pod_spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the PersistentVolumeClaims that a pod names, each once."""
    named = (v.get("persistentVolumeClaim") for v in pod_spec.get("volumes") or ())
    return tuple(dict.fromkeys(claim["claimName"] for claim in named if claim))


def refuse_volumes(
    pod_spec: Mapping[str, Any], claims: Mapping[str, Body], pods: Iterable[Body]
) -> Refusal | None:
    """Refuse to mount what would keep production from mounting it."""
    for name in _with_mode(pod_spec, claims, ONE_POD):
        return Refusal(
            Reason.UNSUPPORTED_POD,
            f"PersistentVolumeClaim {name} is {ONE_POD}: the benchmark pod could mount it only "
            "while the target is down; put the model into a claim that is ReadOnlyMany or "
            "ReadWriteMany",
        )
    if shared_node(pod_spec, claims, pods) is None:
        for name in _with_mode(pod_spec, claims, ONE_NODE):
            return Refusal(
                Reason.TARGET_NOT_STABLE,
                f"waiting: PersistentVolumeClaim {name} is {ONE_NODE} and no pod of the target has "
                "a node; a benchmark that mounts it first could keep the target from starting",
            )
    return None


def shared_node(
    pod_spec: Mapping[str, Any], claims: Mapping[str, Body], pods: Iterable[Body]
) -> str | None:
    """Return the node that the benchmark must share with the target.

    One node at a time may mount a ReadWriteOnce claim, and that node is production's.
    ``None`` = no such claim, or no pod of the target has a node.
    """
    if not any(True for _ in _with_mode(pod_spec, claims, ONE_NODE)):
        return None
    running = (pod for pod in pods if not pod["metadata"].get("deletionTimestamp"))
    return next((node for pod in running if (node := pod["spec"].get("nodeName"))), None)


def _with_mode(pod_spec: Mapping[str, Any], claims: Mapping[str, Body], mode: str) -> Iterable[str]:
    """Yield the claims that can be mounted in no other way."""
    for name in claim_names(pod_spec):
        body = claims.get(name)
        if body is not None and tuple(body["spec"].get("accessModes") or ()) == (mode,):
            yield name
