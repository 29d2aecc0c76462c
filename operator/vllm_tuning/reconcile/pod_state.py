"""What the status of a benchmark pod or of its Job says, read without judging the run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from vllm_tuning.api.reasons import Reason
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.reconcile.names import ENGINE
from vllm_tuning.reconcile.observed import Body

_PULL_FAILURES: Final = (
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "ImageInspectError",
)
"""``ErrImagePull`` alone may be a hiccup; the back-off is the second failure."""
_CONFIG_FAILURES: Final = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)


def cannot_start(pod: Body) -> Refusal | None:
    """Say why no container of the pod will ever run as it is; ``None`` = it may."""
    for status in _all_statuses(pod):
        waiting = (status.get("state") or {}).get("waiting") or {}
        reason, words = waiting.get("reason"), waiting.get("message", "")
        if reason in _PULL_FAILURES:
            return Refusal(
                Reason.IMAGE_PULL_FAILED,
                f"image {status.get('image') or '?'} of container {status['name']}: {reason}: "
                f"{words}; correct the image or its pull secret, then annotate vllmtuning.io/rerun",
            )
        if reason in _CONFIG_FAILURES:
            return Refusal(
                Reason.BENCHMARK_FAILED, f"container {status['name']}: {reason}: {words}"
            )
    engine = status_of(pod, ENGINE)
    if engine.get("restartCount", 0) > 0:
        last = (engine.get("lastState") or {}).get("terminated") or {}
        return Refusal(
            Reason.BENCHMARK_FAILED,
            f"the launcher in the engine container ended with exit code {last.get('exitCode')} "
            f"{last.get('reason', '')} {last.get('message', '')}".strip()
            + ": does the image have Python 3.9 or newer? Name it in benchmark.python",
        )
    return None


def why_failed(pod: Body) -> str:
    """Say which container failed, with the end of its words."""
    for status in _all_statuses(pod):
        ended = (status.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            tail = (ended.get("message") or ended.get("reason") or "").strip()
            return (
                f"container {status['name']} ended with exit code {ended['exitCode']}"
                f"{': ' + tail[-1500:] if tail else ''}; see the log of {pod['metadata']['name']}"
            )
    message = (pod.get("status") or {}).get("message")
    return message or "the benchmark pod failed without a word"


def starting_words(pod: Body) -> str:
    """Say what a container is waiting for."""
    for status in _all_statuses(pod):
        waiting = (status.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") not in (None, "PodInitializing"):
            words = f"{waiting['reason']} {waiting.get('message', '')}".strip()
            return f"container {status['name']}: {words}"
    return "the benchmark pod's containers are starting"


def bound_to(pod: Body) -> str:
    """Explain a node that the pod has to run on: the scheduler only counts nodes."""
    spec = pod.get("spec") or {}
    node = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            return (
                f"; the target's volume is ReadWriteOnce, so only its own node "
                f"{field['values'][0]} will do"
            )
    return ""


def is_disrupted(pod: Body) -> bool:
    """Whether somebody takes the pod away: an eviction, a preemption, a drain, a deletion."""
    return holds(pod, "DisruptionTarget") or bool(pod["metadata"].get("deletionTimestamp"))


def disruption(pod: Body) -> str:
    """Return the words of whoever takes the pod away."""
    found = condition_of(pod, "DisruptionTarget") or {}
    return found.get("message") or "the benchmark pod was deleted"


def _all_statuses(pod: Body) -> list[Mapping[str, Any]]:
    status = pod.get("status") or {}
    return [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]


def status_of(pod: Body | None, container: str) -> Mapping[str, Any]:
    """Return the status of a container by its name; empty = the kubelet has told nothing yet."""
    if pod is None:
        return {}
    return next((s for s in _all_statuses(pod) if s["name"] == container), {})


def is_running(pod: Body, container: str) -> bool:
    """Whether a container runs."""
    return "running" in (status_of(pod, container).get("state") or {})


def is_terminated(pod: Body, container: str) -> bool:
    """Whether a container has ended."""
    return "terminated" in (status_of(pod, container).get("state") or {})


def condition_of(body: Body, type_: str) -> Mapping[str, Any] | None:
    """Return a condition that holds, or any for pods (whose False has words)."""
    found: Mapping[str, Any] | None = next(
        (c for c in (body.get("status") or {}).get("conditions") or () if c["type"] == type_), None
    )
    if found is not None and type_ in ("Failed", "Complete") and found.get("status") != "True":
        return None
    return found


def holds(body: Body, type_: str) -> bool:
    """Whether a condition is ``True``."""
    return (condition_of(body, type_) or {}).get("status") == "True"


def moment(text: str | None) -> datetime | None:
    """Read a timestamp of the API server."""
    return None if not text else datetime.fromisoformat(text)
