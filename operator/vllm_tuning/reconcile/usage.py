"""What a run has cost, from its Jobs, its pods and what its bench has said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from vllm_tuning.reconcile.names import BENCH
from vllm_tuning.reconcile.observed import BenchLog, Body
from vllm_tuning.tuning.run import Event


def held_seconds(jobs: Iterable[Body], pods: Iterable[Body], logs: Mapping[str, BenchLog]) -> float:
    """Seconds that the benchmark pods of these Jobs held their node.

    A running pod counts up to its last event, not to now: a status that changes with every look
    would never come to rest. A pod that is gone counts as long as its Job ran, which includes its
    wait: rather too much than too little.
    """
    pods = tuple(pods)
    total = 0.0
    for job in jobs:
        uid = job["metadata"]["uid"]
        own = [
            pod
            for pod in pods
            if any(o["uid"] == uid for o in pod["metadata"].get("ownerReferences") or ())
        ]
        if own:
            total += sum(_of_pod(pod, logs.get(pod["metadata"]["uid"])) for pod in own)
        else:
            total += _of_job(job)
    return total


def engine_seconds(events: Iterable[Event]) -> float:
    """Return the bench's own count of seconds that an engine was starting or serving."""
    return max((getattr(event, "engine_seconds", 0.0) for event in events), default=0.0)


def _of_pod(pod: Body, log: BenchLog | None) -> float:
    """From the kubelet's own word on its beginning: bench and kubelet share a clock."""
    acknowledged = _moment((pod.get("status") or {}).get("startTime"))
    began = acknowledged or _condition_time(pod, "PodScheduled", "True")
    if began is None:
        return 0.0
    ended = _bench_end(pod)
    if ended is None:
        last = log.events[-1].time if log and log.events else began.timestamp()
        return max(0.0, last - began.timestamp())
    return max(0.0, (ended - began).total_seconds())


def _of_job(job: Body) -> float:
    began = _moment((job.get("status") or {}).get("startTime"))
    ended = _condition_time(job, "Failed", "True") or _condition_time(job, "Complete", "True")
    return (ended - began).total_seconds() if began and ended else 0.0


def _bench_end(pod: Body) -> datetime | None:
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        ended: Mapping[str, Any] | None = (status.get("state") or {}).get("terminated")
        if status["name"] == BENCH and ended:
            return _moment(ended.get("finishedAt"))
    return None


def _condition_time(body: Body, type_: str, status: str) -> datetime | None:
    for condition in (body.get("status") or {}).get("conditions") or ():
        if condition["type"] == type_ and condition.get("status") == status:
            return _moment(condition.get("lastTransitionTime"))
    return None


def _moment(text: str | None) -> datetime | None:
    return None if not text else datetime.fromisoformat(text)
