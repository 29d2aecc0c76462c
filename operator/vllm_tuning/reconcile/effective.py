"""The wish with its gaps filled: spec, then profile, then our defaults; each with its source.

The numbers of the profiles are where an experienced engineer starts (real-time chat: first token
within 300 ms; batch: throughput without preemption; mixed: lengths that vary by more than their
mean). They are starting points, not facts: whoever knows better writes them into the spec.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm_tuning.api.base import wire_name
from vllm_tuning.api.benchmark import QUEUE_LABEL, Benchmark, BenchmarkJob
from vllm_tuning.api.retune import DriftReaction, RetunePolicy
from vllm_tuning.api.spec import (
    Budget,
    ObjectiveName,
    Parameter,
    ParameterName,
    Profile,
    UpdateChannel,
    UpdateMode,
    UpdatePolicy,
    VLLMTuningSpec,
)
from vllm_tuning.api.status import Effective, FieldSource, SourceKind, WindowsOf
from vllm_tuning.api.values import SLO, LoadKind, SLOMetric
from vllm_tuning.api.workload import TokenLengths, Workload, WorkloadSource

DEFAULT_BUDGET = Budget(
    gpu_seconds=4 * 3600,
    deadline_seconds=2 * 3600,
    schedule_deadline_seconds=1800,
    startup_deadline_seconds=1800,
)
DEFAULT_MINIMUM_IMPROVEMENT_PERCENT = 5
DEFAULT_RETUNE_POLICY = RetunePolicy(on_drift=DriftReaction.REPORT)
DEFAULT_ROLLOUT_DEADLINE_SECONDS = 1800
"""Used where the benchmark did not measure a start time."""


@dataclass(frozen=True, slots=True)
class _Preset:
    slos: tuple[SLO, ...]
    workload: Workload
    objective: ObjectiveName


def _latency(metric: SLOMetric, milliseconds: int) -> SLO:
    return SLO(metric=metric, percentile=95, max_milliseconds=milliseconds)


_ANY = _Preset(
    slos=(),
    workload=Workload(
        input_tokens=TokenLengths(mean=512, cv_percent=50, max=2048),
        output_tokens=TokenLengths(mean=128, cv_percent=50, max=512),
        arrival=LoadKind.OPEN,
        shared_prefix_percent=0,
    ),
    objective=ObjectiveName.MAX_RATE,
)
_PRESETS = {
    Profile.CHAT: _Preset(
        slos=(_latency(SLOMetric.TTFT, 300), _latency(SLOMetric.TPOT, 50)),
        workload=Workload(
            input_tokens=TokenLengths(mean=512, cv_percent=80, max=4096),
            output_tokens=TokenLengths(mean=256, cv_percent=80, max=1024),
            arrival=LoadKind.OPEN,
            shared_prefix_percent=0,
        ),
        objective=ObjectiveName.MAX_RATE,
    ),
    Profile.BATCH: _Preset(
        slos=(
            SLO(metric=SLOMetric.PREEMPTION_RATE, max_percent=1),
            SLO(metric=SLOMetric.ERROR_RATE, max_percent=1),
        ),
        workload=Workload(
            input_tokens=TokenLengths(mean=1024, cv_percent=30, max=4096),
            output_tokens=TokenLengths(mean=256, cv_percent=30, max=1024),
            arrival=LoadKind.CLOSED,
            concurrency=512,
            shared_prefix_percent=0,
        ),
        objective=ObjectiveName.MAX_THROUGHPUT,
    ),
    Profile.MIXED: _Preset(
        slos=(_latency(SLOMetric.TTFT, 1000), _latency(SLOMetric.TPOT, 80)),
        workload=Workload(
            input_tokens=TokenLengths(mean=1024, cv_percent=150, max=8192),
            output_tokens=TokenLengths(mean=256, cv_percent=100, max=1024),
            arrival=LoadKind.OPEN,
            shared_prefix_percent=0,
        ),
        objective=ObjectiveName.MAX_RATE,
    ),
    Profile.CUSTOM: _ANY,
}
DEFAULT_PARAMETERS = (
    Parameter(name=ParameterName.MAX_NUM_SEQS),
    Parameter(name=ParameterName.MAX_NUM_BATCHED_TOKENS),
)


class _Sources:
    """Notes where each value comes from while it is chosen."""

    def __init__(self, profile: Profile | None) -> None:
        self._profile = profile
        self.notes: list[FieldSource] = []

    def choose(self, field: str, wished: Any, preset: Any) -> Any:  # noqa: ANN401 - any field
        """Return the wished value if there is one, else the preset's; note which."""
        if wished is not None:
            self.note(field, SourceKind.SPEC)
            return wished
        if preset is not None:
            self.note(field, SourceKind.DEFAULT if self._profile is None else SourceKind.PROFILE)
        return preset

    def note(self, field: str, source: SourceKind) -> None:
        name = self._profile if source is SourceKind.PROFILE else None
        self.notes.append(FieldSource(field=field, source=source, name=name))

    def fill(self, field: str, wished: Any, defaults: Any) -> Any:  # noqa: ANN401 - any model
        """Fill the absent fields of a model from our defaults."""
        given = {} if wished is None else wished.model_dump(exclude_none=True)
        for name in type(defaults).model_fields:
            if name in given:
                self.note(f"{field}.{wire_name(name)}", SourceKind.SPEC)
        return defaults.model_copy(
            update={} if wished is None else {name: getattr(wished, name) for name in given}
        )


