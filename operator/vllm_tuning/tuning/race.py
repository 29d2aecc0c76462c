"""The race: which limits carry the most load within the SLA, by order and not by proof.

One incumbent, bracketed; every challenger meets it at the same load with the same arrivals. A
challenger is dropped only where it fails and the incumbent does not; what cannot be told apart
goes to a final in alternation.
"""

from __future__ import annotations

from collections.abc import Sequence

from vllm_tuning.tuning.client_bound import DESCENTS, ClientBound
from vllm_tuning.tuning.experiment import (
    INVALID_RETRIES,
    ClientBoundError,
    Experiment,
    Steps,
    rounded,
)
from vllm_tuning.tuning.model import Limits, OpenLoad, ProbeResult, Purpose
from vllm_tuning.tuning.pacing import search_window
from vllm_tuning.tuning.pairs import unlike_clocks
from vllm_tuning.tuning.standing import (
    HELD,
    Frontier,
    Standing,
    pressure,
    score,
    standing,
)
from vllm_tuning.tuning.text import describe

BRACKET_PROBES = 8
"""Most probes spent on one bracket."""

FRUGAL_RESOLUTION = 1.12
"""Width of a narrow enough bracket where each probe takes minutes."""

TIE = 1.03
"""Estimates closer than this are not told apart by single probes."""

PAIRED_LOSS = 0.98
"""Where a challenger uses up more than this share of what the incumbent does of the SLA, at the
same load and arrivals, it does not carry more.
"""

RIVAL = 1.15
"""Losers by less than this ratio, in load and in what they use up of the SLA, get a final: single
windows near the knee differ by as much.
"""

FINAL_SECONDS = 40.0
"""A final's probes take about so long, in whole windows of the race; ``FINAL_WINDOWS`` at most.
Slow requests have windows that are longer already.
"""

FINAL_WINDOWS = 3

FINAL_ROUNDS = 2
"""A final ends when one side has held its load so many times, with other arrivals each time; once
where each takes minutes.
"""

FINAL_TURNS = 6
"""Most turns of a final: each that nobody holds lowers the load."""

FINAL_STEP = 0.95

CHALLENGERS = 1
"""In the final: each costs as much as the incumbent."""

LEAST_LOAD_SHARE = 0.02
"""Loads below this share of the first one are given up: the limits carry nothing worth the name."""


