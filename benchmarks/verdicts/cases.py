"""The populations of the study: what is served, how it varies, and what is promised of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from batchqueue import BatchQueue

from vllm_tuning.bench.sim.cost import Noise, StepCost
from vllm_tuning.bench.sim.parameters import PRESETS
from vllm_tuning.tuning.model import (
    SLO,
    Budget,
    Lengths,
    Limits,
    Metric,
    Objective,
    Problem,
    Space,
    Workload,
)

H200 = PRESETS["h200-8b"]

A100_COST = StepCost(
    fixed=9.0, per_request=0.03, per_context=0.06, mixed_fixed=11.0, mixed_request=0.05,
    mixed_context=0.08, per_token=52.0,
)  # fmt: skip
L4_COST = StepCost(
    fixed=53.0, per_request=0.06, per_context=0.45, mixed_fixed=56.0, mixed_request=0.06,
    mixed_context=0.5, per_token=155.0,
)  # fmt: skip
"""As in ``benchmarks/search/problems.py``."""


@dataclass(frozen=True, slots=True)
class Case:
    """One engine under one workload and SLA."""

    name: str
    told: str
    """What makes its runs differ, for the table."""
    cost: StepCost
    noise: Noise
    limits: Limits
    workload: Workload
    slos: tuple[SLO, ...]
    guess: float
    """Requests per second somewhere near the limit."""
    spread: float = 0.0
    """Of a speed that lasts a whole probe: what no window inside a probe can show (relative)."""

    def problem(self) -> Problem:
        return Problem(
            slos=self.slos,
            objective=Objective.MAX_RATE,
            workload=self.workload,
            current=self.limits,
            space=Space(),
            budget=Budget(gpu_seconds=1e9, deadline_seconds=1e9),
        )

    def queue(self) -> BatchQueue:
        return BatchQueue(self.cost, self.noise, self.limits, spread=self.spread)


def _slos(ttft: int, tpot: int, percentile: int = 95) -> tuple[SLO, ...]:
    return SLO(Metric.TTFT, percentile, ttft), SLO(Metric.TPOT, percentile, tpot)


CHAT = Workload(Lengths(512), Lengths(128))

CASES = (
    Case("chat", "host fast or slow for seconds, in a share that every window draws anew",
         H200.cost, H200.noise, Limits(256, 2048), CHAT, _slos(300, 20), guess=38.0),
    Case("queue", "as chat, but 48 sequences at most: the waiting line binds TTFT",
         H200.cost, H200.noise, Limits(48, 2048), CHAT, _slos(300, 40), guess=28.0),
    Case("p99", "as chat, 99 % of requests",
         H200.cost, H200.noise, Limits(256, 2048), CHAT, _slos(300, 25, 99), guess=42.0),
    Case("spread", "lengths with a spread of 50 %; windows differ by 2 % in speed",
         A100_COST, Noise(step=0.03, window=0.02), Limits(256, 4096),
         Workload(Lengths(1000, 50), Lengths(200, 50)), _slos(550, 26), guess=6.9),
    Case("bursty", "bursts (gamma arrivals, shape 0.4), spread lengths; windows differ by 2 %",
         A100_COST, Noise(step=0.03, window=0.02), Limits(256, 4096),
         Workload(Lengths(512, 100, 4000), Lengths(128), burstiness=0.4), _slos(880, 30),
         guess=14.2),
    Case("slow", "three requests a second on a small card; windows differ by 2 %",
         L4_COST, Noise(step=0.02, window=0.02), Limits(128, 2048), CHAT, _slos(2700, 105),
         guess=3.1),
    Case("restless", "as chat, and every probe has a speed of its own (5 %)",
         H200.cost, replace(H200.noise, window=0.02), Limits(256, 2048), CHAT, _slos(300, 20),
         guess=38.0, spread=0.05),
)  # fmt: skip
"""The last one breaks the judge's assumption that windows are all that differs, to see by how much
it fails then.
"""
