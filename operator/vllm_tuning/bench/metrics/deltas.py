"""What the engine says about a span of a probe, from its readings and the hook's records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vllm_tuning.bench.metrics.scraper import Reading
from vllm_tuning.engine.metrics import EnginePage, delta
from vllm_tuning.tuning.model import EngineDeltas


def engine_deltas(
    readings: Sequence[Reading],
    start: float,
    end: float,
    *,
    hook: Sequence[dict[str, Any]] | None = None,
) -> EngineDeltas:
    """Sum up the readings of ``start <= at <= end``; without two of them most is ``None``."""
    inside = [reading for reading in readings if start <= reading.at <= end]
    hooked = {
        "hook_running_max": _hook_maximum(hook, "running_max"),
        "hook_scheduled_tokens_max": _hook_maximum(hook, "scheduled_tokens_max"),
    }
    if len(inside) < 2:
        return EngineDeltas(**hooked)
    first, last = inside[0].page, inside[-1].page

    def ratio(part: str, whole: str) -> float | None:
        parts, count = delta(first, last, part), delta(first, last, whole)
        return parts / count if count and parts is not None else None

    return EngineDeltas(
        preemptions=_whole(delta(first, last, "preemptions")),
        running_mean=time_weighted_mean(inside, lambda page: page.running),
        running_max=_whole(_maximum(inside, lambda page: page.running)),
        waiting_mean=time_weighted_mean(inside, lambda page: page.waiting),
        waiting_max=_whole(_maximum(inside, lambda page: page.waiting)),
        kv_usage_peak_fraction=_maximum(inside, lambda page: page.kv_usage),
        steps=_whole(delta(first, last, "steps")),
        tokens_per_step=ratio("step_tokens", "steps"),
        prefix_hit_fraction=ratio("prefix_hits", "prefix_queries"),
        engines=last.engines or None,
        queue_seconds_mean=ratio("queue_seconds", "finished"),
        prefill_seconds_mean=ratio("prefill_seconds", "finished"),
        decode_seconds_mean=ratio("decode_seconds", "finished"),
        **hooked,
    )


def time_weighted_mean(
    readings: Sequence[Reading], value: Callable[[EnginePage], float | None]
) -> float | None:
    """Average a gauge over time, each reading for the time it stands for (trapezoids).

    Readings come late when the engine is busy, so a mean over readings would be biased.
    """
    points = [(at.at, known) for at in readings if (known := value(at.page)) is not None]
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return points[0][1] if points else None
    times, values = zip(*points, strict=True)
    return float(np.trapezoid(values, times) / (times[-1] - times[0]))


def _maximum(
    readings: Sequence[Reading], value: Callable[[EnginePage], float | None]
) -> float | None:
    return max(
        (known for reading in readings if (known := value(reading.page)) is not None),
        default=None,
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _hook_maximum(records: Sequence[dict[str, Any]] | None, name: str) -> int | None:
    """Largest value of the present window over ranks, as the hook recorded it step by step."""
    found = []
    for record in records or ():
        window = (record.get("windows") or {}).get(str(record.get("window")), record)
        if isinstance(window.get(name), int):
            found.append(window[name])
    return max(found, default=None)
