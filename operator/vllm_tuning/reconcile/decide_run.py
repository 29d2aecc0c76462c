"""The run: create its attempt, follow it, take over what it measured, and know when to give up.

::

    question changed ──► stop the old Job
    no Job           ──► answered by stored measurements? else create attempt N
    waiting          ──► tell the scheduler's words; past the deadline: failed
    measuring        ──► a trial for each configuration, at once
    lost             ──► attempt N+1 with all answers so far; after the last: failed
    answered         ──► recommendation into the status, the Job may go
    failed           ──► reason into the status (first), the Job is deleted (then)

A finished run, answered or failed, is remembered by ``status.run.completionTime`` under its id;
only another question, or the annotation ``vllmtuning.io/rerun``, makes another run.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from vllm_tuning.api.benchmark import QUEUE_LABEL
from vllm_tuning.api.reasons import ConditionType, EventReason, Reason
from vllm_tuning.api.spec import VLLMTuningSpec
from vllm_tuning.api.status import Effective, VLLMTuningStatus
from vllm_tuning.reconcile import names
from vllm_tuning.reconcile.attempt import POLL_SECONDS, create_attempt, try_again
from vllm_tuning.reconcile.draft import Draft
from vllm_tuning.reconcile.effects import DeleteJob, ExpireJob, RequeueJob
from vllm_tuning.reconcile.ending import (
    record_ended,
    record_failed,
    record_judged,
    tell_ending,
)
from vllm_tuning.reconcile.keep_trials import close_trials_of_others
from vllm_tuning.reconcile.observed import Body
from vllm_tuning.reconcile.progress import (
    Ended,
    Failed,
    Lost,
    Measuring,
    Reading,
    Waiting,
    judge_attempt,
)
from vllm_tuning.reconcile.question import (
    Question,
    patience_of,
    pose,
    retune_policy_of,
)
from vllm_tuning.reconcile.record import RunRecord
from vllm_tuning.reconcile.retune import outdated_at
from vllm_tuning.reconcile.reuse import consult
from vllm_tuning.reconcile.target import Target

KEEP_JOB_SECONDS: Final = 3600
"""A finished Job, and with it the bench's log, stays so long after its results are recorded."""
LEAVE_SECONDS: Final = timedelta(seconds=120)
"""A bench that has given its answer stops its engine and ends; one that hangs is deleted."""
READING_SECONDS: Final = 2.0


def decide_run(
    draft: Draft, spec: VLLMTuningSpec, wish: Effective, target: Target
) -> VLLMTuningStatus:
    """Take the run one step on. Returns the status as far as it is known then."""
    question = pose(draft, spec, wish, target)
    record = RunRecord(draft, question.run_id, target.gpu_count, measurement=question.measurement)
    if _stop_others(draft, question.run_id):
        draft.progress(Reason.PENDING, "the target or the wish has changed: the old run is stopped")
        _not_yet(draft)
    elif record.finished:
        _remember(draft, record)
        if (outdated := outdated_at(draft, retune_policy_of(wish))) is not None:
            draft.look_again(outdated)
    elif not record.begun and (store := consult(draft, question)) and store.recommendation:
        record.begin(question, store.run_id, store.seconds * target.gpu_count)
        record_judged(draft, record, store, target)
    elif spec.suspend:
        _stop_all(draft)
        record.begin(question)  # an answer to another question is not applied
        draft.rest(
            Reason.SUSPENDED, "spec.suspend is true: no run starts; what was measured is kept"
        )
        _not_yet(draft)
    else:
        _not_yet(draft)
        _follow(draft, question, record)
    return draft.before.model_copy(update=draft.status)


def stop_runs(draft: Draft) -> None:
    """Stop whatever runs: the tuning cannot be worked on."""
    if _stop_all(draft) and draft.observed.target is None:
        draft.announce(
            EventReason.TARGET_LOST,
            "the target disappeared: its benchmark is stopped",
            warning=True,
        )


def _not_yet(draft: Draft) -> None:
    """No answer to this question yet; an older answer is told as what it is."""
    old = draft.before.recommendation
    if old is None:
        draft.conditions.set(
            ConditionType.RECOMMENDATION_PROVIDED, False, Reason.NOT_YET, "no run has ended yet"
        )
    else:
        draft.conditions.set(
            ConditionType.RECOMMENDATION_PROVIDED,
            False,
            Reason.STALE,
            f"the target or the wish has changed since run {old.run_id}: a new run measures",
        )


def _follow(draft: Draft, question: Question, record: RunRecord) -> None:
    """Find the Job of the attempt at hand, or make it."""
    record.begin(question)
    close_trials_of_others(draft, question.run_id)
    name = names.job_name(draft.name, question.run_id, record.attempt)
    job = next((j for j in draft.observed.jobs if j["metadata"]["name"] == name), None)
    if job is None and record.had_job(name):
        try_again(draft, question, record, Lost(f"Job {name} was deleted"))
    elif job is None:
        create_attempt(draft, question, record)
    elif not _is_ours(job, draft.metadata["uid"], question):
        message = f"Job {name} exists and was not made for this run: delete or rename it"
        draft.rest(Reason.JOB_CONFLICT, message)
        draft.stall(Reason.JOB_CONFLICT, message)
    elif job["metadata"].get("deletionTimestamp"):
        draft.progress(Reason.PENDING, f"Job {name} is being deleted")
        draft.look_again(READING_SECONDS)
    else:
        _judge(draft, question, record, job)


