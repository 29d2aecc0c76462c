"""What limits truly carry: long runs on fresh starts of the simulated engine, without any search's
rules.

The true capacity is the highest load (on a ladder of 2.5 % steps) at which every SLO's share of
requests, averaged over fresh starts, arrivals and long windows, is at its target. A single run says
little on a card whose clock wanders, so there are up to twelve, until their spread tells on which
side the mean is. The oracle is the best of an exhaustive grid of pairs.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import floor, log
from pathlib import Path
from statistics import mean, stdev

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
SEEDS = (81, 82, 83)
NOISES = (21, 22, 23, 24)
"""Arrivals, and fresh starts that each sees them on."""
LEAST_RUNS = 4
"""Before a mean is believed, unless one run settles it."""
SURE = 3.0
"""Standard errors from the target at which no more runs are needed."""
WINDOW_SECONDS = 45.0
SCREEN_SECONDS = 20.0
LATENCIES = 10.0
GRID_TOKENS = (256, 512, 1024, 2048, 4096, 8192, 16384)
GRID_SEQS = (512, 256, 128, 64, 32)
HOPELESS = 0.3
"""A share this far below target settles it in one run."""

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
        self._latency: float | None = None
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
        """Whether the SLA is met at ``load`` in the mean of the runs."""
        shortfalls: list[float] = []
        for noise, seed in zip(NOISES * len(SEEDS), sorted(SEEDS * len(NOISES)), strict=True):
            shortfall = self._shortfall(limits, load, noise=noise, seed=seed)
            shortfalls.append(shortfall)
            if shortfall > HOPELESS or (len(shortfalls) >= LEAST_RUNS and _sure(shortfalls)):
                break
        return mean(shortfalls) <= 0.0

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
                if found > 0.0 and not self._beats(limits, found):
                    continue
                best, found = limits, self.capacity(limits, found * STEP)
        return best, found

    def _beats(self, limits: Limits, load: float) -> bool:
        """Whether the limits carry one step more; most cells show that they don't at a short
        look.
        """
        screened = self._shortfall(limits, load * STEP, noise=NOISES[0], seed=SEEDS[0], screen=True)
        return screened <= HOPELESS and self.holds(limits, load * STEP)

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
            if self.holds(limits, STEP**rung):
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
        self, limits: Limits, load: float, *, noise: int, seed: int, screen: bool = False
    ) -> float:
        """How far the worst SLO's share is below its target in one run (negative = above)."""
        server = self.case.server(noise_seed=noise)
        if server.start(Start("truth", Purpose.VERIFY, limits, hook=False)).facts is None:
            return 1.0
        if self._latency is None:  # windows follow the latency, which is not known yet
            self._latency = 2.0
            server.run(self._question(limits, load, seed), self.problem)
        probe = self._question(limits, load, seed)
        if screen:
            window = max(SCREEN_SECONDS, 0.4 * probe.window_seconds)
            probe = replace(probe, window_seconds=window, windows=1)
        result = server.run(probe, self.problem)
        self._note_peak(limits, result)
        if result.verdict is not Verdict.FAIL and result.e2e.mean:
            self._latency = result.e2e.mean / 1e3
        if result.reason == "QueueGrowing" and result.verdict is Verdict.FAIL:
            return 1.0
        return max(target(slo.slo) - (slo.attainment or 0.0) for slo in result.slos)

    def _question(self, limits: Limits, load: float, seed: int) -> Probe:
        window = max(WINDOW_SECONDS, LATENCIES * (self._latency or 0.0))
        return Probe(
            "truth", Purpose.VERIFY, limits, OpenLoad(load, self.problem.workload.burstiness),
            seed, window_seconds=window, windows=2, stop_on_fail=False,
        )  # fmt: skip


def _sure(shortfalls: list[float]) -> bool:
    return abs(mean(shortfalls)) > SURE * stdev(shortfalls) / len(shortfalls) ** 0.5


def load_store() -> dict[str, dict[str, float]]:
    """Capacities known so far, by case and pair (``seqs x tokens``)."""
    return json.loads(STORE.read_text()) if STORE.exists() else {}


def remember(case: str, known: dict[str, float]) -> None:
    """Add what is known of a case, sorted, so that a diff shows what changed."""
    store = load_store()
    store[case] = {**store.get(case, {}), **known}
    STORE.parent.mkdir(parents=True, exist_ok=True)
    STORE.write_text(json.dumps(store, indent=1, sort_keys=True) + "\n")
