"""Where a measured load point stands against the SLA, for ordering; only a verdict decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import exp, log, sqrt

from vllm_tuning.tuning.model import ProbeResult, SLOResult, Verdict
from vllm_tuning.tuning.verdict import target

PRESSURES = (0.02, 50.0)
"""Pressure is clipped here: beyond, its size says nothing about the distance to the boundary."""

BRACKET_MARGIN = 0.3
"""A probe inside a bracket keeps this share (of its logarithm) from either end, so that it always
narrows it.
"""


class Standing(Enum):
    """One load point against the SLA."""

    WITHIN = "within"
    """Every SLO's share of requests is at its target, or above."""
    NEAR = "near"
    """Below a target by no more than chance explains, or still filling its queue."""
    OVER = "over"
    """Verdict FAIL."""
    UNKNOWN = "unknown"
    """INVALID, or an SLO's metric is missing."""


def standing(result: ProbeResult) -> Standing:
    """Place a result."""
    if result.verdict is Verdict.INVALID:
        return Standing.UNKNOWN
    if result.verdict is Verdict.FAIL:
        return Standing.OVER
    if result.verdict is Verdict.PASS:
        return Standing.WITHIN
    if any(slo.attainment is None for slo in result.slos):
        return Standing.UNKNOWN
    within = _met(result) and result.reason != "QueueGrowing"
    return Standing.WITHIN if within else Standing.NEAR


def grows(result: ProbeResult) -> bool:
    """Whether a load point is within the SLA but for its requests in flight, which grew."""
    grew = result.verdict is Verdict.UNDECIDED and result.reason == "QueueGrowing"
    return grew and _met(result)


def _met(result: ProbeResult) -> bool:
    return all((slo.attainment or 0.0) >= target(slo.slo) for slo in result.slos)


def pressure_of(result: SLOResult) -> float | None:
    """How much of an SLO is used up: 1 = exactly at it. ``None`` = not measured.

    The observed percentile over its bound where there is one, because it still moves when all (or
    none) of the requests are within; else the share of misses over the share allowed.
    """
    bound = result.slo.max_milliseconds
    if result.observed_milliseconds is not None and bound:
        value = result.observed_milliseconds / bound
    elif result.attainment is not None:
        value = (1.0 - result.attainment) / max(1.0 - target(result.slo), 1e-3)
    else:
        return None
    return min(max(value, PRESSURES[0]), PRESSURES[1])


def pressure(result: ProbeResult) -> float:
    """The largest pressure of the result's SLOs; 1 for a set without a measured one."""
    return max(
        (value for slo in result.slos if (value := pressure_of(slo)) is not None), default=1.0
    )


def binding(result: ProbeResult) -> SLOResult | None:
    """The SLO that is nearest to its bound, or furthest beyond it."""
    measured = [slo for slo in result.slos if pressure_of(slo) is not None]
    return max(measured, key=lambda slo: pressure_of(slo) or 0.0, default=None)


HELD = 1.0
"""First part of the score of a load within the SLA."""


def score(result: ProbeResult) -> tuple[float, float]:
    """Rank results of one load, larger is better: standing first, then what is left of the SLA.

    Beyond the SLA only the standing counts: by how much it was missed depends on the SLO that
    broke (a queue grows for ever, a step does not) and on the length of the window.
    """
    where = standing(result)
    if where is Standing.WITHIN:
        return HELD, 1.0 - pressure(result)
    return (HELD / 2, 0.0) if where is Standing.NEAR else (0.0, 0.0)


@dataclass(slots=True)
class Frontier:
    """Where one configuration's load leaves the SLA, from its load points so far."""

    points: list[tuple[float, ProbeResult]] = field(default_factory=list)
    """(load, result), in the order of measuring. Load is requests per second."""

    def add(self, load: float, result: ProbeResult) -> None:
        """Take a load point; an INVALID one is no data."""
        if standing(result) is not Standing.UNKNOWN:
            self.points.append((load, result))

    @property
    def threshold(self) -> float | None:
        """The boundary that contradicts the fewest points; 0 = all beyond, ``None`` = no points.

        Attainment falls as the load rises, but near the knee windows differ by tens of points, so
        single points may contradict each other. A tie goes to the lowest boundary: hope costs a
        confirmation, doubt a few percent.
        """
        if not self.points:
            return None
        loads = [0.0, *sorted({load for load, _ in self.points})]
        return min(loads, key=self._contradictions)

    def _contradictions(self, threshold: float) -> float:
        wrong = 0.0
        for load, result in self.points:
            weight = 0.5 if standing(result) is Standing.NEAR else 1.0
            if (standing(result) is Standing.WITHIN) != (load <= threshold):
                wrong += weight
        return wrong

    @property
    def low(self) -> float | None:
        """The highest load that stands within the SLA; ``None`` if there is none."""
        return self.threshold or None

    @property
    def high(self) -> float | None:
        """The lowest load measured beyond ``low``; ``None`` if there is none."""
        floor = self.threshold
        if floor is None:
            return None
        return min((load for load, _ in self.points if load > floor), default=None)

    def at(self, load: float) -> list[ProbeResult]:
        """The results at exactly this load."""
        return [result for point, result in self.points if point == load]

    @property
    def width(self) -> float | None:
        """``high / low``, or ``None`` while one is missing."""
        return self.high / self.low if self.high and self.low else None

    def estimate(self) -> float | None:
        """The load at which the pressure reaches 1, inside the bracket; ``low`` while it is open.

        Overload makes the pressure of ``high`` as large as the window is long, so the estimate
        stays in the middle of the bracket's inner nine tenths.
        """
        low, high = self.low, self.high
        if low is None or high is None:
            return low
        inside, beyond = _median_pressure(self.at(low)), _median_pressure(self.at(high))
        share = 0.5
        if inside < 1.0 < beyond:
            share = -log(inside) / (log(beyond) - log(inside))
        return low * exp(min(max(share, 0.05), 0.95) * log(high / low))

    def next_load(self) -> float:
        """The load that narrows the bracket best; needs at least one point."""
        low, high = self.low, self.high
        if low is None and high is None:
            raise ValueError("no load was measured yet")
        if high is None and low is not None:
            room = 1.0 / _median_pressure(self.at(low))
            return low * min(max(sqrt(room), 1.15), 2.0)
        if low is None and high is not None:
            return high * min(max(self._served_share(high), 0.35), 0.85)
        estimate = self.estimate()
        if low is None or high is None or estimate is None:
            raise AssertionError("a closed bracket has an estimate")
        margin = exp(BRACKET_MARGIN * log(high / low))
        return min(max(estimate, low * margin), high / margin)

    def _served_share(self, load: float) -> float:
        """How far down to look: an overloaded engine's throughput is the most that it serves."""
        served = [result.request_rate for result in self.at(load) if result.request_rate]
        if served and max(served) < 0.8 * load:
            return 0.9 * max(served) / load
        return max(1.0 / sqrt(_median_pressure(self.at(load))), 0.5)


def _median_pressure(results: Sequence[ProbeResult]) -> float:
    values = sorted(pressure(result) for result in results)
    return values[len(values) // 2] if values else 1.0
