"""When requests are sent: exact schedules, fixed by a seed before the first one leaves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

BLOCK = 1024
"""Gaps drawn at a time; a constant, so that a schedule does not depend on how far it is read."""


def arrival_times(
    rate_per_second: float, *, burstiness: float = 1.0, seed: int, ramp_seconds: float = 0.0
) -> Iterator[float]:
    """Yield arrival times in seconds, without end, at ``rate_per_second`` after the ramp.

    Gaps are gamma distributed with shape ``burstiness`` (1 = Poisson, below 1 = burstier) and mean
    1 / rate: the convention of ``vllm bench serve``. During the ramp the rate rises linearly from
    zero; the same unit-rate arrivals are used, on a stretched clock.
    """
    if rate_per_second <= 0 or burstiness <= 0 or ramp_seconds < 0:
        msg = "rate and burstiness must be positive, the ramp must not be negative"
        raise ValueError(msg)
    rng = np.random.default_rng([seed, 0xA221])
    # Expected arrivals within the ramp: the area under the rising rate.
    ramp_arrivals = rate_per_second * ramp_seconds / 2
    unit_time = 0.0
    while True:
        for gap in rng.gamma(burstiness, 1 / burstiness, BLOCK).tolist():
            unit_time += gap
            if unit_time < ramp_arrivals:
                yield math.sqrt(2 * ramp_seconds * unit_time / rate_per_second)
            else:
                yield unit_time / rate_per_second + ramp_seconds / 2


def trace_times(recorded_seconds: Sequence[float], *, rate_per_second: float) -> Iterator[float]:
    """Yield a trace's own arrivals, its clock scaled so that their mean rate is the one asked.

    Its bursts keep their shape. A trace that is shorter than the probe begins anew, one mean gap
    after its last arrival.
    """
    if len(recorded_seconds) < 2 or rate_per_second <= 0:
        msg = "a trace needs two arrivals at least, and a positive rate"
        raise ValueError(msg)
    first, last = recorded_seconds[0], recorded_seconds[-1]
    if last <= first:
        msg = "a trace whose arrivals all fall on one moment has no rate that could be scaled"
        raise ValueError(msg)
    mean_gap = 1 / rate_per_second
    scale = mean_gap * (len(recorded_seconds) - 1) / (last - first)
    offset = 0.0
    while True:
        for at in recorded_seconds:
            yield offset + (at - first) * scale
        offset += (last - first) * scale + mean_gap
