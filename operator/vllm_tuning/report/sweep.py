"""The curves of a run (mission rows 1 and 2): pure, shared by every rendering."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from vllm_tuning.tuning.knee import by_clients, is_whole, knee
from vllm_tuning.tuning.model import Load, ProbeResult
from vllm_tuning.tuning.text import load_text

LEAST_SIZES = 3
"""Fewer sizes are two contestants, or a calibration: no curve, and no knee."""
LEAST_BUDGETS = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One measured setting: its latest whole point at one load."""

    value: int
    """Of the limit that varies."""
    result: ProbeResult
    knee: str | None = None
    """Why this row is the knee, if it is."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Settings that differ in one limit only, in rising order of that limit."""

    varied: str
    fixed: str
    load: Load | None
    """``None``: a closed loop of as many clients as sequences."""
    rows: tuple[Row, ...]

    @property
    def offered(self) -> str:
        """The load in words."""
        return load_text(self.load) if self.load else "a client for each"

    @property
    def knee(self) -> Row | None:
        """The last row before more stops paying; ``None`` = not seen."""
        return next((row for row in self.rows if row.knee), None)


def curves(probes: Iterable[ProbeResult]) -> tuple[Curve, ...]:
    """Group probes into curves over ``max_num_seqs`` and over ``max_num_batched_tokens``.

    A probe that failed early says who lost, not how much: its window was cut, its queue still grew.
    """
    whole = [result for result in probes if is_whole(result)]
    return (
        *_sweeps(whole),
        *_curves(whole, "max_num_seqs", "max_num_batched_tokens"),
        *_curves(whole, "max_num_batched_tokens", "max_num_seqs"),
    )


def _sweeps(probes: list[ProbeResult]) -> list[Curve]:
    return [
        Curve("max_num_seqs", f"max_num_batched_tokens={tokens}", None, _marked(points))
        for tokens, points in by_clients(probes).items()
        if len(points) >= LEAST_SIZES
    ]


def _curves(probes: list[ProbeResult], varied: str, fixed: str) -> list[Curve]:
    sizes = varied == "max_num_seqs"
    groups: dict[tuple[int, Load], dict[int, ProbeResult]] = defaultdict(dict)
    for probe in probes:
        limits = probe.probe.limits
        # A later window of the same setting replaces an earlier one: it is as good and more recent.
        groups[getattr(limits, fixed), probe.probe.load][getattr(limits, varied)] = probe
    found = []
    for (value, load), by_value in groups.items():
        if len(by_value) >= (LEAST_SIZES if sizes else LEAST_BUDGETS):
            points = sorted(by_value.items())
            rows = _marked(points) if sizes else _plain(points)
            found.append(Curve(varied, f"{fixed}={value}", load, rows))
    return found


def _plain(points: list[tuple[int, ProbeResult]]) -> tuple[Row, ...]:
    return tuple(Row(value, result) for value, result in points)


def _marked(points: list[tuple[int, ProbeResult]]) -> tuple[Row, ...]:
    at, why = knee(points) or (None, None)
    return tuple(
        Row(value, result, why if i == at else None) for i, (value, result) in enumerate(points)
    )
