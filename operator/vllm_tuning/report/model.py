"""The one value that every rendering starts from, built from a run's events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import ConfigDict, TypeAdapter
from pydantic.alias_generators import to_camel

from vllm_tuning.tuning.flags import flag_changes
from vllm_tuning.tuning.model import (
    SLO,
    Limits,
    ProbeResult,
    Problem,
    Recommendation,
    StartResult,
)
from vllm_tuning.tuning.run import (
    EVENT,
    Event,
    ProbeBegan,
    ProbeEnded,
    RunEnded,
    RunFailed,
    RunStarted,
    StartBegan,
    StartEnded,
)


@dataclass(frozen=True, slots=True)
class Span:
    """One stretch of the run's timeline, in seconds since the run's first event."""

    kind: Literal["start", "probe"]
    label: str
    begin_seconds: float
    end_seconds: float
    outcome: str
    """``ready``, a failure's reason, or a verdict."""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a rendering shows. ``None`` and empty mean *not known*; nothing is invented."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        # As JSON it is spelt like the objects in the cluster; the values inside follow.
        alias_generator=to_camel,
        serialize_by_alias=True,
        use_attribute_docstrings=True,
    )

    title: str
    """Heading: the tuning's name, or the file's."""
    schema_version: Literal[1] = 1
    """Of this JSON document: rises when a field goes or changes its meaning."""
    target: str | None = None
    """What was tuned, e.g. ``Deployment chat``."""
    engine_version: str | None = None
    """vLLM's, by its own word."""
    problem: Problem | None = None
    """What the run was asked."""
    starts: tuple[StartResult, ...] = ()
    probes: tuple[ProbeResult, ...] = ()
    timeline: tuple[Span, ...] = ()
    recommendation: Recommendation | None = None
    failure: str | None = None
    """Why the run broke, if it did."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs of the last attempt: a claim is about these cards."""
    engine_seconds: float = 0.0
    """Seconds that an engine was starting or serving."""
    gpu_seconds: int | None = None
    """GPUs times seconds that the benchmark pods held them; only the cluster knows."""
    complete: bool = False
    """Whether the run has ended, well or not."""

    @property
    def kv_cache_tokens(self) -> int | None:
        """KV capacity of the first start that told it (per data-parallel rank)."""
        return next((s.facts.kv_cache_tokens for s in self.starts if s.facts), None)


REPORT: TypeAdapter[Report] = TypeAdapter(Report)


def read_events(lines: Iterable[str]) -> tuple[Event, ...]:
    """Parse a run's JSON lines; lines that are no event of ours (another program's) are skipped.

    A log that was read in pieces may repeat lines: each ``seq`` counts once.
    """
    events: dict[int, Event] = {}
    for line in lines:
        if line.startswith("{") and '"kind"' in line:
            try:
                event = EVENT.validate_json(line)
            except ValueError:
                continue
            events.setdefault(event.seq, event)
    return tuple(events[seq] for seq in sorted(events))


def from_events(
    events: Iterable[Event],
    *,
    title: str,
    target: str | None = None,
    problem: Problem | None = None,
    gpu_seconds: int | None = None,
) -> Report:
    """Fold a run's events into a report; an unfinished run gives a report of what is known."""
    starts: list[StartResult] = []
    probes: list[ProbeResult] = []
    timeline: list[Span] = []
    recommendation: Recommendation | None = None
    failure: str | None = None
    gpus: tuple[str, ...] = ()
    engine_seconds = 0.0
    zero: float | None = None
    began: float | None = None
    for event in events:
        zero = event.time - _taken(event) if zero is None else zero
        now = event.time - zero
        begin = max(now - _taken(event), 0.0) if began is None else began
        match event:
            case StartBegan() | ProbeBegan():
                began = now
            case StartEnded(result=start):
                starts.append(start)
                outcome = start.failure.reason if start.failure else "ready"
                timeline.append(Span("start", start.start.id, begin, now, outcome))
                began = None
            case ProbeEnded(result=probe):
                probes.append(probe)
                timeline.append(Span("probe", probe.probe.id, begin, now, probe.verdict.value))
                began = None
            case RunEnded():
                recommendation = event.recommendation
            case RunFailed():
                failure = f"{event.reason}: {event.message}"
            case RunStarted():
                gpus = event.gpus
            case _:
                pass
        engine_seconds = getattr(event, "engine_seconds", engine_seconds)
    version = next((s.facts.version for s in starts if s.facts and s.facts.version), None)
    return Report(
        title=title,
        target=target,
        engine_version=version,
        problem=problem,
        starts=tuple(starts),
        probes=tuple(probes),
        timeline=tuple(timeline),
        recommendation=recommendation,
        failure=failure,
        gpus=gpus,
        engine_seconds=engine_seconds,
        gpu_seconds=gpu_seconds,
        complete=recommendation is not None or failure is not None,
    )


def _taken(event: Event) -> float:
    """Seconds that passed before an event whose beginning was not told."""
    return event.result.seconds if isinstance(event, StartEnded | ProbeEnded) else 0.0


def slos_of(report: Report) -> tuple[SLO, ...]:
    """The SLOs of the run: from the problem, else from what the probes were judged by."""
    if report.problem:
        return report.problem.slos
    return next((tuple(r.slo for r in p.slos) for p in report.probes if p.slos), ())


def limits_text(limits: Limits) -> str:
    """``max_num_seqs=96 max_num_batched_tokens=4096 ...``: set values only."""
    return " ".join(f"{flag}={value}" for flag, value in flag_changes(limits).items())
