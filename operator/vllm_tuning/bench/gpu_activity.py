"""The launcher's GPU samples of a span of time, as one value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from vllm_tuning.bench.gpu_processes import Processes, others_percent
from vllm_tuning.tuning.model import GPUActivity

THROTTLE_REASONS = {
    0x004: "SwPowerCap",
    0x008: "HwSlowdown",
    0x020: "SwThermalSlowdown",
    0x040: "HwThermalSlowdown",
    0x080: "HwPowerBrakeSlowdown",
}
"""Bits of ``nvmlDeviceGetCurrentClocksEventReasons`` that mean lower clocks than asked for."""

_THROTTLED_SHARE = 0.05
"""Of the samples: a reason seen less often is not told."""


def summarize_gpu(
    samples: Sequence[Mapping[str, Any]],
    begin: float,
    end: float,
    *,
    engine: Processes | None = None,
) -> GPUActivity | None:
    """Means over the samples and GPUs between two unix times; ``None`` without samples.

    A GPM sample covers the second before it, so the first second is left out. ``engine``: its
    processes, where they are known.
    """
    chosen = [sample for sample in samples if begin + 1.0 <= sample["time"] <= end]
    if not chosen:
        return None
    memory = _mean(chosen, "memory_used_bytes")
    dram = _mean(chosen, "dram_active_percent")
    return GPUActivity(
        source="NVML" if dram is None else "GPM",
        memory_used_bytes=None if memory is None else round(memory),
        dram_active_percent=dram,
        sm_active_percent=_mean(chosen, "sm_active_percent"),
        tensor_active_percent=_mean(chosen, "tensor_active_percent"),
        memory_utilization_percent=_mean(chosen, "memory_utilization_percent"),
        sm_clock_megahertz=_mean(chosen, "sm_clock_megahertz"),
        power_watts=_mean(chosen, "power_watts"),
        throttled=_throttled(chosen),
        others_percent=others_percent(chosen, engine or {}),
    )


def _mean(samples: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [float(sample[name]) for sample in samples if name in sample]
    return fmean(values) if values else None


def _throttled(samples: Sequence[Mapping[str, Any]]) -> str | None:
    """E.g. ``SwPowerCap 93 %``: the share of samples in which each reason held."""
    masks = [int(sample["throttle_reasons"]) for sample in samples if "throttle_reasons" in sample]
    held = Counter(name for mask in masks for bit, name in THROTTLE_REASONS.items() if mask & bit)
    told = [
        f"{name} {count / len(masks):.0%}".replace("%", " %")
        for name, count in held.most_common()
        if count >= _THROTTLED_SHARE * len(masks)
    ]
    return ", ".join(told) or None
