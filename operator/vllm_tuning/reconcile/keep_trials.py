"""Which trials to write, close or forget: what should be there, compared with what is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from vllm_tuning.api.reasons import EventReason
from vllm_tuning.api.trial import TrialOutcome, TrialPurpose, VLLMTrial
from vllm_tuning.reconcile.draft import Draft
from vllm_tuning.reconcile.effects import DeleteTrial, RecordTrial
from vllm_tuning.reconcile.observed import Body
from vllm_tuning.reconcile.records import Record
from vllm_tuning.reconcile.trials import Context, build_trials
from vllm_tuning.tuning.run import Event

_PLACE: Final = ("jobName", "nodeName", "gpuProduct")


def write_trials(
    draft: Draft, records: Sequence[Record], events: Iterable[Event], context: Context
) -> int:
    """Write every trial of a run that is not as it should be. Returns how many there are."""
    stored = {body["metadata"]["name"]: body for body in draft.observed.trials}
    wanted = build_trials(records, events, context, stored.values())
    for trial in wanted:
        body = trial.to_object()
        old = stored.get(trial.metadata.name)
        if old is not None:  # where it was measured stays, also when a later attempt goes on
            body["status"] |= {k: v for k, v in (old.get("status") or {}).items() if k in _PLACE}
        if old is None or (old.get("status") or {}) != body["status"]:
            draft.act(RecordTrial(body))
            _announce(draft, trial, old)
    return len({trial.metadata.name for trial in wanted} | set(_of_run(stored.values(), context)))


def close_trials(draft: Draft, run_ids: Iterable[str]) -> None:
    """Close trials that still run although their run has ended: no record of them will come."""
    ended = set(run_ids)
    for body in draft.observed.trials:
        status: Mapping[str, Any] = body.get("status") or {}
        if body["spec"].get("runID") in ended and _is_open(status):
            closed = {
                **status,
                "outcome": str(TrialOutcome.PREEMPTED),
                "message": f"cut off: {status.get('message', '')}"[:1024],
            }
            draft.act(RecordTrial({**body, "status": closed}))


def close_trials_of_others(draft: Draft, run_id: str) -> None:
    """Close what an abandoned run, whose Job is gone, has left open."""
    runs = {body["spec"].get("runID") for body in draft.observed.trials}
    close_trials(draft, runs - {run_id})


def forget_trials(draft: Draft, keep: Iterable[str]) -> None:
    """Delete the trials of all runs but these."""
    kept = set(keep)
    for body in draft.observed.trials:
        if body["spec"].get("runID") not in kept:
            draft.act(DeleteTrial(draft.namespace, body["metadata"]["name"]))


def _of_run(stored: Iterable[Body], context: Context) -> Iterable[str]:
    return (b["metadata"]["name"] for b in stored if b["spec"].get("runID") == context.run_id)


def _is_open(status: Mapping[str, Any]) -> bool:
    return bool(status.get("outcome", TrialOutcome.RUNNING) == TrialOutcome.RUNNING)


def _announce(draft: Draft, trial: VLLMTrial, old: Body | None) -> None:
    """Tell what a person waits for; the rest is in the trials."""
    status = trial.status
    if old is not None and (old.get("status") or {}).get("outcome") == status.outcome:
        return
    words = f"{trial.metadata.name}: {status.message}"
    if status.outcome in (TrialOutcome.INFEASIBLE, TrialOutcome.FAILED):
        draft.announce(EventReason.TRIAL_INFEASIBLE, words, warning=True)
    elif status.outcome is TrialOutcome.RUNNING or not status.points:
        return
    elif trial.spec.purpose is TrialPurpose.BASELINE:
        draft.announce(EventReason.BASELINE_MEASURED, words)
    elif trial.spec.purpose is TrialPurpose.CONFIRM:
        draft.announce(EventReason.TRIAL_MEASURED, words)
