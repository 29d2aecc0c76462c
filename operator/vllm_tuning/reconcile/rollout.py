"""How far the roll-out of a changed target is, from the Deployment and its newest pods."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from vllm_tuning.reconcile.observed import Body

REVISION: Final = "deployment.kubernetes.io/revision"
_NON_DEFAULT_ARGS: Final = re.compile(r"non-default args: (\{.*\})")
_HOPELESS: Final = ("ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError")
CRASHES: Final = 2
"""Restarts of a new pod's engine after which the roll-out counts as failed."""


@dataclass(frozen=True, slots=True)
class RollingOut:
    """Not there yet."""

    message: str


@dataclass(frozen=True, slots=True)
class RolledOut:
    """Every wanted pod is new and ready; ``proven`` by their own word on the flags, if given."""

    message: str
    proven: bool


@dataclass(frozen=True, slots=True)
class RolloutFailed:
    """It will not get there."""

    message: str


Rollout: TypeAlias = RollingOut | RolledOut | RolloutFailed


def judge_rollout(
    deployment: Body,
    replica_sets: Sequence[Body],
    pods: Sequence[Body],
    logs: Mapping[str, str],
    *,
    container: str,
    expected: Mapping[str, str],
) -> Rollout:
    """Judge a roll-out.

    ``expected`` are the flags, canonical names, that the new pods must report.
    """
    spec, status = deployment["spec"], deployment.get("status") or {}
    wanted = spec.get("replicas", 1)
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 0):
        return RollingOut("the Deployment controller has not seen the change yet")
    new_pods = _pods_of(_newest(replica_sets), pods)
    for pod in new_pods:
        if trouble := _trouble(pod, container):
            return RolloutFailed(trouble)
        if contradiction := _contradiction(logs.get(pod["metadata"]["name"]), expected):
            return RolloutFailed(f"pod {pod['metadata']['name']} {contradiction}")
    if wanted == 0:
        return RollingOut("the Deployment is scaled to zero: no pod can show the new flags yet")
    updated, total = status.get("updatedReplicas", 0), status.get("replicas", 0)
    available = status.get("availableReplicas", 0)
    if updated < wanted or total > updated or available < wanted:
        stalled = _stalled(status)
        return (
            RolloutFailed(stalled)
            if stalled and not new_pods
            else RollingOut(
                f"{updated} of {wanted} pods changed, {available} available"
                f"{_waiting(new_pods, spec)}"
            )
        )
    proven = any(_reported(logs.get(pod["metadata"]["name"])) is not None for pod in new_pods)
    proof = "their own start log shows the new flags" if proven else "no start log to read"
    return RolledOut(f"{wanted} of {wanted} pods serve with the new limits; {proof}", proven)


def is_stable(deployment: Body) -> str | None:
    """Return why the target must not be changed now; ``None`` = it may."""
    spec, status = deployment["spec"], deployment.get("status") or {}
    wanted = spec.get("replicas", 1)
    if spec.get("paused"):
        return "the Deployment is paused: kubectl rollout resume"
    if wanted == 0:
        return "the Deployment is scaled to zero, so no pod could show that the new limits serve"
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 0):
        return "the Deployment controller has not seen its last change yet"
    if status.get("updatedReplicas", 0) < wanted or status.get("replicas", 0) > wanted:
        return "the Deployment is being rolled out"
    available = status.get("availableReplicas", 0)
    if available < wanted:  # also a roll-out by strategy Recreate, and a server that is down
        return f"{available} of {wanted} pods are available"
    return None


def _newest(replica_sets: Sequence[Body]) -> Body | None:
    return max(
        replica_sets,
        key=lambda rs: int((rs["metadata"].get("annotations") or {}).get(REVISION, 0)),
        default=None,
    )


def _pods_of(replica_set: Body | None, pods: Sequence[Body]) -> list[Body]:
    if replica_set is None:
        return []
    uid = replica_set["metadata"]["uid"]
    return [
        pod
        for pod in pods
        if any(o["uid"] == uid for o in pod["metadata"].get("ownerReferences") or ())
        and not pod["metadata"].get("deletionTimestamp")
    ]


def _trouble(pod: Body, container: str) -> str | None:
    name = pod["metadata"]["name"]
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _HOPELESS:
            words = f"{waiting['reason']}: {waiting.get('message', '')}"
            return f"pod {name}, container {status['name']}: {words}"
        if status["name"] == container and status.get("restartCount", 0) >= CRASHES:
            last = (status.get("lastState") or {}).get("terminated") or {}
            return (
                f"pod {name}: the engine ended {status['restartCount']} times, last with exit code "
                f"{last.get('exitCode')} {last.get('reason', '')}".rstrip()
            )
    return None


def _waiting(pods: Sequence[Body], spec: Mapping[str, Any]) -> str:
    for pod in pods:
        for condition in (pod.get("status") or {}).get("conditions") or ():
            if condition["type"] == "PodScheduled" and condition.get("status") == "False":
                words = condition.get("message", "")
                return f"; a new pod is not scheduled: {words}{_surge(spec)}"
    return ""


def _surge(spec: Mapping[str, Any]) -> str:
    """Say what the strategy asks of the cluster, and how to ask for less."""
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate":
        return ""
    surge = (strategy.get("rollingUpdate") or {}).get("maxSurge", "25%")
    if surge in (0, "0", "0%"):
        return ""
    return (
        f"; strategy RollingUpdate with maxSurge {surge} wants room for a new pod beside the old "
        "ones: free it, or set maxSurge: 0 with maxUnavailable: 1"
    )


def _stalled(status: Mapping[str, Any]) -> str | None:
    for condition in status.get("conditions") or ():
        if condition["type"] == "ReplicaFailure" and condition.get("status") == "True":
            return f"the new pods are refused: {condition.get('message', '')}"
    return None


def _reported(log: str | None) -> str | None:
    found = _NON_DEFAULT_ARGS.search(log or "")
    return found.group(1) if found else None


def _contradiction(log: str | None, expected: Mapping[str, str]) -> str | None:
    """Compare the engine's own word with what was written; silence contradicts nothing."""
    reported = _reported(log)
    if reported is None:
        return None
    for name, value in expected.items():
        found = re.search(rf"'{name}': '?([^,'}}]+)'?", reported)
        if found and found.group(1).strip().lower() != value.lower():
            return f"reports {name}={found.group(1)} where {value} was written"
    return None