def resolve(spec: VLLMTuningSpec) -> Effective:
    """Return the effective wish. Pure: the same spec gives the same answer."""
    preset = _PRESETS[spec.profile] if spec.profile is not None else _ANY
    sources = _Sources(spec.profile)
    slos = sources.choose("slos", spec.slos, preset.slos or None) or ()
    workload = _workload(spec.workload, preset.workload, sources)
    objective = sources.choose("objective", spec.objective, preset.objective)
    if spec.parameters is None:
        sources.note("parameters", SourceKind.DEFAULT)
    else:
        sources.note("parameters", SourceKind.SPEC)
    update_policy = sources.fill(
        "updatePolicy",
        spec.update_policy,
        UpdatePolicy(
            mode=UpdateMode.RECOMMEND,
            channel=UpdateChannel.ARGS,
            allow_managed=False,
            minimum_improvement_percent=DEFAULT_MINIMUM_IMPROVEMENT_PERCENT,
        ),
    )
    return Effective(
        profile=spec.profile,
        slos=slos,
        workload=workload,
        objective=objective,
        parameters=spec.parameters or DEFAULT_PARAMETERS,
        budget=sources.fill("budget", spec.budget, DEFAULT_BUDGET),
        update_policy=update_policy,
        retune_policy=sources.fill("retunePolicy", spec.retune_policy, DEFAULT_RETUNE_POLICY),
        benchmark=_benchmark(spec, sources),
        windows=_windows(spec, sources),
        sources=tuple(sources.notes),
    )


def queue_of(benchmark: Benchmark | None) -> str | None:
    """Return the Kueue LocalQueue that a tuning names, by its field or by Kueue's own label."""
    if benchmark is None:
        return None
    return benchmark.queue_name or (benchmark.labels or {}).get(QUEUE_LABEL)


def _benchmark(spec: VLLMTuningSpec, sources: _Sources) -> BenchmarkJob | None:
    queue = queue_of(spec.benchmark)
    if queue is None:
        return None
    sources.note("benchmark.queueName", SourceKind.SPEC)
    return BenchmarkJob(queue_name=queue)


def _windows(spec: VLLMTuningSpec, sources: _Sources) -> tuple[WindowsOf, ...]:
    if spec.windows is None:
        return ()
    sources.note("windows", SourceKind.SPEC)
    return (WindowsOf(windows=spec.windows),)


def _workload(wished: Workload | None, preset: Workload, sources: _Sources) -> Workload:
    """Fill the workload field by field; a wished kind of demand replaces the preset's kind.

    A trace has its own lengths (``traffic.with_trace``), so none are filled in beside one.
    """
    wished = wished or Workload()
    if wished.source is not None:
        sources.note("workload.source", SourceKind.SPEC)
    if wished.trace_ref is not None:
        sources.note("workload.traceRef", SourceKind.SPEC)
        preset = preset.model_copy(update={"input_tokens": None, "output_tokens": None})
    arrival = wished.arrival
    if arrival is None and wished.concurrency is not None:
        arrival = LoadKind.CLOSED
    if arrival is None and wished.requests_per_minute is not None:
        arrival = LoadKind.OPEN
    arrival = sources.choose("workload.arrival", arrival, preset.arrival)
    closed = arrival is LoadKind.CLOSED
    return Workload(
        source=None if wished.trace_ref else wished.source or WorkloadSource.AUTO,
        trace_ref=wished.trace_ref,
        input_tokens=sources.choose(
            "workload.inputTokens", wished.input_tokens, preset.input_tokens
        ),
        output_tokens=sources.choose(
            "workload.outputTokens", wished.output_tokens, preset.output_tokens
        ),
        arrival=arrival,
        concurrency=sources.choose(
            "workload.concurrency",
            wished.concurrency,
            (preset.concurrency or 64) if closed else None,
        ),
        requests_per_minute=sources.choose(
            "workload.requestsPerMinute", wished.requests_per_minute, None
        ),
        shared_prefix_percent=sources.choose(
            "workload.sharedPrefixPercent",
            wished.shared_prefix_percent,
            preset.shared_prefix_percent,
        ),
    )
