"""From everything that a probe saw to its ``ProbeResult``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_tuning.bench import rates
from vllm_tuning.bench.load.recorder import Recorder
from vllm_tuning.bench.load.selfwatch import ClientHealth
from vllm_tuning.bench.metrics.deltas import engine_deltas
from vllm_tuning.bench.metrics.scraper import Reading
from vllm_tuning.bench.validity import (
    AtStop,
    Evidence,
    Invalid,
    ValidityLimits,
    find_invalid,
    send_lateness_p99_ms,
)
from vllm_tuning.tuning.diagnosis import diagnosed
from vllm_tuning.tuning.model import (
    SLO,
    EngineDeltas,
    GPUActivity,
    OpenLoad,
    Probe,
    ProbeResult,
    Verdict,
)
from vllm_tuning.tuning.percentiles import summarize
from vllm_tuning.tuning.samples import FAILURES, RequestSamples, RequestStatus, Window
from vllm_tuning.tuning.verdict import Judgement

DEFAULT_BLOCK_TOKENS = 16
"""vLLM's KV block, unless its ``cache_config_info`` says otherwise."""

NO_HEALTH = ClientHealth(0.0, 0.0, 0.0, 0.0)

HookRecords = Sequence[dict[str, Any]]


@dataclass(slots=True)
class Observed:
    """What a probe has seen so far; filled in as it goes. Times are the driver's clock."""

    probe: Probe
    slos: tuple[SLO, ...]
    limits: ValidityLimits
    predictable_prefix: bool = True
    """Whether the prefix hit ratio follows from the workload's declaration."""
    invalid: Invalid | None = None
    """Why it was broken off or not begun."""
    recorder: Recorder = field(default_factory=Recorder)
    judgement: Judgement | None = None
    windows: Sequence[Window] = ()
    readings: Sequence[Reading] = ()
    before: Reading | None = None
    """The page before any load."""
    at_stop: AtStop | None = None
    after: Reading | None = None
    """The page after the drain."""
    idle: ClientHealth = NO_HEALTH
    busy: ClientHealth = NO_HEALTH
    gpu: GPUActivity | None = None
    measured_from: float | None = None
    """Unix seconds of the first window's start."""
    hook_before: HookRecords | None = None
    hook_after: HookRecords | None = None
    seconds: float = 0.0

    @property
    def span(self) -> tuple[float, float]:
        """From the first window's start to the last one's end."""
        return (self.windows[0].start, self.windows[-1].end) if self.windows else (0.0, 0.0)


def assemble(observed: Observed) -> ProbeResult:
    """Build the result, what bound it included; INVALID if any cause of that holds."""
    samples = observed.recorder.snapshot()
    measured = rates.rows_in(samples, observed.windows)
    start, end = observed.span
    engine = engine_deltas(observed.readings, start, end, hook=observed.hook_after)
    invalid = observed.invalid or find_invalid(_evidence(observed, samples, measured, engine))
    judgement = observed.judgement or Judgement(Verdict.UNDECIDED, "NotMeasured", "no window")
    counts = observed.recorder.counts
    verdict, reason, message = judgement.verdict, judgement.reason, judgement.message
    if invalid is not None:
        verdict, reason, message = Verdict.INVALID, invalid.reason, invalid.message
    result = ProbeResult(
        probe=observed.probe,
        verdict=verdict,
        reason=reason,
        message=_with_failures(message, observed.recorder),
        seconds=observed.seconds,
        measured_seconds=end - start,
        measured_from=observed.measured_from,
        sent=len(samples),
        completed=counts[RequestStatus.OK],
        failed=sum(counts[status] for status in FAILURES),
        cancelled=counts[RequestStatus.CANCELLED],
        ttft=summarize(measured.ttft_ms[~measured.failed]),
        tpot=summarize(measured.tpot_ms),
        itl=summarize(measured.gap_ms),
        max_gap=summarize(measured.max_gap_ms[measured.ok]),
        e2e=summarize(measured.e2e_ms),
        request_rate=rates.completion_rate(samples, start, end),
        output_tokens_per_second=rates.output_token_rate(samples, start, end),
        input_tokens_per_second=rates.input_token_rate(samples, start, end),
        goodput_fraction=rates.goodput_fraction(observed.slos, measured),
        slos=judgement.slos,
        engine=engine,
        gpu=observed.gpu,
        send_lateness_p99_ms=send_lateness_p99_ms(measured),
        client_cpu_fraction=observed.busy.cpu_fraction,
    )
    return diagnosed(result)


def _evidence(
    observed: Observed, samples: RequestSamples, measured: RequestSamples, engine: EngineDeltas
) -> Evidence:
    return Evidence(
        slos=observed.slos,
        samples=samples,
        measured=measured,
        idle=observed.idle,
        busy=observed.busy,
        readings=observed.readings,
        first=observed.before.page if observed.before else None,
        last=observed.after.page if observed.after else None,
        at_stop=observed.at_stop,
        scheduled=isinstance(observed.probe.load, OpenLoad),
        shared_tokens=_shared_tokens(observed, samples),
        prefix_hit_fraction=engine.prefix_hit_fraction if observed.predictable_prefix else None,
        gpu=observed.gpu,
        hook_pids=_hook_pids(observed),
        limits=observed.limits,
    )


def _shared_tokens(observed: Observed, samples: RequestSamples) -> int:
    """Prompt tokens of the measured requests that lie in whole blocks of the shared prefix."""
    page = observed.before.page if observed.before else None
    told = dict(page.cache_config).get("block_size", "") if page else ""
    block = int(told) if told.isdigit() and int(told) else DEFAULT_BLOCK_TOKENS
    inside = [samples.window_mask(window) for window in observed.windows]
    return sum(
        shared // block * block
        for row, shared in enumerate(observed.recorder.shared_tokens)
        if any(mask[row] for mask in inside)
    )


def _hook_pids(observed: Observed) -> tuple[frozenset[int], frozenset[int]] | None:
    if observed.hook_before is None or observed.hook_after is None:
        return None
    return _pids(observed.hook_before), _pids(observed.hook_after)


def _pids(records: HookRecords) -> frozenset[int]:
    return frozenset(pid for record in records if isinstance(pid := record.get("pid"), int))


def _with_failures(message: str, recorder: Recorder) -> str:
    """Add what the most frequent failure said: a verdict about failures must tell which."""
    if not recorder.details:
        return message
    said, count = recorder.details.most_common(1)[0]
    return f"{message} ({count} times {said})"
