"""What limits truly carry: long runs on fresh starts of the simulated engine, without any search's
rules.

The true capacity is the highest load (on a ladder of 2.5 % steps) at which every SLO's share of
requests, averaged over arrival seeds and long windows, is at its target. The oracle is the best of
an exhaustive grid of pairs.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import floor, log
from pathlib import Path

from problems import Case

from vllm_tuning.tuning.model import (
    Limits,
    OpenLoad,
    Probe,
    ProbeResult,
    Purpose,
    Start,
    Verdict,
)
from vllm_tuning.tuning.verdict import target

STEP = 1.025
SEEDS = (71, 72)
CLOSE_SEEDS = (81, 82, 83)
CLOSE_NOISES = (21, 22, 23, 24)
"""Arrivals and fresh starts of a closer look."""
WINDOW_SECONDS = 45.0
SCREEN_SECONDS = 20.0
LATENCIES = 10.0
GRID_TOKENS = (256, 512, 1024, 2048, 4096, 8192, 16384)
GRID_SEQS = (512, 256, 128, 64, 32)
CLEARLY_LESS = 0.04
"""A share this far below target is beyond doubt: the cell is not measured further at that load."""

CLEARLY_MORE = -0.03
"""A share this far above target is beyond doubt too (targets are 0.9 and 0.95)."""

STORE = Path(__file__).parents[1] / "data" / "search-truth.json"


class Truth:
    """Capacities of one case, measured on demand and remembered."""

    def __init__(
        self, case: Case, known: dict[str, float] | None = None, *, keep: bool = False
    ) -> None:
        """``keep``: write every capacity to the store as soon as it is known."""
        self.case = case
        self._keep = keep
        self.known = known if known is not None else {}
        self.problem = case.problem(seed=0)
        self._server = case.server(noise_seed=7)
        self._started: Limits | None = None
        self._latency = 2.0
        self._peak = GRID_SEQS[0] + 1
        """Most requests that ran at once with the uncapped cell of the budget at hand."""

    def capacity(self, limits: Limits, guess: float) -> float:
        """True capacity of ``limits`` in requests per second; 0 if not even a fortieth of
        ``guess``.
        """
        key = f"{limits.max_num_seqs}x{limits.max_num_batched_tokens}"
        if key not in self.known:
            self.known[key] = self._search(limits, guess)
            if self._keep:
                remember(self.case.name, self.known)
        return self.known[key]

    def holds(self, limits: Limits, load: float) -> bool:
        """Whether the SLA is met at ``load`` in the mean of several fresh starts and arrivals.

        Longer than a rung of the ladder is looked at: it decides promises near the true capacity.
        """
        results: list[ProbeResult] = []
        for noise in CLOSE_NOISES:
            server = self.case.server(noise_seed=noise)
            if server.start(Start("truth", Purpose.VERIFY, limits, hook=False)).facts is None:
                return False
            if not results:  # windows follow the latency, which is not known yet
                self._learn(server.run(self._question(limits, load, SEEDS[0]), self.problem))
            for seed in CLOSE_SEEDS:
                whole = replace(self._question(limits, load, seed), stop_on_fail=False)
                results.append(server.run(whole, self.problem))
        return _shortfall(results) <= 0.0

    def _learn(self, result: ProbeResult) -> None:
        if result.verdict is not Verdict.FAIL and result.e2e.p95:
            self._latency = result.e2e.p95 / 1e3

    def oracle(self, guess: float) -> tuple[Limits, float]:
        """The best pair of the grid and its capacity."""
        best = Limits(GRID_SEQS[0], 2048)
        found = self.capacity(best, guess)
        for tokens in GRID_TOKENS:
            self._peak = GRID_SEQS[0] + 1
            for seqs in GRID_SEQS:
                limits = Limits(min(seqs, tokens), tokens)
                # A cap that is never reached changes nothing: such cells equal the uncapped one.
                if limits == best or GRID_SEQS[0] > seqs >= self._peak:
                    continue
                if self._loses(limits, found):
                    continue
                best, found = limits, self.capacity(limits, found * STEP)
        return best, found

    def _loses(self, limits: Limits, load: float) -> bool:
        """Whether the limits do not carry one step more than ``load``; most cells show it at a
        short look.
        """
        if load <= 0.0:
            return False
        more = load * STEP
        if self._shortfall(limits, more, seeds=SEEDS[:1], screen=True) > CLEARLY_LESS:
            return True
        return self._shortfall(limits, more, seeds=SEEDS) > 0.0

    def _note_peak(self, limits: Limits, result: ProbeResult) -> None:
        if limits.max_num_seqs == min(GRID_SEQS[0], limits.max_num_batched_tokens):
            peak = result.engine.running_max or 0
            self._peak = peak if self._peak > GRID_SEQS[0] else max(self._peak, peak)

    def _search(self, limits: Limits, guess: float) -> float:
        rung = floor(log(guess) / log(STEP))
        low: int | None = None
        high: int | None = None
        jump = 3
        while low is None or high is None or high - low > 1:
            if low is not None and high is not None:
                rung = (low + high) // 2
            if self._shortfall(limits, STEP**rung, seeds=SEEDS) <= 0.0:
                low = rung
                rung += jump
            else:
                high = rung
                rung -= jump
                if STEP**rung < guess / 40:
                    return 0.0
            jump = min(2 * jump, 24)
        return float(STEP**low)

    def _shortfall(
        self, limits: Limits, load: float, *, seeds: tuple[int, ...], screen: bool = False
    ) -> float:
        """How far the worst SLO's mean share is below its target (negative = above)."""
        if limits != self._started:
            result = self._server.start(Start("truth", Purpose.VERIFY, limits, hook=False))
            if result.facts is None:
                return 1.0
            self._started = limits
        results: list[ProbeResult] = []
        for seed in seeds:
            results.append(self._probe(limits, load, seed, screen=screen))
            if results[-1].verdict is Verdict.FAIL and results[-1].reason == "QueueGrowing":
                return 1.0
            if not CLEARLY_MORE < _shortfall(results) < CLEARLY_LESS:
                break
        return _shortfall(results)

    def _probe(self, limits: Limits, load: float, seed: int, *, screen: bool) -> ProbeResult:
        probe = self._question(limits, load, seed)
        if screen:
            window = max(SCREEN_SECONDS, 0.4 * probe.window_seconds)
            probe = replace(probe, window_seconds=window, windows=1)
        result = self._server.run(probe, self.problem)
        self._note_peak(limits, result)
        self._learn(result)
        return result

    def _question(self, limits: Limits, load: float, seed: int) -> Probe:
        window = max(WINDOW_SECONDS, LATENCIES * self._latency)
        return Probe(
            "truth", Purpose.VERIFY, limits, OpenLoad(load, self.problem.workload.burstiness),
            seed, window_seconds=window, windows=2, max_seconds=1e9,
        )  # fmt: skip


def _shortfall(results: list[ProbeResult]) -> float:
    worst = -1.0
    for index, first in enumerate(results[0].slos):
        shares = [result.slos[index].attainment for result in results]
        mean = sum(share or 0.0 for share in shares) / len(shares)
        worst = max(worst, target(first.slo) - mean)
    return worst


def load_store() -> dict[str, dict[str, float]]:
    """Capacities known so far, by case and pair (``seqs x tokens``)."""
    return json.loads(STORE.read_text()) if STORE.exists() else {}


def remember(case: str, known: dict[str, float]) -> None:
    """Add what is known of a case, sorted, so that a diff shows what changed."""
    store = load_store()
    store[case] = {**store.get(case, {}), **known}
    STORE.parent.mkdir(parents=True, exist_ok=True)
    STORE.write_text(json.dumps(store, indent=1, sort_keys=True) + "\n")
