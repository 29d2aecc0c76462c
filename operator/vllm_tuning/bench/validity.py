"""Whether a probe measured the engine, or something else: the causes of INVALID.

An invalid probe is no data: not a FAIL, not a PASS. Each cause is one function from evidence to a
sentence; the first that speaks is the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from vllm_tuning.bench.load.selfwatch import ClientHealth
from vllm_tuning.bench.metrics.scraper import Reading
from vllm_tuning.engine.metrics import EnginePage, delta, restarted
from vllm_tuning.tuning.model import SLO, GPUActivity, Metric
from vllm_tuning.tuning.samples import RequestSamples, RequestStatus


@dataclass(frozen=True, slots=True)
class ValidityLimits:
    """How far the client and the telemetry may be off."""

    base_milliseconds: float = 10.0
    """Lag and lateness that are accepted on any machine ..."""
    base_share: float = 0.05
    """... or this share of the tightest bound on a single wait (TTFT, E2E latency, MaxGap) ..."""
    noise_factor: float = 4.0
    """... or so many times the greatest lag that the idle client shows on this machine ..."""
    ceiling_share: float = 0.2
    """... but never more than this share of that bound: beyond it the client decides the verdict.
    """
    ceiling_milliseconds: float = 50.0
    """The ceiling where no SLO bounds a single wait."""
    cpu_fraction: float = 0.95
    """Cores that the client's process may take; it runs on one."""
    prefix_points: float = 3.0
    """Percentage points that the prefix hit ratio may be off the declared one."""
    count_share: float = 0.01
    """Share of requests by which the engine's count and ours may differ."""
    others_gpu_percent: float = 2.0
    """Share of time that other processes may have kernels on the engine's GPUs. No noise is allowed
    for: on a card of one's own it is 0.
    """
    hang_seconds: float = 20.0
    """Requests run, and for so long neither a step nor a token: the engine hangs."""
    quiet_seconds: float = 15.0
    """How long the engine may take to have nothing running, before the load and after it."""

    def wait_limit_ms(self, slos: Sequence[SLO], idle_lag_ms: float) -> float:
        """Return the accepted p99 of loop lag and of send lateness."""
        single_waits = {Metric.TTFT, Metric.E2E_LATENCY, Metric.MAX_GAP}
        bounds = [
            slo.max_milliseconds
            for slo in slos
            if slo.metric in single_waits and slo.max_milliseconds is not None
        ]
        if not bounds:
            noise = max(self.base_milliseconds, self.noise_factor * idle_lag_ms)
            return min(noise, self.ceiling_milliseconds)
        noise = max(self.base_share * min(bounds), self.noise_factor * idle_lag_ms)
        return max(self.base_milliseconds, min(noise, self.ceiling_share * min(bounds)))


@dataclass(frozen=True, slots=True)
class Invalid:
    """Why a probe is no data."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class AtStop:
    """Both sides' counts when the load stopped, before anything was cancelled."""

    page: EnginePage
    answered: int
    """Responses that had come to their end some time after the page was read."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the causes are judged by. ``first`` and ``last`` are pages before and after all load."""

    slos: Sequence[SLO]
    samples: RequestSamples
    """Every request of the probe, warm-up and tail included."""
    measured: RequestSamples
    """Those of the windows."""
    idle: ClientHealth
    """The client before the load."""
    busy: ClientHealth
    """The client within the windows."""
    readings: Sequence[Reading]
    first: EnginePage | None
    last: EnginePage | None
    at_stop: AtStop | None = None
    scheduled: bool = True
    """Whether requests had times to leave at: those of a closed loop leave when they can."""
    shared_tokens: int = 0
    """Prompt tokens of the measured requests that the prefix cache should have served."""
    prefix_hit_fraction: float | None = None
    gpu: GPUActivity | None = None
    hook_pids: tuple[frozenset[int], frozenset[int]] | None = None
    """Engine process ids before and after, by the hook."""
    limits: ValidityLimits = field(default_factory=ValidityLimits)


def find_invalid(evidence: Evidence) -> Invalid | None:
    """Return the first cause that holds, the gravest first."""
    for cause in (
        _engine_restarted,
        _other_load,
        _lost_responses,
        _foreign_metrics,
        _client_cpu,
        _send_lateness,
        _client_lag,
        _prefix_hits,
        _gpu_slowdown,
        _other_gpu_process,
    ):
        if (found := cause(evidence)) is not None:
            return found
    return None


def _engine_restarted(evidence: Evidence) -> Invalid | None:
    pages = [page for page in (evidence.first, *_pages(evidence), evidence.last) if page]
    if any(restarted(old, new) for old, new in pairwise(pages)):
        return Invalid("EngineRestarted", "the engine's counters began anew within the probe")
    if evidence.hook_pids is not None and evidence.hook_pids[0] != evidence.hook_pids[1]:
        before, after = (sorted(pids) for pids in evidence.hook_pids)
        return Invalid("EngineRestarted", f"engine processes {before} became {after}")
    return None