def _judge(draft: Draft, question: Question, record: RunRecord, job: Body) -> None:
    """Take over what the attempt has said, and go where its state leads."""
    pod = record.pod_of(job)
    log = draft.observed.logs.get(pod["metadata"]["uid"]) if pod else None
    state = judge_attempt(
        job,
        pod,
        log,
        patience_of(question.wish),
        job_warning=draft.observed.job_warnings.get(job["metadata"]["name"]),
    )
    over = not isinstance(state, Measuring | Waiting | Reading)
    record.take_over(log.events if log else (), job, pod, ended=over)
    match state:
        case Waiting():
            _wait(draft, record, state)
            _requeue(draft, question, job)
        case Measuring(reason=reason, message=message):
            record.in_progress(reason, message)
            draft.look_again(POLL_SECONDS)
        case Reading():
            record.in_progress(Reason.STARTING, "the benchmark pod has ended: reading its log")
            draft.look_again(READING_SECONDS)
        case Lost():
            try_again(draft, question, record, state)
        case Failed(reason=reason, message=message):
            record_failed(draft, record, reason, message)
        case Ended():
            record_ended(draft, record, state, question.target)


def _wait(draft: Draft, record: RunRecord, state: Waiting) -> None:
    if state.give_up_at is not None and draft.now >= state.give_up_at:
        record_failed(draft, record, state.give_up_as, state.given_up)
        return
    record.in_progress(state.reason, state.message)
    told = draft.conditions.before(ConditionType.PROGRESSING)
    if state.reason is Reason.WAITING_FOR_GPU and (told is None or told.reason != state.reason):
        draft.announce(EventReason.WAITING_FOR_GPU, state.message)
    draft.look_again(POLL_SECONDS)
    if state.give_up_at is not None:
        draft.look_again(state.give_up_at)


def _requeue(draft: Draft, question: Question, job: Body) -> None:
    """Let a Job that waits for quota wait in another queue, where the wish names another by now.

    Kueue takes a new queue name as long as the Job is suspended.
    """
    wished = question.wish.benchmark.queue_name if question.wish.benchmark else None
    metadata = job["metadata"]
    waits = (job.get("spec") or {}).get("suspend")
    if waits and wished and (metadata.get("labels") or {}).get(QUEUE_LABEL) != wished:
        draft.act(RequeueJob(draft.namespace, metadata["name"], wished))


def _remember(draft: Draft, record: RunRecord) -> None:
    """A finished run: repeat what was found, and let its Job go."""
    for job in draft.observed.jobs:
        if not _belongs(job, draft.metadata["uid"]) or job["metadata"].get("deletionTimestamp"):
            continue
        metadata = job["metadata"]
        if not _is_over(job):
            if _may_end_by_itself(draft, record):
                draft.look_again(POLL_SECONDS)
                continue
            draft.act(DeleteJob(draft.namespace, metadata["name"], metadata["uid"]))
            break
        if job["spec"].get("ttlSecondsAfterFinished") is None:
            draft.act(ExpireJob(draft.namespace, metadata["name"], KEEP_JOB_SECONDS))
    record.settle()
    tell_ending(draft, record)


def _may_end_by_itself(draft: Draft, record: RunRecord) -> bool:
    """Whether a bench that has answered still has time to end, so that its log stays readable."""
    found = draft.before.recommendation
    ended = record.run.completion_time
    answered = found is not None and found.run_id == record.run_id
    return answered and ended is not None and draft.now < ended + LEAVE_SECONDS


def _stop_others(draft: Draft, run: str) -> bool:
    """Delete the Job of another question; one at a time."""
    for job in draft.observed.jobs:
        labels = job["metadata"].get("labels") or {}
        if labels.get(names.LABEL_RUN) != run and _stop(draft, job):
            return True
    return False


def _stop_all(draft: Draft) -> bool:
    stopped = [_stop(draft, job) for job in draft.observed.jobs]  # each of them, not the first
    return any(stopped)


def _stop(draft: Draft, job: Body) -> bool:
    """Delete a Job that is ours and not over yet; true while it is not gone."""
    metadata = job["metadata"]
    if not _belongs(job, draft.metadata["uid"]) or _is_over(job):
        return False
    if metadata.get("deletionTimestamp"):
        draft.look_again(READING_SECONDS)
    else:
        draft.act(DeleteJob(draft.namespace, metadata["name"], metadata["uid"]))
    return True


def _belongs(job: Body, uid: str) -> bool:
    owners = job["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner["uid"] == uid for owner in owners)


def _is_ours(job: Body, uid: str, question: Question) -> bool:
    metadata: Mapping[str, Any] = job["metadata"]
    return (
        _belongs(job, uid)
        and (metadata.get("labels") or {}).get(names.LABEL_RUN) == question.run_id
        and (metadata.get("annotations") or {}).get(names.ANNOTATION_FINGERPRINT)
        == question.fingerprint
    )


def _is_over(job: Body) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions)
