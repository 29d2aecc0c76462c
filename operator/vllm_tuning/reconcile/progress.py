"""How far the current attempt of a run is, from its Job, its pod and what its bench has said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

from vllm_tuning.api.benchmark import QUEUE_LABEL
from vllm_tuning.api.reasons import Reason
from vllm_tuning.reconcile.names import BENCH
from vllm_tuning.reconcile.observed import BenchLog, Body
from vllm_tuning.reconcile.pod_state import (
    bound_to,
    cannot_start,
    condition_of,
    disruption,
    holds,
    is_disrupted,
    is_running,
    is_terminated,
    moment,
    starting_words,
    status_of,
    why_failed,
)
from vllm_tuning.tuning.model import Ending, Recommendation
from vllm_tuning.tuning.run import (
    SUMMARY,
    Event,
    ProbeBegan,
    ProbeEnded,
    Progress,
    RunEnded,
    RunFailed,
    StartBegan,
    Summary,
)

TERMINATED: Final = "Terminated"
"""Reason of a ``RunFailed`` that a SIGTERM caused: the pod is being taken away."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The pod does not run yet; ``give_up_at`` ends the patience."""

    reason: Reason
    message: str
    give_up_at: datetime | None
    give_up_as: Reason = Reason.GAVE_UP_WAITING_FOR_GPU

    @property
    def given_up(self) -> str:
        """Words for the end of the patience, with what to do."""
        rerun = "then annotate vllmtuning.io/rerun"
        advice = {
            Reason.GAVE_UP_WAITING_FOR_GPU: "free a GPU or raise budget.scheduleDeadlineSeconds",
            Reason.POD_REFUSED: "change what refuses the pod",
            Reason.BENCHMARK_FAILED: "cure that or raise budget.startupDeadlineSeconds",
        }[self.give_up_as]
        return f"given up waiting: {self.message}; {advice}, {rerun}"


@dataclass(frozen=True, slots=True)
class Measuring:
    """The bench is at work."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The pod was taken away: evicted, preempted, drained, deleted."""

    message: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The attempt broke, and another one would break the same way."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The bench came to an answer."""

    recommendation: Recommendation
    engine_seconds: float


@dataclass(frozen=True, slots=True)
class Reading:
    """The pod has ended, its log is still being read."""


Attempt: TypeAlias = Waiting | Measuring | Lost | Failed | Ended | Reading


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds that an attempt may take to be scheduled, and then to have its containers running."""

    schedule: int
    startup: int


def judge_attempt(
    job: Body,
    pod: Body | None,
    log: BenchLog | None,
    patience: Patience,
    *,
    job_warning: str | None = None,
) -> Attempt:
    """Say how far an attempt is.

    Earlier facts win: an answer stays an answer if the pod dies later. ``job_warning`` is the last
    Warning event of a Job that has no pod, or of a pod whose containers do not start.
    """
    events = log.events if log else ()
    if (told := _last_word(events, job)) is not None:
        return told
    if pod is not None and is_terminated(pod, BENCH) and not (log and log.complete):
        return Reading()
    if summary := _summary(pod):
        return _from_summary(summary)
    finished = condition_of(job, "Failed") or condition_of(job, "Complete")
    if finished is not None:
        return _without_answer(finished, pod)
    return (
        _no_pod(job, patience, job_warning)
        if pod is None
        else _alive(pod, job, events, patience, job_warning)
    )


def _last_word(events: Sequence[Event], job: Body) -> Attempt | None:
    """Return what the bench itself said of its end."""
    match events[-1] if events else None:
        case RunEnded(recommendation=recommendation, engine_seconds=seconds):
            return Ended(recommendation, seconds)
        case RunFailed(reason=reason, message=message):
            if reason == TERMINATED and not _expired(job):
                return Lost(message)
            return Failed(Reason.BENCHMARK_FAILED, f"{reason}: {message}")
        case _:
            return None


def _alive(
    pod: Body, job: Body, events: Sequence[Event], patience: Patience, warning: str | None
) -> Attempt:
    if _suspended(job):
        return _queued(job)  # its pod goes, and comes again when the queue admits the Job
    if is_disrupted(pod):
        return Lost(disruption(pod))
    if trouble := cannot_start(pod):
        return Failed(Reason(trouble.reason), trouble.message)
    if not is_running(pod, BENCH):
        return _pending(pod, job, patience, warning)
    return _measuring(events)


def _measuring(events: Iterable[Event]) -> Measuring:
    reason, message = Reason.STARTING, "the bench is starting"
    for event in events:
        match event:
            case StartBegan(start=start):
                reason = Reason(start.purpose)
                message = (
                    f"starting the engine with max_num_seqs={start.limits.max_num_seqs}, "
                    f"max_num_batched_tokens={start.limits.max_num_batched_tokens} ({start.why})"
                )
            case ProbeBegan(probe=probe):
                reason = Reason(probe.purpose)
                message = f"probe {probe.id}"
            case ProbeEnded(result=result):
                reason = Reason(result.probe.purpose)
                message = f"probe {result.probe.id}: {result.verdict} - {result.message}"
            case Progress() as progress:
                message = (
                    f"probe {progress.probe_id}: {progress.phase}, {progress.completed} requests "
                    f"done, {progress.in_flight} in flight"
                )
            case _:
                continue
    return Measuring(reason, message)


def _summary(pod: Body | None) -> Summary | None:
    """Return the bench's termination message, where the kubelet has one that is ours."""
    state = status_of(pod, BENCH).get("state", {}).get("terminated") or {}
    try:
        return SUMMARY.validate_json(state.get("message") or "")
    except ValueError:
        return None