def _other_load(evidence: Evidence) -> Invalid | None:
    ended = _count(evidence, "finished")
    ours = len(evidence.samples)
    if ended is not None and ended > ours + _slack(evidence):
        return Invalid(
            "OtherLoad",
            f"the engine ended {ended:.0f} requests while this client sent {ours}: "
            "something else loads the server",
        )
    return None


def finished_well(first: EnginePage, page: EnginePage) -> float | None:
    """Return how many requests the engine has finished between two pages, aborts left out."""
    ended = delta(first, page, "finished")
    return None if ended is None else ended - (delta(first, page, "aborted") or 0.0)


def _lost_responses(evidence: Evidence) -> Invalid | None:
    if evidence.first is None or evidence.at_stop is None:
        return None
    finished = finished_well(evidence.first, evidence.at_stop.page)
    if finished is not None and finished > evidence.at_stop.answered:
        return Invalid(
            "LostResponses",
            f"the engine finished {finished:.0f} requests, {evidence.at_stop.answered} answers "
            "arrived: something between the engine and the client loses them",
        )
    return None


def _foreign_metrics(evidence: Evidence) -> Invalid | None:
    ended = _count(evidence, "finished")
    answered = int((evidence.samples.status == RequestStatus.OK).sum())
    if ended is not None and answered > ended + _slack(evidence):
        return Invalid(
            "MetricsMismatch",
            f"{answered} answers arrived and the metrics page counts {ended:.0f}: "
            "it is not the page of the server that answers",
        )
    return None


def _client_cpu(evidence: Evidence) -> Invalid | None:
    used, limit = evidence.busy.cpu_fraction, evidence.limits.cpu_fraction
    if used > limit:
        return Invalid(
            "ClientCPU", f"the client took {used:.2f} cores of its one: it is the bottleneck"
        )
    return None


def _send_lateness(evidence: Evidence) -> Invalid | None:
    """Judged before the lag that causes it: what the schedule suffered is the graver."""
    if not evidence.scheduled:
        return None
    limit = evidence.limits.wait_limit_ms(evidence.slos, evidence.idle.lag_max_ms)
    late = send_lateness_p99_ms(evidence.measured)
    if late is not None and late > limit:
        return Invalid(
            "SendLateness",
            f"requests left {late:.0f} ms after their scheduled time at p99 (limit {limit:.0f} ms; "
            f"the client's event loop was {evidence.busy.lag_p99_ms:.0f} ms late at p99)",
        )
    return None


def _client_lag(evidence: Evidence) -> Invalid | None:
    limit = evidence.limits.wait_limit_ms(evidence.slos, evidence.idle.lag_max_ms)
    if evidence.busy.lag_p99_ms > limit:
        return Invalid(
            "ClientLag",
            f"the client's event loop was {evidence.busy.lag_p99_ms:.0f} ms late at p99 "
            f"(limit {limit:.0f} ms, {evidence.idle.lag_max_ms:.1f} ms at most when idle)",
        )
    return None


def _prefix_hits(evidence: Evidence) -> Invalid | None:
    seen = evidence.prefix_hit_fraction
    prompt_tokens = int(evidence.measured.input_tokens.sum())
    if seen is None or not prompt_tokens:
        return None
    declared = evidence.shared_tokens / prompt_tokens
    if abs(seen - declared) * 100 > evidence.limits.prefix_points:
        return Invalid(
            "PrefixHitMismatch",
            f"the prefix cache served {seen:.1%} of the prompt tokens, the workload declares "
            f"{declared:.1%}",
        )
    return None


_SLOWDOWNS = ("thermal", "hwslowdown", "hw_slowdown", "powerbrake", "power_brake")


def _gpu_slowdown(evidence: Evidence) -> Invalid | None:
    throttled = (evidence.gpu.throttled if evidence.gpu else None) or ""
    # A software power cap is the normal state of a loaded card, and part of what it can do.
    if any(word in throttled.lower() for word in _SLOWDOWNS):
        return Invalid("GPUSlowdown", f"the GPU slowed its clocks: {throttled}")
    return None


def _other_gpu_process(evidence: Evidence) -> Invalid | None:
    others = evidence.gpu.others_percent if evidence.gpu else None
    limit = evidence.limits.others_gpu_percent
    if others is not None and others > limit:
        return Invalid(
            "OtherGPUProcess",
            f"another process had kernels on the engine's GPU {others:.0f} % of the time "
            f"(limit {limit:.0f} %)",
        )
    return None


def send_lateness_p99_ms(samples: RequestSamples) -> float | None:
    """Return the p99 of how late requests left, ``None`` without any."""
    late = samples.lateness_ms[~np.isnan(samples.lateness_ms)]
    return float(np.percentile(late, 99, method="inverted_cdf")) if len(late) else None


def _pages(evidence: Evidence) -> list[EnginePage]:
    return [reading.page for reading in evidence.readings]


def _count(evidence: Evidence, name: str) -> float | None:
    if evidence.first is None or evidence.last is None:
        return None
    return delta(evidence.first, evidence.last, name)


def _slack(evidence: Evidence) -> float:
    return max(1.0, evidence.limits.count_share * len(evidence.samples))
