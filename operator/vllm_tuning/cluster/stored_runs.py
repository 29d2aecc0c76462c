"""Reading a tuning's run from the API server, as a user who may look at the tuning's namespace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from vllm_tuning.api.status import VLLMTuningStatus
from vllm_tuning.cluster.client import CONFIG_MAPS, PODS, TRIALS, TUNINGS, Cluster
from vllm_tuning.cluster.errors import NotFound, Refused
from vllm_tuning.cluster.logs import parse_event
from vllm_tuning.reconcile import names
from vllm_tuning.reconcile.records import stored_records
from vllm_tuning.reconcile.stored_run import run_events
from vllm_tuning.tuning.model import Problem
from vllm_tuning.tuning.run import RUN_SPEC, Event

LOG_BYTES = 8 << 20
"""More than a bench ever prints."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The current or last run of a tuning."""

    target: str
    """Name of the Deployment."""
    run_id: str
    events: tuple[Event, ...]
    gpu_seconds: int | None
    """GPUs times seconds that its pods have held them."""
    problem: Problem | None
    """What it was asked; ``None`` once its Job is gone, or for a user who may not see it."""


async def read_run(cluster: Cluster, namespace: str, name: str) -> StoredRun:
    """Read the current or last run of a tuning.

    Trials must be readable. The bench's log and the run's ConfigMap add detail; a user who may not
    read them, or comes after they are gone, gets the rest.
    Raises ``NotFound`` if there is no run to tell of; its message says why.
    """
    tuning = await cluster.get(TUNINGS, namespace, name)
    if tuning is None:
        raise NotFound(f"there is no VLLMTuning {name} in namespace {namespace}")
    try:
        status = VLLMTuningStatus.model_validate(tuning.get("status") or {})
    except ValidationError as error:
        raise NotFound(
            f"the status of {name} was stored by a version that this one does not read: "
            f"{error.errors()[0]['msg']}"
        ) from error
    run = status.run
    if run is None:
        told = {condition.type: condition.message for condition in status.conditions}
        why = told.get("Progressing") or told.get("Accepted") or "the operator has not seen it yet"
        raise NotFound(f"{name} has not run: {why}")
    trials = await cluster.list(
        TRIALS, namespace, labels=f"{names.LABEL_TUNING}={names.label_value(name)}"
    )
    job = run.job_name
    # An answer that was judged from another run's measurements has none of its own.
    measured = run.id if job else run.judged_from or run.id
    log = await _log(cluster, namespace, job) if job else ()
    return StoredRun(
        target=tuning["spec"]["targetRef"]["name"],
        run_id=run.id,
        events=run_events(status, stored_records(trials, measured), log),
        gpu_seconds=status.usage.gpu_seconds if status.usage else None,
        problem=await _problem(cluster, namespace, job) if job else None,
    )


async def _log(cluster: Cluster, namespace: str, job: str) -> Iterable[Event]:
    try:
        pods = await cluster.list(PODS, namespace, labels=f"batch.kubernetes.io/job-name={job}")
        texts = [
            await cluster.read_log(
                namespace, pod["metadata"]["name"], names.BENCH, limit_bytes=LOG_BYTES
            )
            for pod in pods
        ]
    except Refused:
        return ()
    lines = (line for text in texts for line in (text or "").splitlines())
    return tuple(event for line in lines if (event := parse_event(line)) is not None)


async def _problem(cluster: Cluster, namespace: str, job: str) -> Problem | None:
    try:
        found = await cluster.get(CONFIG_MAPS, namespace, job)
        return RUN_SPEC.validate_json(found["data"][names.SPEC_FILE]).problem if found else None
    except (Refused, KeyError, ValidationError):
        return None
