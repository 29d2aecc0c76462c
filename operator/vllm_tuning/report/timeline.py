"""The run on a line of time: where the seconds went."""

from __future__ import annotations

import math
from dataclasses import dataclass

from vllm_tuning.report.model import Report, Span

_STEPS = (1, 2, 5, 10)
MOST_TICKS = 8
LAST_TICK = 92.0
"""Percent of the line beyond which no number has room."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One stretch of the line, in percent of its length."""

    left: float
    width: float
    span: Span


@dataclass(frozen=True, slots=True)
class Timeline:
    """Server starts above, probes below."""

    starts: tuple[Bar, ...]
    probes: tuple[Bar, ...]
    ticks: tuple[tuple[float, int], ...]
    """Place in percent, and the seconds that are written there."""


def timeline(report: Report) -> Timeline | None:
    """Lay the spans out; ``None`` = nothing has ended yet."""
    length = max((span.end_seconds for span in report.timeline), default=0.0)
    if length <= 0:
        return None
    bars = [
        Bar(
            100 * span.begin_seconds / length,
            100 * (span.end_seconds - span.begin_seconds) / length,
            span,
        )
        for span in report.timeline
    ]
    step = tick_step(length)
    return Timeline(
        starts=tuple(bar for bar in bars if bar.span.kind == "start"),
        probes=tuple(bar for bar in bars if bar.span.kind == "probe"),
        ticks=tuple(
            (100 * at / length, at) for at in range(0, math.floor(length * LAST_TICK / 100), step)
        ),
    )


def tick_step(length: float) -> int:
    """Seconds between ticks: 1, 2 or 5 times a power of ten, so that at most eight fit.

    >>> tick_step(6.0), tick_step(728.0)
    (1, 100)
    """
    least = max(length / MOST_TICKS, 1.0)
    power = int(10 ** math.floor(math.log10(least)))
    return next(step * power for step in _STEPS if step * power >= least)
