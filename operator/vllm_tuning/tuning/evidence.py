"""How much a run of correlated requests proves.

Requests that share a queue are not independent draws: near the knee 1,000 of them are worth 11-38.
Two bounds are drawn from them. That of the *share* within a limit takes blocks of time that are
longer than the correlation, and never less variance than ``DESIGN_EFFECT_FLOOR`` times the binomial
one, because a handful of quiet blocks underestimates it. That of the *percentile* takes whole
windows, which differ by more than their own requests show (see ``percentile_upper``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

DESIGN_EFFECT_FLOOR = 4.0
"""Least variance inflation assumed. Requests in a window share a queue even when all of them meet
the SLO.
"""

BLOCKS = (8, 40)
"""Least and most blocks that a run is cut into; fewer than the least cannot estimate a variance."""

QUARTERS = 4
"""Parts of a window whose percentiles are compared; each is longer than the correlation."""

BETWEEN_WINDOWS = 3.0
"""Variance of a window's percentile over what the differences of its quarters let expect.

Windows share what lasts longer than a quarter: the host's moods, a queue that has built up. On the
populations of ``benchmarks/verdicts`` the ratio is 2.3 to 5 for the SLO that binds.
"""

STEADIEST = 0.03
"""Least standard deviation of a window's percentile (share of it), however calm a run looks: the
same H200 point in three windows had 0.033 at p95 TPOT.
"""

SKEW = 3.0
"""How much a margin grows with its own size: margin x (1 + SKEW x error). Near saturation windows
are skewed: a queue that sometimes breaks looks calm in most of them.
"""

LARGEST_MARGIN = 50.0
"""Beyond any bound, and still a number (a logarithm)."""

UNBOUNDED = 50.0
"""A percentile is taken to be at most so many times the SLO's bound: beyond, and for requests that
failed, its size says nothing.
"""

MIXTURE = 8.0
"""Exponent of the mean of several probes' percentiles. Misses come from the worse ones, so their
common percentile is above the middle of their own.
"""


@dataclass(frozen=True, slots=True)
class Interval:
    """One-sided bounds of a share, each at the same level."""

    lower: float
    upper: float
    effective_trials: float


def design_effect(
    at_seconds: NDArray[np.float64],
    hits: NDArray[np.float64],
    trials: NDArray[np.float64],
    *,
    block_seconds: float,
) -> float:
    """Variance of the block sums over the binomial variance, at least ``DESIGN_EFFECT_FLOOR``.

    ``block_seconds`` is the correlation time (the E2E latency is a good guess); it is stretched or
    shrunk to give a number of blocks in ``BLOCKS``.
    """
    total, hit = float(trials.sum()), float(hits.sum())
    share = hit / total if total else 0.0
    if total < 1 or share in {0.0, 1.0} or len(at_seconds) < BLOCKS[0]:
        return DESIGN_EFFECT_FLOOR
    start, span = float(at_seconds.min()), float(np.ptp(at_seconds)) or 1.0
    count = int(np.clip(span / max(block_seconds, 1e-9), *BLOCKS))
    block = np.minimum(((at_seconds - start) / span * count).astype(np.int64), count - 1)
    hits_per = np.bincount(block, weights=hits, minlength=count)
    trials_per = np.bincount(block, weights=trials, minlength=count)
    residual = hits_per - share * trials_per
    variance = float((residual**2).sum()) * count / (count - 1)
    return max(DESIGN_EFFECT_FLOOR, variance / (total * share * (1.0 - share)))


def wilson(hits: float, trials: float, *, alpha: float, effect: float = 1.0) -> Interval:
    """One-sided Wilson bounds at level ``alpha``, with ``trials`` shrunk by the design effect."""
    effective = trials / effect
    if effective <= 0:
        return Interval(0.0, 1.0, 0.0)
    z = NormalDist().inv_cdf(1.0 - alpha)
    share = hits / trials
    centre = share + z * z / (2 * effective)
    spread = z * float(np.sqrt(share * (1 - share) / effective + z * z / (4 * effective**2)))
    scale = 1.0 + z * z / effective
    return Interval(
        max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale), effective
    )


def quarter_percentiles(
    at_seconds: NDArray[np.float64],
    values: NDArray[np.float64],
    spans: Sequence[tuple[float, float]],
    *,
    percentile: float,
) -> tuple[float, ...]:
    """Percentile of ``values`` in each quarter of each span, in order; empty if one has no values.

    ``at_seconds`` are the values' times, ``spans`` the starts and ends of whole windows.
    """
    found: list[float] = []
    for start, end in spans:
        edges = np.linspace(start, end, QUARTERS + 1)
        for low, high in pairwise(edges):
            inside = values[(at_seconds >= low) & (at_seconds < high)]
            if not len(inside):
                return ()
            found.append(float(np.percentile(inside, percentile, method="inverted_cdf")))
    return tuple(found)


def percentile_upper(
    observed: Sequence[float], quarters: Sequence[float], *, alpha: float
) -> float | None:
    """Upper confidence bound of a percentile at level ``alpha``; ``None`` from less than a window.

    ``observed`` holds the percentile of each probe over all its windows, ``quarters`` those of the
    quarters of all windows. Logarithms of percentiles are taken to be nearly normal. The variance
    of a window's is pooled from two sources: what its quarters let expect, times
    ``BETWEEN_WINDOWS``, and how the few windows differ (batch means with a prior, for batches too
    few to do without).
    """
    from scipy.special import stdtrit  # 16 MB, which an operator seldom needs

    windows = len(quarters) // QUARTERS
    if windows == 0 or not observed:
        return None
    logs = np.log(np.maximum(quarters[: windows * QUARTERS], 1e-9)).reshape(windows, QUARTERS)
    within = float(logs.var(axis=1, ddof=1).mean()) / QUARTERS
    between = float(logs.mean(axis=1).var()) * windows
    inner, outer = windows * (QUARTERS - 1), windows - 1
    variance = (inner * BETWEEN_WINDOWS * within + between) / (inner + outer)
    error = sqrt(max(variance, STEADIEST**2) / windows)
    scale = max(observed)
    centre = scale * float(np.mean((np.asarray(observed) / scale) ** MIXTURE) ** (1 / MIXTURE))
    margin = float(stdtrit(inner + outer, 1.0 - alpha)) * error
    return centre * exp(min(margin * (1.0 + SKEW * error), LARGEST_MARGIN))


def growth(series: NDArray[np.float64]) -> tuple[float, float]:
    """Growth from the first to the second half, as a share of the mean and in standard errors.

    The standard error comes from eighths of the series, which are longer than its correlation in
    any run that is long enough to be judged. Returns ``(0, 0)`` for a series too short to say.
    """
    if len(series) < 2 * BLOCKS[0]:
        return 0.0, 0.0
    eighths = np.array([part.mean() for part in np.array_split(series, BLOCKS[0])])
    half = BLOCKS[0] // 2
    before, after = eighths[:half], eighths[half:]
    difference = float(after.mean() - before.mean())
    error = float(np.sqrt((before.var(ddof=1) + after.var(ddof=1)) / half))
    mean = float(series.mean())
    if mean <= 0:
        return 0.0, 0.0
    return difference / mean, difference / max(error, 0.02 * mean)
