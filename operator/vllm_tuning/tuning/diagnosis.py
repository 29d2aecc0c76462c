"""What bound a load point: the client, the KV cache, the scheduler's limits, or one of the GPU's.

GPU utilisation (the share of time with a kernel running) reads 82-100 % under every load and is
never used. What separates memory-bound decode from compute-bound prefill is the activity of the
memory interface against that of the tensor pipe.

Sources of the thresholds: NVIDIA's guide to DCGM's profiling metrics (SM activity below 50 % is
ineffective use; 80 % is about the most that the memory interface reaches), and the 50 load windows
of ``benchmarks/data/h200``, whose verdicts ``benchmarks/results/diagnosis.md`` lists.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from vllm_tuning.tuning.model import (
    Bottleneck,
    EngineDeltas,
    GPUActivity,
    Limits,
    ProbeResult,
    Verdict,
)

CLIENT_REASONS: Final = frozenset({"ClientCPU", "ClientLag", "SendLateness"})
"""Causes of INVALID that lie with the load driver."""

KV_FULL_FRACTION: Final = 0.95
"""From here on the next chunk of a prompt often finds no blocks, so requests wait for them."""

QUEUE_LEAST: Final = 1.0
"""Requests waiting on average: less than one is the gap between two steps, not a queue."""

AT_LIMIT_SHARE: Final = 0.9
"""Mean share of a limit that counts as reached; a limit that binds is filled in nearly every step.
H200: 0.97-1.00 where a limit bound; 0.83 for a token budget that bound in part of a window.
"""

COMPUTE_SATURATED_PERCENT: Final = 75.0
"""Tensor activity at which no larger batch helps. H200: 84 in pure prefill, which is the most seen;
69 under a token budget of 512 that bound, where a larger one carried more.
"""

DOMINANCE: Final = 1.25
"""How many times one pipe must be as busy as the other. H200: decode of 8 to 64 sequences shows
0.05 to 0.32 times as much tensor as memory activity, prefill 4 times; between 0.8 and 1.25 a batch
stands at the ridge of the roofline.
"""

BUSY_PERCENT: Final = 30.0
"""Activity that one pipe must have at least. Memory activity is above 33 in every loaded window but
pure prefill (21), whose tensor activity is 84.
"""

DRAM_ALONE_PERCENT: Final = 50.0
"""Without tensor activity: from here on memory was clearly the busier pipe in every H200 window
that had room in its KV cache.
"""

MEMORY_TIME_PERCENT: Final = 70.0
"""NVML's memory utilisation is a share of time, and noisy (46-79 % at nearly one load): from
here on it was seen in memory-bound windows only.
"""

INEFFECTIVE_SM_PERCENT: Final = 50.0
"""NVIDIA: a lower SM activity likely indicates ineffective use."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A bottleneck and the numbers behind it; of ``UNKNOWN``, what is missing or in balance."""

    bottleneck: Bottleneck
    evidence: str


def diagnosed(result: ProbeResult) -> ProbeResult:
    """Return the result with its bottleneck."""
    found = diagnose(result)
    return replace(result, bottleneck=found.bottleneck, bottleneck_evidence=found.evidence)


def diagnose(result: ProbeResult) -> Diagnosis:
    """Say what bound a probe, by the first cause that its numbers show.

    The order is that of remedies: numbers of a client that lags mean nothing; a full KV cache makes
    larger limits useless; a saturated tensor pipe too; then a limit that holds requests back; and
    only then the busier of memory and tensor pipe, which a larger batch would shift.
    """
    if result.reason in CLIENT_REASONS:
        return Diagnosis(Bottleneck.CLIENT, result.message)
    if result.verdict is Verdict.INVALID:
        return Diagnosis(Bottleneck.UNKNOWN, f"the probe is no data: {result.reason}")
    limits, engine, gpu = result.probe.limits, result.engine, result.gpu
    return (
        _kv_capacity(limits, engine)
        or _saturated_compute(engine, gpu)
        or _scheduler(limits, engine)
        or _busier_pipe(engine, gpu)
    )


def _kv_capacity(limits: Limits, engine: EngineDeltas) -> Diagnosis | None:
    full = (engine.kv_usage_peak_fraction or 0.0) >= KV_FULL_FRACTION
    if not engine.preemptions and not (full and _queued(engine)):
        return None
    told = [f"{engine.preemptions} preemptions"] if engine.preemptions else []
    if engine.kv_usage_peak_fraction is not None:
        told.append(f"KV cache {engine.kv_usage_peak_fraction:.0%} full at its peak")
    told += _queue(limits, engine)
    return Diagnosis(Bottleneck.KV_CAPACITY, _join(told))


def _saturated_compute(engine: EngineDeltas, gpu: GPUActivity | None) -> Diagnosis | None:
    if gpu is None or (gpu.tensor_active_percent or 0.0) < COMPUTE_SATURATED_PERCENT:
        return None
    return Diagnosis(Bottleneck.COMPUTE, _join(_pipes(gpu) + _batch(engine)))


