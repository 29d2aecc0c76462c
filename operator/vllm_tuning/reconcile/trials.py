"""The trials of a run: one per configuration, purpose and engine start.

A trial carries the bench's own records (``answer``) beside the figures for people. Together, in
order of time, they are what a later attempt replays, so the trials are the run's memory: pods and
their logs may go at any moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from vllm_tuning.api import trial as api
from vllm_tuning.api.base import decimal
from vllm_tuning.api.meta import Condition, ObjectMeta
from vllm_tuning.api.reasons import ConditionType, Reason
from vllm_tuning.api.values import MeasuredVerdict
from vllm_tuning.reconcile import convert, names
from vllm_tuning.reconcile.records import Record, identity_of
from vllm_tuning.reconcile.trial_verdict import best_load, by_load, measured
from vllm_tuning.tuning.model import (
    FailureKind,
    Limits,
    Probe,
    ProbeResult,
    Purpose,
    Start,
    StartResult,
)
from vllm_tuning.tuning.run import EVENT, Event, ProbeBegan, ProbeEnded, StartBegan, StartEnded

MAX_POINTS: Final = 64
MAX_ANSWER: Final = 32_768

_Key: TypeAlias = tuple[Purpose, Limits, str]


@dataclass(frozen=True, slots=True)
class Context:
    """What all trials of a run share."""

    owner: Mapping[str, Any]
    run_id: str
    measurement: str = ""
    """Name of what is measured, whatever SLA judges it."""
    job_name: str | None = None
    node_name: str | None = None
    gpu_product: str | None = None
    ended: bool = False
    """No more events will come: what is still running was cut off."""


@dataclass(slots=True)
class _Draft:
    key: _Key
    start: Start | None = None
    start_record: StartEnded | None = None
    owns_start: bool = False
    probes: list[ProbeEnded] = field(default_factory=list)
    open_probe: ProbeBegan | None = None
    began: float | None = None


def build_trials(
    records: Sequence[Record],
    events: Iterable[Event],
    context: Context,
    existing: Iterable[Mapping[str, Any]] = (),
) -> tuple[api.VLLMTrial, ...]:
    """Build the trials of a run, in order of appearance.

    ``records`` are all answers known; ``events`` add what has begun and not ended in the log at
    hand. A trial that is in ``existing`` keeps its index, whatever the clocks of two nodes say.
    """
    drafts: dict[_Key, _Draft] = {}
    start_record: StartEnded | None = None
    for event in _story(records, events):
        match event:
            case StartBegan(start=start, time=time):
                draft = _draft(drafts, (start.purpose, start.limits, start.id), time)
                draft.start, draft.owns_start = start, True
            case StartEnded(result=result, time=time):
                start_record = event
                start = result.start
                draft = _draft(
                    drafts, (start.purpose, start.limits, start.id), time - result.seconds
                )
                draft.start, draft.owns_start, draft.start_record = start, True, event
            case ProbeBegan(probe=probe, time=time):
                draft = _draft(drafts, _probe_key(probe, start_record), time)
                draft.start_record, draft.open_probe = draft.start_record or start_record, event
            case ProbeEnded(result=result, time=time):
                draft = _draft(
                    drafts, _probe_key(result.probe, start_record), time - result.seconds
                )
                draft.start_record, draft.open_probe = draft.start_record or start_record, None
                draft.probes.append(event)
    indices = {
        (body["metadata"].get("labels") or {}).get(names.LABEL_CONFIGURATION): body["spec"]["index"]
        for body in existing
        if body["spec"].get("runID") == context.run_id
    }
    found = []
    for draft in drafts.values():
        index = indices.setdefault(_hash(draft.key), 1 + max(indices.values(), default=0))
        found.append(_trial(draft, index, context))
    return tuple(found)


def _hash(key: _Key) -> str:
    purpose, limits, start = key
    return names.digest([purpose, convert.limits(limits).to_object(), start])


def _story(
    records: Sequence[Record], events: Iterable[Event]
) -> Iterable[StartBegan | StartEnded | ProbeBegan | ProbeEnded]:
    """All records in order, then at most one start and one probe that have begun and not ended."""
    yield from records
    known = {identity_of(record) for record in records}
    for event in events:
        if (isinstance(event, StartBegan) and ("start", event.start.id) not in known) or (
            isinstance(event, ProbeBegan) and ("probe", event.probe.id) not in known
        ):
            yield event


def _draft(drafts: dict[_Key, _Draft], key: _Key, began: float) -> _Draft:
    draft = drafts.setdefault(key, _Draft(key))
    draft.began = began if draft.began is None else min(draft.began, began)
    return draft


def _probe_key(probe: Probe, start: StartEnded | None) -> _Key:
    return (probe.purpose, probe.limits, start.result.start.id if start else "")


def _trial(draft: _Draft, index: int, context: Context) -> api.VLLMTrial:
    purpose, limits, _ = draft.key
    owner = context.owner
    return api.VLLMTrial(
        metadata=ObjectMeta(
            name=names.trial_name(owner["name"], context.run_id, index),
            namespace=owner["namespace"],
            labels={
                **names.labels(owner["name"], context.run_id),
                names.LABEL_CONFIGURATION: _hash(draft.key),
                names.LABEL_MEASUREMENT: context.measurement,
            },
            owner_references=(names.owner_reference(owner),),
        ),
        spec=api.VLLMTrialSpec(
            tuning_ref=api.TuningReference(name=owner["name"], uid=owner["uid"]),
            run_id=context.run_id,
            index=index,
            purpose=api.TrialPurpose(purpose),
            limits=convert.limits(limits),
        ),
        status=_status(draft, context),
    )


def _status(draft: _Draft, context: Context) -> api.VLLMTrialStatus:
    loads = by_load([record.result for record in draft.probes])
    outcome, message = _outcome(draft, loads, context)
    running = outcome is api.TrialOutcome.RUNNING
    last = draft.probes[-1].time if draft.probes else None
    ended = last or (draft.start_record.time if draft.start_record else draft.began)
    seconds = sum(record.result.seconds for record in draft.probes)
    if draft.owns_start and draft.start_record:
        seconds += draft.start_record.result.seconds
    moment = convert.at((draft.began if running else ended) or 0)
    return api.VLLMTrialStatus(
        conditions=(
            Condition(
                type=str(ConditionType.READY),
                status="False" if running else "True",
                reason=str(Reason.RUNNING if running else Reason.ENDED),
                message=convert.short(message),
                last_transition_time=moment,
            ),
        ),
        outcome=outcome,
        message=convert.short(message),
        best_load=best_load(loads),
        start=_start(draft),
        failure=_failure(draft),
        points=tuple(_point(record) for record in draft.probes[-MAX_POINTS:]),
        job_name=context.job_name,
        node_name=context.node_name,
        gpu_product=context.gpu_product,
        engine_seconds=decimal(seconds, 1),
        start_time=None if draft.began is None else convert.at(draft.began),
        completion_time=None if running else moment,
    )


def _outcome(
    draft: _Draft, loads: Sequence[ProbeResult], context: Context
) -> tuple[api.TrialOutcome, str]:
    failure = draft.start_record.result.failure if draft.start_record else None
    if failure is not None and draft.owns_start:
        infeasible = failure.kind is FailureKind.INFEASIBLE
        outcome = api.TrialOutcome.INFEASIBLE if infeasible else api.TrialOutcome.FAILED
        return outcome, f"{failure.reason}: {failure.message}"
    if draft.open_probe is not None or (draft.start_record is None and not draft.probes):
        what = (
            f"probe {draft.open_probe.probe.id}" if draft.open_probe else "the engine is starting"
        )
        if context.ended:
            return api.TrialOutcome.PREEMPTED, f"cut off: {what}"
        return api.TrialOutcome.RUNNING, what
    if not draft.probes:
        return api.TrialOutcome.SUCCEEDED, "the engine started"
    return measured(loads)


def _start(draft: _Draft) -> api.TrialStart | None:
    record = draft.start_record
    if record is None:
        return None
    result: StartResult = record.result
    facts = result.facts
    return api.TrialStart(
        id=result.start.id,
        seconds=decimal(result.seconds, 1),
        live_limits=result.start.hook and (facts is None or facts.live_limits is None),
        vllm_version=facts.version if facts else None,
        kv_cache_tokens=facts.kv_cache_tokens if facts else None,
        non_default_args=convert.short(facts.non_default_args or "") or None if facts else None,
        answer=_answer(record) if draft.owns_start else None,
    )


def _failure(draft: _Draft) -> api.TrialFailure | None:
    failure = draft.start_record.result.failure if draft.start_record else None
    if failure is None or not draft.owns_start:
        return None
    return api.TrialFailure(
        kind=failure.kind,
        reason=failure.reason[:64],
        message=convert.short(failure.message),
        hint=failure.hint,
        log_tail=failure.log_tail[-2048:] or None,
    )


def _point(record: ProbeEnded) -> api.TrialPoint:
    result = record.result
    return api.TrialPoint(
        id=result.probe.id,
        load=convert.load(result.probe.load),
        verdict=MeasuredVerdict(result.verdict),
        reason=result.reason[:64],
        message=convert.short(result.message),
        metrics=convert.metrics(result),
        slos=convert.slo_outcomes(result.slos),
        bottleneck=result.bottleneck,
        bottleneck_evidence=convert.short(result.bottleneck_evidence) or None,
        measured_seconds=decimal(result.measured_seconds, 1),
        answer=_answer(record),
    )


def _answer(record: Record) -> str | None:
    text = EVENT.dump_json(record).decode()
    return text if len(text) <= MAX_ANSWER else None
