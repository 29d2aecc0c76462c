"""Percentiles that do not say more than their sample does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from vllm_tuning.tuning.model import Percentiles

P99_MINIMUM_COUNT = 1000
"""Below it the largest sample lies under the true p99 too often (37 % of the time with 100) to be
worth a number.
"""


def summarize(values: NDArray[np.floating]) -> Percentiles:
    """Summarize a column of milliseconds, NaN left out.

    Percentiles are nearest-rank from above: the reported p95 is a latency that was seen, and at
    least 95 % of the sample are at or below it, so it agrees with the attainment that verdicts
    use.
    """
    present = values[~np.isnan(values)]
    if not len(present):
        return Percentiles(count=0)
    p50, p90, p95, p99 = np.percentile(present, (50, 90, 95, 99), method="inverted_cdf")
    return Percentiles(
        count=len(present),
        mean=float(present.mean(dtype=np.float64)),
        p50=float(p50),
        p90=float(p90),
        p95=float(p95),
        p99=float(p99) if len(present) >= P99_MINIMUM_COUNT else None,
        maximum=float(present.max()),
    )
