"""Short ways to ask for a probe of the tiny engine."""

from __future__ import annotations

from vllm_tuning.bench.probe import LiveProgress, run_probe
from vllm_tuning.bench.validity import ValidityLimits
from vllm_tuning.tuning.model import (
    SLO,
    Budget,
    Lengths,
    Limits,
    Metric,
    Objective,
    Probe,
    Problem,
    Purpose,
    Space,
    Workload,
)

LIMITS = Limits(max_num_seqs=64, max_num_batched_tokens=2048)

UNHURRIED = ValidityLimits(base_milliseconds=1e9, ceiling_milliseconds=1e9, cpu_fraction=100.0)
"""Other work on the machine makes no probe INVALID: only the fault of a test does."""


def problem(**changes) -> Problem:
    settings = {
        "slos": (SLO(Metric.TTFT, 95, 60_000), SLO(Metric.TPOT, 95, 30_000)),
        "objective": Objective.MAX_RATE,
        "workload": Workload(Lengths(32), Lengths(8)),
        "current": LIMITS,
        "space": Space(),
        "budget": Budget(600, 600),
    }
    return Problem(**{**settings, **changes})


def probe(load, **changes) -> Probe:
    settings = {
        "id": "p1",
        "purpose": Purpose.SEARCH,
        "limits": LIMITS,
        "load": load,
        "seed": 1,
        "window_seconds": 1.0,
        "warmup_seconds": 0.3,
    }
    return Probe(**{**settings, **changes})


async def no_hook():
    return None


async def no_gpu(start, end):
    return None


async def measure(
    engine, asked, *, of=None, hook_record=no_hook, gpu_samples=no_gpu, limits=UNHURRIED
):
    """Run a probe; return its result and the progress that was told."""
    told: list[LiveProgress] = []
    result = await run_probe(
        asked,
        problem=of or problem(),
        server=engine.address,
        on_progress=told.append,
        hook_record=hook_record,
        gpu_samples=gpu_samples,
        limits=limits,
    )
    return result, told
