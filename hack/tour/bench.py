"""What the benchmark pods of the tour say: real searches on a simulated H200, in virtual time."""

from __future__ import annotations

import time
from collections.abc import Sequence

from vllm_tuning.bench.sim.inprocess import SimulatedServer
from vllm_tuning.bench.sim.parameters import PRESETS
from vllm_tuning.tuning.model import Done, Start
from vllm_tuning.tuning.run import (
    Event,
    ProbeEnded,
    RunEnded,
    RunSpec,
    RunStarted,
    StartEnded,
)
from vllm_tuning.tuning.search import Search

CARD = "h200-8b"


def measure(spec: RunSpec) -> Sequence[Event]:
    """Search as the real bench does; the clock is the simulated engine's."""
    server, search = SimulatedServer(PRESETS[CARD], seed=1), Search(spec.problem)
    began = time.time()
    replayed = search.replay(spec.previous)
    events: list[Event] = [RunStarted(0, began, spec.run_id, spec.attempt, (), replayed)]
    if search.server is not None:  # a resumed run starts its engine once more
        server.start(search.server)
    while not isinstance(question := search.ask(), Done):
        answer = (
            server.start(question)
            if isinstance(question, Start)
            else server.run(question, spec.problem)
        )
        search.tell(answer)
        spent = server.engine_seconds
        ended = StartEnded if isinstance(question, Start) else ProbeEnded
        events.append(ended(len(events), began + spent, answer, spent))  # type: ignore[arg-type]  # kinds go together
    spent = server.engine_seconds
    events.append(RunEnded(len(events), began + spent, question.recommendation, spent))
    return events
