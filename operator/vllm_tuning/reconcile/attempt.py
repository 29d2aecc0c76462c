"""The attempts of a run: one is created with all that is known, and the next when it is lost."""

from __future__ import annotations

from typing import Final

from vllm_tuning.api.reasons import EventReason, Reason
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.reconcile.draft import Draft
from vllm_tuning.reconcile.effects import CreateRun
from vllm_tuning.reconcile.ending import record_failed
from vllm_tuning.reconcile.job import build_config_map
from vllm_tuning.reconcile.progress import Lost
from vllm_tuning.reconcile.question import (
    Question,
    build_run_job,
    build_run_spec,
    problem_of,
    retune_policy_of,
)
from vllm_tuning.reconcile.record import RunRecord
from vllm_tuning.reconcile.records import answers
from vllm_tuning.reconcile.retune import cooled_at
from vllm_tuning.reconcile.reuse import consult, tell_missing
from vllm_tuning.reconcile.windows import closed
from vllm_tuning.tuning.reuse import with_seconds
from vllm_tuning.tuning.run import RunSpec

MAX_ATTEMPTS: Final = 3
"""Pods of one run that may be lost before it is given up."""
POLL_SECONDS: Final = 15.0
"""Watches wake the operator; this is for the case that one was missed."""


def try_again(draft: Draft, question: Question, record: RunRecord, lost: Lost) -> None:
    """Go on in a new pod with what was measured, if that was not tried too often."""
    if record.attempt >= MAX_ATTEMPTS:
        record_failed(
            draft,
            record,
            Reason.TOO_MANY_ATTEMPTS,
            f"the benchmark pod was lost {record.attempt} times, last: {lost.message}; make room "
            "for it, then annotate vllmtuning.io/rerun",
        )
        return
    if _must_wait(draft, question, record):
        return
    draft.announce(
        EventReason.RUN_PREEMPTED,
        f"attempt {record.attempt} of run {question.run_id} was lost: {lost.message}; the next one "
        f"goes on with {len(record.records)} answers",
        warning=True,
    )
    _create(draft, question, record, record.attempt + 1)


def create_attempt(draft: Draft, question: Question, record: RunRecord) -> None:
    """Create the attempt at hand as soon as one may begin."""
    if not _must_wait(draft, question, record):
        _create(draft, question, record, record.attempt)


def _create(draft: Draft, question: Question, record: RunRecord, attempt: int) -> None:
    """Create the Job of an attempt and the ConfigMap that tells its bench what to do."""
    refused = draft.observed.refused
    if refused is not None and refused.effect == CreateRun.__name__:
        draft.rest(Reason(refused.reason), refused.message)
        draft.stall(Reason(refused.reason), refused.message)
        return
    run = _run_spec(draft, question, record, attempt)
    config_map = build_config_map(draft.metadata, run)
    if isinstance(config_map, Refusal):
        record_failed(draft, record, Reason(config_map.reason), config_map.message)
        return
    job = build_run_job(draft, question, run)
    draft.act(CreateRun(config_map=config_map, job=job))
    record.created(attempt, job["metadata"]["name"])
    if attempt == 1:
        limits, origin = question.target.limits, run.problem.workload.origin
        draft.announce(
            EventReason.RUN_STARTED,
            f"run {question.run_id} measures {question.target.name}, now max_num_seqs="
            f"{limits.max_num_seqs}, max_num_batched_tokens={limits.max_num_batched_tokens}"
            + (f"; workload: {origin}" if origin else ""),
        )
    reason = Reason.PENDING if attempt == 1 else Reason.PREEMPTED
    record.in_progress(reason, f"attempt {attempt} of run {question.run_id} was created")
    draft.look_again(POLL_SECONDS)


def _must_wait(draft: Draft, question: Question, record: RunRecord) -> bool:
    """Tell that no attempt may begin now, and come back when one may."""
    shut = closed(question.wish.windows, draft.now)
    cooled = None if record.begun else cooled_at(draft, retune_policy_of(question.wish))
    if shut is None and cooled is None:
        return False
    if cooled is not None:
        words = f"no run starts before {cooled:%Y-%m-%dT%H:%M:%SZ}: retunePolicy.cooldownSeconds"
        record.in_progress(Reason.COOLING_DOWN, words)
        draft.look_again(cooled)
    elif shut is not None:
        record.in_progress(Reason.WAITING_FOR_WINDOW, f"no run starts {shut.message}")
        if shut.opens is not None:
            draft.look_again(shut.opens)
    return True


def _run_spec(draft: Draft, question: Question, record: RunRecord, attempt: int) -> RunSpec:
    """Ask with all that is known: the run's own answers, and those of a run of another SLA."""
    store = consult(draft, question, record.records)
    problem = problem_of(draft, question)
    if store is None or not store.found.answers:
        return build_run_spec(question, problem, answers(record.records), attempt)
    record.begin(question, store.run_id, store.seconds * problem.gpus)
    if attempt == 1:
        draft.announce(EventReason.JUDGED_ANEW, tell_missing(store))
    return build_run_spec(
        question, with_seconds(problem, store.seconds), store.found.answers, attempt
    )
