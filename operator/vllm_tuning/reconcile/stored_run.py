"""A run read back from what the operator has stored of it: status, trials, and the log if it lasts.

Pods and their logs go; the trials keep every answer of the bench, and the status what was found.
Together they tell a run again as the events that the bench once printed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from vllm_tuning.api import status as api
from vllm_tuning.api import values
from vllm_tuning.reconcile import convert
from vllm_tuning.reconcile.records import Record, merge_records
from vllm_tuning.tuning import model
from vllm_tuning.tuning.run import Event, ProbeEnded, RunEnded, RunFailed, StartEnded

_ENDINGS: Final = frozenset(str(ending) for ending in model.Ending)


def run_events(
    status: api.VLLMTuningStatus, stored: Iterable[Record], log: Iterable[Event] = ()
) -> tuple[Event, ...]:
    """Return the events of the status' run in order of time; the last tells its end, if it has one.

    ``stored`` are the records of its trials, ``log`` what a bench's log still tells: of an attempt
    only, but with more about the way and the end.
    """
    log = tuple(log)
    others = [event for event in log if not isinstance(event, StartEnded | ProbeEnded)]
    records = merge_records(stored, log)
    events = sorted([*others, *records], key=lambda event: (event.time, event.seq))
    if not any(isinstance(event, RunEnded | RunFailed) for event in events):
        events.extend(_end(status, records))
    return tuple(events)


def _end(status: api.VLLMTuningStatus, records: tuple[Record, ...]) -> Iterable[Event]:
    run, found = status.run, status.recommendation
    if run is None or run.completion_time is None:
        return
    seq = 1 + max((record.seq for record in records), default=0)
    time = run.completion_time.timestamp()
    usage = status.usage or api.Usage()
    if found is not None and found.run_id == run.id and found.ending in _ENDINGS:
        answer = core_recommendation(found, usage, records)
        yield RunEnded(seq, time, answer, float(usage.engine_seconds))
    else:
        reason, message = run.stage or "Unknown", run.message or ""
        yield RunFailed(seq, time, reason, message, float(usage.engine_seconds))


def core_recommendation(
    found: api.Recommendation, usage: api.Usage, records: Iterable[Record]
) -> model.Recommendation:
    """Say a stored recommendation in the core's words, with the whole results that it rests on."""
    results = [record.result for record in records if isinstance(record, ProbeEnded)]
    return model.Recommendation(
        ending=model.Ending(found.ending),
        message=found.message,
        limits=convert.core_limits(found.limits) if found.limits else None,
        parameters=tuple(
            model.ParameterChoice(
                name=choice.name,
                current=choice.current,
                recommended=choice.recommended,
                lower_bound=choice.lower_bound,
                upper_bound=choice.upper_bound,
                uncapped=choice.uncapped,
            )
            for choice in found.parameters
        ),
        load=_load(found.load),
        result=_measured(found.confirmed, results),
        baseline=_measured(found.baseline, results),
        margins=tuple(map(_margin, found.margins)),
        gain_percent=found.gain_percent,
        gain_range_percent=_range(found.gain_range_percent),
        replicas=found.replicas,
        binding_limit=found.binding_limit or "",
        nearest_miss=_measured(found.nearest_miss, results),
        decisions=tuple(
            model.DecisionStep(note.topic, note.decision, note.why) for note in found.decisions
        ),
        engine_starts=usage.engine_starts,
        probes=usage.probes,
        engine_seconds=float(usage.engine_seconds),
    )


def _measured(
    shown: values.Measurement | None, results: list[model.ProbeResult]
) -> model.ProbeResult | None:
    """The result that the status shows in short.

    It is one of the run's, or one of the run's with the judgement of several taken together.
    """
    if shown is None:
        return None
    for result in reversed(results):
        told = convert.measurement(result)
        if told == shown:
            return result
        if (told.limits, told.load) == (shown.limits, shown.load) and shown.probe_id in (
            None,  # stored before the status named it
            told.probe_id,
        ):
            return replace(
                result,
                verdict=model.Verdict(shown.verdict),
                reason=shown.reason,
                message=shown.message,
                slos=tuple(map(_outcome, shown.slos)),
            )
    return None


def _range(shown: api.GainRange | None) -> tuple[float, float] | None:
    return None if shown is None else (shown.least, shown.greatest)


def _load(shown: values.LoadPoint | None) -> model.Load | None:
    match shown:
        case values.LoadPoint(requests_per_second=str(rate)):
            return model.OpenLoad(rate_per_second=float(rate))
        case values.LoadPoint(concurrency=int(clients)):
            return model.ClosedLoad(concurrency=clients)
        case _:
            return None


def _margin(shown: values.SLOOutcome) -> model.SLOMargin:
    return model.SLOMargin(
        slo=convert.core_slo(shown.slo),
        observed_milliseconds=_number(shown.observed_milliseconds),
        attainment=_fraction(shown.attainment_percent),
        margin_percent=_number(shown.margin_percent),
    )


def _outcome(shown: values.SLOOutcome) -> model.SLOResult:
    return model.SLOResult(
        slo=convert.core_slo(shown.slo),
        attainment=_fraction(shown.attainment_percent),
        verdict=model.Verdict(shown.verdict or values.MeasuredVerdict.UNDECIDED),
        observed_milliseconds=_number(shown.observed_milliseconds),
    )


def _number(text: str | None) -> float | None:
    return None if text is None else float(text)


def _fraction(percent: str | None) -> float | None:
    return None if percent is None else float(percent) / 100
