"""Ratios between tools, from interleaved rounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats


def ratio(mine: Sequence[float], theirs: Sequence[float], level: float = 0.90) -> dict[str, float]:
    """Return the geometric mean of paired ratios with its t interval (on logarithms)."""
    logs = np.log(np.asarray(mine) / np.asarray(theirs))
    centre = float(logs.mean())
    spread = 0.0
    if len(logs) > 1:
        error = float(logs.std(ddof=1)) / len(logs) ** 0.5
        spread = float(stats.t.ppf(0.5 + level / 2, len(logs) - 1)) * error
    return {
        "ratio": round(float(np.exp(centre)), 4),
        "lower": round(float(np.exp(centre - spread)), 4),
        "upper": round(float(np.exp(centre + spread)), 4),
        "rounds": len(logs),
    }
