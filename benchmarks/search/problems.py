"""The problems of the search benchmark, frozen before the search was tuned (see README.md).

Eight workloads, each on three simulated engines. Half of the 24 pairs follow physics that the
search's step model does not know: a mixture of experts, kernels that pad, a card whose clock
drifts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from vllm_tuning.bench.sim.cost import Noise, StepCost
from vllm_tuning.bench.sim.inprocess import SimulatedServer
from vllm_tuning.bench.sim.parameters import GIB, EngineParameters
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

KIB = 1 << 10

H200 = EngineParameters(
    name="h200-8b",
    device_name="NVIDIA H200",
    device_memory_bytes=143_771 << 20,
    weights_bytes=int(14.96 * GIB),
    kv_bytes_per_token=128 * KIB,
    model_max_len=8192,
    cost=StepCost(
        fixed=4.94, per_request=0.01135, per_request_squared=0.02508, per_context=0.02858,
        mixed_fixed=2.86, mixed_request=0.0294, mixed_context=0.0319, per_token=15.5,
        per_attention=1.47, throttle=0.45, heat_seconds=0.1, launch_graph=1.5, launch_mixed=3.5,
        launch_mixed_per_token=15.5, launch_eager=13.3,
    ),
    noise=Noise(step=0.02, card=0.03, slow_factor=2.0, slow_share=0.45, slow_seconds=4.0),
    start_seconds=110.0,
)  # fmt: skip
"""As fitted to our own H200 (benchmarks/simulator)."""

A100 = replace(
    H200,
    name="a100-8b",
    device_memory_bytes=81_920 << 20,
    cost=StepCost(
        fixed=9.0, per_request=0.03, per_context=0.06, mixed_fixed=11.0, mixed_request=0.05,
        mixed_context=0.08, per_token=52.0,
    ),
    noise=Noise(step=0.03, window=0.02, card=0.03),
    start_seconds=90.0,
)  # fmt: skip
L4 = EngineParameters(
    name="l4-8b",
    device_name="NVIDIA L4",
    device_memory_bytes=23_034 << 20,
    weights_bytes=int(14.96 * GIB),
    kv_bytes_per_token=128 * KIB,
    model_max_len=8192,
    cost=StepCost(
        fixed=53.0, per_request=0.06, per_context=0.45, mixed_fixed=56.0, mixed_request=0.06,
        mixed_context=0.5, per_token=155.0,
    ),
    noise=Noise(step=0.02, window=0.02, card=0.02),
    start_seconds=100.0,
)  # fmt: skip
MOE = replace(
    H200,
    name="h200-moe",
    weights_bytes=int(86.9 * GIB),
    cost=StepCost(
        fixed=5.5, per_request=0.02, per_context=0.03, mixed_fixed=7.0, mixed_request=0.03,
        mixed_context=0.04, per_token=31.0, launch_mixed=8.0, launch_eager=18.0,
        expert_saturation=14.0, expert_tokens=24.0,
    ),
    noise=Noise(step=0.05, window=0.03, card=0.03, stall_probability=0.002, stall_milliseconds=20),
    start_seconds=200.0,
)  # fmt: skip
PADDED = replace(
    A100,
    name="a100-padded",
    cost=replace(A100.cost, per_attention=0.9, pad_tokens=256),
    noise=Noise(step=0.04, window=0.03, card=0.03),
)
DRIFTING = replace(
    H200,
    name="h200-drifting",
    cost=replace(H200.cost, heat_seconds=15.0),
    noise=Noise(step=0.06, window=0.04, card=0.05, drift=0.05, drift_seconds=90.0),
)

UNKNOWN_PHYSICS = frozenset({"h200-moe", "a100-padded", "h200-drifting"})

PACE = {
    "h200-8b": 1.0,
    "a100-8b": 2.2,
    "l4-8b": 9.0,
    "h200-moe": 2.6,
    "a100-padded": 2.2,
    "h200-drifting": 1.3,
}
"""SLA bounds are scaled by it, as a user of that card would choose them."""


def _slo(metric: Metric, milliseconds: float, percentile: int = 95) -> tuple[Metric, float, int]:
    return metric, milliseconds, percentile


@dataclass(frozen=True, slots=True)
class Traffic:
    """A workload with its SLA on the reference card."""

    name: str
    workload: Workload
    slos: tuple[tuple[Metric, float, int], ...]
    prefix_caching: bool = False


TRAFFIC = (
    Traffic("chat", Workload(Lengths(512), Lengths(128)),
            (_slo(Metric.TTFT, 300), _slo(Metric.TPOT, 20))),
    Traffic("chat-tight", Workload(Lengths(1000, 50), Lengths(200, 50)),
            (_slo(Metric.TTFT, 250), _slo(Metric.TPOT, 12))),
    Traffic("summarise", Workload(Lengths(3500, 40, 7000), Lengths(120)),
            (_slo(Metric.TTFT, 1500), _slo(Metric.TPOT, 30))),
    Traffic("generate", Workload(Lengths(200), Lengths(800, 30, 1600)),
            (_slo(Metric.TTFT, 500), _slo(Metric.TPOT, 15))),
    Traffic("no-stalls", Workload(Lengths(800), Lengths(150)),
            (_slo(Metric.TTFT, 500), _slo(Metric.MAX_GAP, 60))),
    Traffic("bursty", Workload(Lengths(512, 100, 4000), Lengths(128), burstiness=0.4),
            (_slo(Metric.TTFT, 400), _slo(Metric.TPOT, 25))),
    Traffic("mixed", Workload(Lengths(700, 150, 6000), Lengths(200, 100, 1500)),
            (_slo(Metric.TTFT, 800, 90), _slo(Metric.TPOT, 25, 90))),
    Traffic("rag", Workload(Lengths(2000), Lengths(150), shared_prefix_percent=60),
            (_slo(Metric.TTFT, 500), _slo(Metric.TPOT, 25)), prefix_caching=True),
)  # fmt: skip

KNOWN_HEAVY = (A100, L4, DRIFTING)
UNKNOWN_HEAVY = (H200, MOE, PADDED)


@dataclass(frozen=True, slots=True)
class Case:
    """One problem of the benchmark: a traffic on an engine, on one card."""

    traffic: Traffic
    engine: EngineParameters
    card: int

    @property
    def name(self) -> str:
        return f"{self.traffic.name}/{self.engine.name}"

    @property
    def known(self) -> bool:
        """Whether the search's step model has this engine's physics."""
        return self.engine.name not in UNKNOWN_PHYSICS

    def problem(self, seed: int) -> Problem:
        pace = PACE[self.engine.name]
        return Problem(
            slos=tuple(
                SLO(metric, percentile, round(milliseconds * pace))
                for metric, milliseconds, percentile in self.traffic.slos
            ),
            objective=Objective.MAX_RATE,
            workload=self.traffic.workload,
            current=DEFAULTS,
            space=Space(),
            budget=Budget(gpu_seconds=3 * 3600.0, deadline_seconds=3 * 3600.0),
            seed=seed,
        )

    def server(self, *, noise_seed: int = 0) -> SimulatedServer:
        """Open the case's card; ``noise_seed`` draws everything but the card itself."""
        return SimulatedServer(
            self.engine,
            seed=self.card,
            max_model_len=8192,
            enable_prefix_caching=self.traffic.prefix_caching,
            noise_seed=noise_seed,
        )


DEFAULTS = Limits(256, 2048)
"""What a server gets that sets neither limit: vLLM's defaults on most cards up to 0.32."""


def cases() -> tuple[Case, ...]:
    """The 24 frozen problems; the first eight are the quick form: every traffic, every engine."""
    return tuple(
        Case(traffic, engines[(index // 2 + turn) % 3], card=100 + 10 * index + turn)
        for turn in range(3)
        for index, traffic in enumerate(TRAFFIC)
        for engines in (KNOWN_HEAVY if index % 2 else UNKNOWN_HEAVY,)
    )
