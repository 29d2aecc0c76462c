"""What the recommendation is worth: the gain over the current limits, and its range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from vllm_tuning.tuning.model import Objective, ProbeResult

REPEATS = 2
"""Measurements of each side from which their spread tells anything."""


@dataclass(frozen=True, slots=True)
class Gain:
    """In percent of the baseline; ``low`` and ``high`` are ``None`` where no spread is known."""

    percent: float
    low: float | None = None
    high: float | None = None

    @property
    def range(self) -> tuple[float, float] | None:
        """Least and greatest gain that the measurements allow."""
        if self.low is None or self.high is None:
            return None
        return round(self.low, 1), round(self.high, 1)


@dataclass(frozen=True, slots=True)
class Carried:
    """The load that limits carry, as the race saw it: requests per second."""

    estimate: float
    within: float | None = None
    """The highest load that stands within the SLA."""
    beyond: float | None = None
    """The lowest load measured beyond that; ``None`` = not looked for."""

    def at_least(self, load: float) -> Carried:
        """Take in that ``load`` was held: what was seen beyond below it was chance."""
        beyond = self.beyond if self.beyond and self.beyond > load else None
        return Carried(max(self.estimate, load), max(self.within or load, load), beyond)

    def at_most(self, load: float) -> Carried:
        """Take in that ``load`` was not held: what was seen within beyond it was chance."""
        within = self.within and min(self.within, load)
        return Carried(min(self.estimate, load), within, min(self.beyond or load, load))


def gain_in_load(chosen: Carried, baseline: Carried, *, baseline_fails: bool) -> Gain | None:
    """Compare two loads that were bracketed on one server by one standard.

    ``baseline_fails``: the current limits failed by the rule of the confirmation where the chosen
    ones passed, so the gain is no loss. ``None`` = the baseline carries nothing.
    """
    if not baseline.estimate or not chosen.estimate:
        return None
    percent = _over(chosen.estimate, baseline.estimate)
    least, most = chosen.within or chosen.estimate, chosen.beyond or chosen.estimate
    # The current limits were not followed beyond what the chosen ones carry.
    low = _over(least, baseline.beyond or max(most, baseline.estimate))
    high = _over(most, baseline.within) if baseline.within else None
    return Gain(percent, max(low, 0.0) if baseline_fails else low, high)


def gain_at_load(
    objective: Objective,
    chosen: Sequence[ProbeResult],
    baseline: Sequence[ProbeResult],
    confirmed: ProbeResult,
) -> Gain | None:
    """Compare at one given load: tokens per second, or latency saved.

    ``chosen`` and ``baseline`` are the results of the race, ``confirmed`` that of the fresh start.
    """
    value = _throughput if objective is Objective.MAX_THROUGHPUT else _speed
    after = value(confirmed)
    ours = [found for result in (*chosen, confirmed) if (found := value(result))]
    theirs = [found for result in baseline if (found := value(result))]
    if not after or not theirs:
        return None
    change = _over if objective is Objective.MAX_THROUGHPUT else _saved
    percent = change(after, theirs[-1])
    if min(len(ours), len(theirs)) < REPEATS:
        return Gain(percent)
    return Gain(percent, change(min(ours), max(theirs)), change(max(ours), min(theirs)))


def replicas_for(rate_per_second: float, capacity_per_second: float) -> int:
    """Count the replicas that a rate needs if each carries ``capacity_per_second`` within the SLA.

    As if a perfect balancer spread the load: arrivals that clump on one replica need more.
    """
    return max(1, ceil(rate_per_second / capacity_per_second - 1e-9))


def _over(after: float, before: float) -> float:
    return 100.0 * (after / before - 1.0)


def _saved(after: float, before: float) -> float:
    """Latency saved, of two speeds (the inverse of latencies)."""
    return 100.0 * (1.0 - before / after)


_Value = Callable[[ProbeResult], float | None]


def _throughput(result: ProbeResult) -> float | None:
    return result.output_tokens_per_second


def _speed(result: ProbeResult) -> float | None:
    return 1.0 / result.e2e.mean if result.e2e.mean else None
