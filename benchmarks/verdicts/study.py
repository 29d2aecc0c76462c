"""Play rules against cases: all runs of a case side by side."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from batchqueue import Run
from cases import Case
from rules import RULES, Ask, Outcome
from truth import Truth

from vllm_tuning.tuning.model import Verdict

DISTANCES = (0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.01, 1.04, 1.1, 1.3)
"""First loads over the true limit: far below, near on both sides, far above."""

SIDE_BY_SIDE = 1000
"""Runs simulated at once: the more, the cheaper each, as far as memory goes (0.3 GB)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One run of one rule."""

    case: str
    rule: str
    distance: float
    outcome: Outcome
    limit: float
    seed: int = 1

    @property
    def wrong_pass(self) -> bool:
        """The promised load is above the true limit."""
        return self.outcome.claimed is not None and self.outcome.claimed > self.limit

    def record(self) -> dict[str, Any]:
        """For the JSON file."""
        return asdict(self)

    @classmethod
    def of(cls, record: dict[str, Any]) -> Row:
        """Read a line of the JSON file."""
        outcome = {**record["outcome"], "first": Verdict(record["outcome"]["first"])}
        return cls(**{**record, "outcome": Outcome(**outcome)})


@dataclass(slots=True)
class _Player:
    """A rule under way: what it asks for, and a spare record of the same load."""

    rule: str
    distance: float
    steps: Generator[Ask, Run, Outcome]
    ask: Ask
    spare: Run | None = None

    def give(self, run: Run, spare: Run) -> Outcome | None:
        """Let it read records until it wants another load; return its outcome if it has one."""
        self.spare = spare
        try:
            while True:
                asked, self.ask = self.ask, self.steps.send(run)
                if self.ask != asked or self.spare is None:
                    return None
                run, self.spare = self.spare, None
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome


def play(
    case: Case,
    truth: Truth,
    rules: Sequence[str],
    runs: int,
    *,
    seed: int = 1,
    distances: Sequence[float] = DISTANCES,
) -> Iterator[Row]:
    """Let each of ``rules`` begin ``runs`` times at each distance."""
    rng = np.random.default_rng([int.from_bytes(case.name.encode()), seed])
    players = []
    for rule in rules:
        for distance in distances:
            for _ in range(runs):
                steps = RULES[rule](case, truth, distance * truth.limit)
                players.append(_Player(rule, distance, steps, next(steps)))
    while players:
        players.sort(key=lambda player: player.ask.load)
        left = []
        for start in range(0, len(players), SIDE_BY_SIDE // 2):
            batch = players[start : start + SIDE_BY_SIDE // 2]
            asks = [player.ask for player in batch for _ in range(2)]
            seen = case.queue().run(
                case.workload, [ask.load for ask in asks], [ask.span for ask in asks], rng
            )
            for player, run, spare in zip(batch, seen[::2], seen[1::2], strict=True):
                outcome = player.give(run, spare)
                if outcome is None:
                    left.append(player)
                else:
                    yield Row(case.name, player.rule, player.distance, outcome, truth.limit, seed)
        players = left
