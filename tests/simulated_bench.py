"""What a bench says that measures on the simulated engine in virtual time: a whole real search."""

from __future__ import annotations

from functools import cache
from time import time
from typing import Final

from vllm_tuning.bench.sim.inprocess import SimulatedServer
from vllm_tuning.bench.sim.parameters import PRESETS
from vllm_tuning.tuning.model import (
    SLO,
    Answer,
    Budget,
    Done,
    Lengths,
    Limits,
    Metric,
    Objective,
    Problem,
    Space,
    Start,
    Workload,
)
from vllm_tuning.tuning.run import Event, ProbeEnded, RunEnded, RunStarted, StartEnded
from vllm_tuning.tuning.search import Search

BEGAN: Final = float(int(time()))
"""Unix seconds of the first event."""
TINY: Final = Problem(
    slos=(SLO(Metric.TTFT, 95, 200), SLO(Metric.TPOT, 95, 25)),
    objective=Objective.MAX_RATE,
    workload=Workload(Lengths(64), Lengths(16)),
    current=Limits(4, 2048),
    space=Space(),
    budget=Budget(3600, 3600),
)
"""A problem for the preset of this name: one that it can solve."""


@cache
def measure(problem: Problem, previous: tuple[Answer, ...]) -> tuple[Event, ...]:
    """Return its events, one a second; ``previous`` is what it is told."""
    server, search = SimulatedServer(PRESETS["tiny"], seed=1, start_seconds=2.0), Search(problem)
    events: list[Event] = [RunStarted(0, BEGAN, "r", 1, (), search.replay(previous))]
    if search.server is not None:  # a resumed run starts its engine once more
        events.append(StartEnded(1, BEGAN + 1, server.start(search.server), 2.0))
    while not isinstance(question := search.ask(), Done):
        seq, at = len(events), BEGAN + len(events)
        if isinstance(question, Start):
            started = server.start(question)
            events.append(StartEnded(seq, at, started, 2.0 * seq))
            search.tell(started)
        else:
            result = server.run(question, problem)
            events.append(ProbeEnded(seq, at, result, 2.0 * seq))
            search.tell(result)
    seq = len(events)
    events.append(RunEnded(seq, BEGAN + seq, question.recommendation, 2.0 * seq))
    return tuple(events)