class Race:
    """Configurations and how far each was seen to carry, at a common offered load."""

    def __init__(self, experiment: Experiment, *, resolution: float | None = None) -> None:
        self.experiment = experiment
        self.frontiers: dict[Limits, Frontier] = {}
        """Limits that only an idle cap tells apart have one in common."""
        fine = experiment.pace.resolution
        if experiment.frugal:
            fine = max(fine, FRUGAL_RESOLUTION)
        self.resolution = resolution or fine
        self.burstiness = experiment.problem.workload.burstiness
        self.incumbent: Limits | None = None
        self.client = ClientBound(experiment)
        self.trimmed_from: Limits | None = None
        """The incumbent before its idle cap was brought down."""
        self.lost: dict[Limits, str] = {}
        """Why each loser was dropped."""
        self.finalists: tuple[Limits, ...] = ()
        self.rivals: dict[Limits, float] = {}
        """What did not win outright, with the share of the SLA used up over the incumbent's."""

    # -- reading -------------------------------------------------------------------------------

    def frontier(self, limits: Limits) -> Frontier:
        """The load points of one configuration; empty at first."""
        return self.frontiers.setdefault(limits, Frontier())

    def estimate(self, limits: Limits) -> float:
        """The load that the configuration is believed to carry; 0 if none was seen."""
        return self.frontier(limits).estimate() or 0.0

    @property
    def results(self) -> list[ProbeResult]:
        """All load points."""
        return [result for frontier in self.frontiers.values() for _, result in frontier.points]

    def limiting(self, limits: Limits) -> ProbeResult | None:
        """The result just beyond the configuration's boundary: it tells what binds."""
        frontier = self.frontier(limits)
        return frontier.at(frontier.high)[-1] if frontier.high else None

    # -- measuring -----------------------------------------------------------------------------

    def measure(
        self,
        limits: Limits,
        load: float,
        why: str,
        *,
        purpose: Purpose = Purpose.SEARCH,
        repeat: int = 0,
        windows: int = 1,
    ) -> Steps[ProbeResult]:
        """Take one load point, lower than asked for where the client does not keep up."""
        descents = 0
        while True:
            offered = OpenLoad(rounded(self.client.measurable(load)), self.burstiness)
            try:
                result = yield from self.experiment.probe(
                    limits, offered, purpose, why=why, repeat=repeat, windows=windows
                )
            except ClientBoundError as error:
                self.client.learn(offered.rate_per_second, error.result)
                descents += 1
                if descents > DESCENTS:
                    raise
            else:
                self.frontier(limits).add(offered.rate_per_second, result)
                return result

    def bracket(
        self,
        limits: Limits,
        load: float,
        *,
        why: str,
        purpose: Purpose = Purpose.SEARCH,
        resolution: float | None = None,
        probes: int = BRACKET_PROBES,
    ) -> Steps[None]:
        """Find the load at which ``limits`` leave the SLA, beginning at ``load``."""
        frontier, fine = self.frontier(limits), resolution or self.resolution
        floor = load * LEAST_LOAD_SHARE
        for _ in range(probes):
            yield from self.measure(limits, load, why, purpose=purpose)
            if frontier.width is not None and frontier.width <= fine:
                return
            if not frontier.points or self.client.reached(frontier.low):
                return
            load = frontier.next_load()
            if load < floor:
                return

    def challenge(self, challenger: Limits, why: str) -> Steps[bool]:
        """Let ``challenger`` meet the incumbent; ``True`` if it takes its place.

        Beginning where the incumbent is within: failing there is a loss. Else where the incumbent
        is beyond: being within there is a win, which is then followed upwards.
        """
        incumbent = self.incumbent
        low = self.frontier(incumbent).low if incumbent else None
        if incumbent is None or low is None:
            raise AssertionError("a challenge needs an incumbent that carries something")
        result = yield from self.measure(challenger, low, f"{why}: does it hold {low:.4g}/s too?")
        if standing(result) is not Standing.WITHIN:
            self.lost[challenger] = f"at {low:.4g}/s: {result.message}"
            return False
        high = self.frontier(incumbent).high
        ours = min(pressure(other) for other in self.frontier(incumbent).at(low))
        used = pressure(result)
        if high is None or used > PAIRED_LOSS * ours:
            self.rivals[challenger] = used / ours
            self.lost[challenger] = (
                f"at {low:.4g}/s: {used:.0%} of the SLA used up, against {ours:.0%}"
            )
            return False
        result = yield from self.measure(
            challenger,
            high,
            f"{why}: does it hold {high:.4g}/s, where {describe(incumbent)} does not?",
        )
        if standing(result) is not Standing.WITHIN:
            self.rivals[challenger] = used / ours  # better where both hold: that calls for a final
            return False
        self.lost[incumbent] = f"at {high:.4g}/s, where {describe(challenger)} is within the SLA"
        self.incumbent = challenger
        yield from self.climb(challenger)
        return True

    def climb(self, limits: Limits) -> Steps[None]:
        """Follow a winner upwards until its bracket is narrow."""
        frontier = self.frontier(limits)
        if self.client.reached(frontier.low):
            return
        if frontier.width is None or frontier.width > self.resolution:
            yield from self.bracket(
                limits, frontier.next_load(), why="how far does the new best go?", probes=4
            )

    def final(self, challengers: Sequence[Limits]) -> Steps[None]:
        """Alternate the incumbent and what came close, A B A B, and let the best be incumbent.

        The race's windows are short, and the best of many short looks is an optimist. So here they
        are long, and the load falls until one of them holds it: overload tells how long a queue
        grew, not who carries more. Without challengers this brings the incumbent down to earth.
        A challenger that does no better loses.
        """
        incumbent = self.incumbent
        if incumbent is None:
            raise AssertionError("a final needs an incumbent")
        load = self.frontier(incumbent).low or self.estimate(incumbent)
        self.finalists = (incumbent, *challengers)
        scores: dict[Limits, list[tuple[float, float]]] = {limits: [] for limits in self.finalists}
        rounds = 1 if self.experiment.frugal else FINAL_ROUNDS
        spoiled = 0
        for turn in range(1, FINAL_TURNS + 1):
            pair: list[ProbeResult] = []
            for limits in scores:
                result = yield from self.measure(
                    limits,
                    load,
                    f"the final at {load:.4g}/s: long windows, in turn",
                    repeat=turn,
                    windows=self._final_windows(load),
                )
                pair.append(result)
            if spoiled < INVALID_RETRIES and (why := unlike_clocks(pair)) is not None:
                spoiled += 1
                self._forget(pair, why)
                continue
            for points, result in zip(scores.values(), pair, strict=True):
                points.append(score(result))
            nearest = max(points[-1][0] for points in scores.values())
            if nearest < HELD:
                load *= FINAL_STEP if nearest else FINAL_STEP**2
            elif max(_times_held(points) for points in scores.values()) >= rounds:
                break
        best = max(scores, key=lambda limits: _total(scores[limits]))  # of equals, the incumbent
        if best != incumbent:
            self.lost[incumbent] = f"in the final at {load:.4g}/s with {describe(best)}"
            self.incumbent = best

    def _forget(self, pair: Sequence[ProbeResult], why: str) -> None:
        """Take back a turn that is no data."""
        for result in pair:
            frontier = self.frontier(result.probe.limits)
            frontier.points = [point for point in frontier.points if point[1] is not result]
        self.experiment.notes.append(f"A turn of the final was no data and was repeated: {why}.")

    def _final_windows(self, load: float) -> int:
        offered = OpenLoad(load, self.burstiness)
        window = search_window(self.experiment.pace, offered, self.experiment.latency_seconds)
        return max(1, min(FINAL_WINDOWS, round(FINAL_SECONDS / window)))

    def was_in_final(self, limits: Limits) -> bool:
        """Whether the limits, or others that only an idle cap tells apart, saw long windows too."""
        return any(self.frontier(limits) is self.frontier(other) for other in self.finalists)

    def contenders(self) -> list[Limits]:
        """What meets the incumbent in the final: whatever else held the highest load, if close."""
        incumbent = self.incumbent
        floor = self.frontier(incumbent).low if incumbent else None
        if incumbent is None or floor is None:
            return []
        held = {
            limits: (frontier.low, -self.rivals.get(limits, 1.0))
            for limits, frontier in self.frontiers.items()
            if frontier is not self.frontier(incumbent)
            and frontier.low
            and frontier.low * RIVAL >= floor
            and self.rivals.get(limits, 1.0) <= RIVAL
        }
        return sorted(held, key=lambda limits: held[limits], reverse=True)[:CHALLENGERS]

    def ties(self) -> list[Limits]:
        """Configurations that hold about what the incumbent does, best estimate first."""
        if self.incumbent is None:
            return []
        best = self.estimate(self.incumbent)
        close = [
            limits
            for limits, frontier in self.frontiers.items()
            if limits != self.incumbent and frontier.low and self.estimate(limits) * TIE >= best
        ]
        return sorted(close, key=self.estimate, reverse=True)

    def nearest_miss(self) -> ProbeResult | None:
        """The load point that came nearest to the SLA without being within it."""
        misses = [result for result in self.results if standing(result) is not Standing.WITHIN]
        return min(misses, key=pressure, default=None)


def _total(scores: list[tuple[float, float]]) -> tuple[float, float]:
    return sum(held for held, _ in scores), sum(room for _, room in scores)


def _times_held(scores: list[tuple[float, float]]) -> int:
    return sum(held >= HELD for held, _ in scores)