def _scheduler(limits: Limits, engine: EngineDeltas) -> Diagnosis | None:
    """A limit that is filled while requests wait."""
    if not _queued(engine):
        return None
    held = []
    cap, running = limits.max_num_seqs * (engine.engines or 1), engine.running_mean or 0.0
    # A cap that all requests fit under is not what they wait for.
    if running >= AT_LIMIT_SHARE * cap and running + (engine.waiting_mean or 0.0) > cap:
        held.append(f"{running:.1f} of {cap} sequences run (max_num_seqs)")
    budget = limits.max_num_batched_tokens
    if engine.tokens_per_step is not None and engine.tokens_per_step >= AT_LIMIT_SHARE * budget:
        held.append(
            f"steps carry {engine.tokens_per_step:.0f} of {budget} tokens (max_num_batched_tokens)"
        )
    if not held:
        return None
    return Diagnosis(Bottleneck.SCHEDULER, _join([_waiting(engine), *held]))


def _busier_pipe(engine: EngineDeltas, gpu: GPUActivity | None) -> Diagnosis:
    if gpu is None:
        return Diagnosis(
            Bottleneck.UNKNOWN,
            _join(["missing: GPU counters (NVML with GPM, or a DCGM exporter)", *_batch(engine)]),
        )
    told = _join(_pipes(gpu) + _batch(engine))
    tensor, memory = gpu.tensor_active_percent, gpu.dram_active_percent
    if tensor is None or memory is None:
        return _one_sided(gpu, told)
    if max(tensor, memory) < BUSY_PERCENT:
        return Diagnosis(Bottleneck.UNKNOWN, f"the GPU waits for work or for its host: {told}")
    if tensor >= DOMINANCE * memory:
        return Diagnosis(Bottleneck.COMPUTE, told)
    if memory >= DOMINANCE * tensor:
        return Diagnosis(Bottleneck.MEMORY_BANDWIDTH, told)
    return Diagnosis(
        Bottleneck.UNKNOWN, f"memory and tensor pipe in balance, neither is the limit: {told}"
    )


def _one_sided(gpu: GPUActivity, told: str) -> Diagnosis:
    """What can be said where the profiling counters are absent or incomplete."""
    memory, time_share = gpu.dram_active_percent, gpu.memory_utilization_percent
    if memory is not None and memory >= DRAM_ALONE_PERCENT:
        return Diagnosis(Bottleneck.MEMORY_BANDWIDTH, told)
    if memory is None and time_share is not None and time_share >= MEMORY_TIME_PERCENT:
        return Diagnosis(
            Bottleneck.MEMORY_BANDWIDTH, f"{told}; a share of time, not of bandwidth: a weak sign"
        )
    absent = [
        name
        for name, value in (
            ("memory (DRAM)", memory),
            ("tensor pipe", gpu.tensor_active_percent),
        )
        if value is None
    ]
    return Diagnosis(
        Bottleneck.UNKNOWN,
        f"missing: activity of {' and '.join(absent)} (GPM needs Hopper or later, a DCGM exporter "
        f"its DCGM_FI_PROF fields); {told}",
    )


def _queued(engine: EngineDeltas) -> bool:
    return (engine.waiting_mean or 0.0) >= QUEUE_LEAST


def _queue(limits: Limits, engine: EngineDeltas) -> list[str]:
    told = []
    if engine.running_max is not None:
        cap = limits.max_num_seqs * (engine.engines or 1)
        told.append(f"at most {engine.running_max} of {cap} sequences ran")
    if _queued(engine):
        told.append(_waiting(engine))
    return told


def _waiting(engine: EngineDeltas) -> str:
    text = f"{engine.waiting_mean or 0:.1f} requests wait on average"
    if engine.queue_seconds_mean is not None:
        text += f" ({engine.queue_seconds_mean * 1e3:.0f} ms of queue a request)"
    return text


def _pipes(gpu: GPUActivity) -> list[str]:
    activity = [
        f"{name} {value:.0f} %"
        for name, value in (
            ("memory", gpu.dram_active_percent),
            ("tensor", gpu.tensor_active_percent),
            ("SM", gpu.sm_active_percent),
            ("engine", gpu.engine_active_percent if gpu.sm_active_percent is None else None),
        )
        if value is not None
    ]
    told = [f"{', '.join(activity)} active ({gpu.source})"] if activity else []
    if gpu.dram_active_percent is None and gpu.memory_utilization_percent is not None:
        told.append(f"memory in use {gpu.memory_utilization_percent:.0f} % of the time (NVML)")
    if gpu.sm_active_percent is not None and gpu.sm_active_percent < INEFFECTIVE_SM_PERCENT:
        told.append("most SMs idle")
    if gpu.throttled:
        told.append(f"clocks held down: {gpu.throttled}")
    return told


def _batch(engine: EngineDeltas) -> list[str]:
    if engine.tokens_per_step is None:
        return ["missing: the engine's metrics"] if engine.running_mean is None else []
    return [f"{engine.tokens_per_step:.0f} tokens a step"]


def _join(parts: list[str]) -> str:
    return "; ".join(parts)