def _from_summary(summary: Summary) -> Attempt:
    """Make the best of a lost log: limits, load and gain stand in the summary."""
    if summary.reason == TERMINATED:
        return Lost(summary.message)
    try:
        ending = Ending(summary.reason)
    except ValueError:
        return Failed(Reason.BENCHMARK_FAILED, f"{summary.reason}: {summary.message}")
    recommendation = Recommendation(
        ending=ending,
        message=summary.message,
        limits=summary.limits,
        load=summary.load,
        gain_percent=summary.gain_percent,
        engine_starts=summary.engine_starts,
        probes=summary.probes,
        engine_seconds=summary.engine_seconds,
    )
    return Ended(recommendation, summary.engine_seconds)


def _without_answer(finished: Mapping[str, Any], pod: Body | None) -> Attempt:
    if finished.get("reason") == "DeadlineExceeded":
        return Failed(
            Reason.BENCHMARK_FAILED,
            "the benchmark Job reached its activeDeadlineSeconds before the bench came to an end: "
            "raise budget.deadlineSeconds",
        )
    if finished.get("reason") == "PodFailurePolicy" or pod is None or is_disrupted(pod):
        return Lost(finished.get("message") or "the benchmark pod is gone")
    return Failed(Reason.BENCHMARK_FAILED, why_failed(pod))


def _no_pod(job: Body, patience: Patience, warning: str | None) -> Waiting:
    if _suspended(job):
        return _queued(job)
    return Waiting(
        Reason.POD_REFUSED if warning else Reason.PENDING,
        warning or "the Job has no pod yet",
        _deadline(job, patience.schedule),
        Reason.POD_REFUSED,
    )


def _suspended(job: Body) -> bool:
    return bool((job.get("spec") or {}).get("suspend"))


def _queued(job: Body) -> Waiting:
    """Name the queue. No deadline: a queue may be slow, and nothing is held meanwhile."""
    metadata = job["metadata"]
    queue = (metadata.get("labels") or {}).get(QUEUE_LABEL)
    name = metadata.get("name")
    return Waiting(
        Reason.WAITING_FOR_QUOTA,
        f"Job {name} waits until queue {queue} admits it"
        if queue
        else f"Job {name} is suspended, and no queue is named: set "
        f"benchmark.queueName, or resume it with: kubectl patch job {name} --type merge "
        '-p \'{"spec":{"suspend":false}}\'',
        None,
    )


def _pending(pod: Body, job: Body, patience: Patience, warning: str | None) -> Waiting:
    scheduled = condition_of(pod, "PodScheduled") or {}
    if scheduled.get("status") != "True":
        words, deadline = scheduled.get("message"), _deadline(job, patience.schedule)
        if not words:
            return Waiting(Reason.PENDING, "the scheduler has not looked at the pod yet", deadline)
        return Waiting(Reason.WAITING_FOR_GPU, words + bound_to(pod), deadline)
    since = moment(scheduled.get("lastTransitionTime")) or _created(job)
    return Waiting(
        Reason.STARTING,
        f"{starting_words(pod)}; {warning}" if warning else starting_words(pod),
        since + timedelta(seconds=patience.startup),
        Reason.BENCHMARK_FAILED,
    )


def _expired(job: Body) -> bool:
    found = condition_of(job, "Failed") or condition_of(job, "FailureTarget")
    return bool(found and found.get("reason") == "DeadlineExceeded")


def _created(body: Body) -> datetime:
    return datetime.fromisoformat(body["metadata"]["creationTimestamp"])


def _deadline(job: Body, seconds: int) -> datetime | None:
    """Count from the Job's start: the Job controller sets it anew when a queue resumes the Job.

    None where the Job is resumed and the controller has not noticed yet.
    """
    if holds(job, "Suspended"):
        return None
    started = moment((job.get("status") or {}).get("startTime"))
    return (started or _created(job)) + timedelta(seconds=seconds)
