"""CUDA graphs: what live limits cannot show, and a start with a small cap does not have."""

from __future__ import annotations

import pytest

from tests.toy_engine import MakeProblem, Run, ToyEngine, starts
from vllm_tuning.tuning.model import (
    Budget,
    Ending,
    Lengths,
    Limits,
    Objective,
    ProbeResult,
    Purpose,
    Start,
    StartResult,
    Workload,
)
from vllm_tuning.tuning.priors import graph_seqs

BATCH = {
    "objective": Objective.MAX_THROUGHPUT,
    "workload": Workload(Lengths(512), Lengths(128), arrival="Closed", concurrency=64),
    "slos": (),
}


class Graphs(ToyEngine):
    """Without CUDA graphs for all steps of a small budget, a server has half of its capacity."""

    def capacity(self, limits: Limits) -> float:
        captured = 2 * self.running.limits.max_num_seqs if self.running else 0
        wanted = min(limits.max_num_batched_tokens, self.graph_cap)
        return super().capacity(limits) * (1.0 if captured >= wanted else 0.5)


def engine() -> Graphs:
    return Graphs(best_tokens=1024, noise=0.0, graph_cap=512)


@pytest.mark.parametrize(
    ("tokens", "captured", "seqs"), [(8192, 512, 256), (300, 512, 150), (8192, 0, 0)]
)
def test_the_least_cap_with_all_graphs(tokens: int, captured: int, seqs: int):
    assert graph_seqs(tokens, captured) == seqs


@pytest.mark.parametrize("changes", [{}, BATCH], ids=["chat", "batch"])
def test_an_idle_cap_is_not_so_low_that_the_start_lacks_graphs(
    problem: MakeProblem, run: Run, changes: dict[str, object]
):
    """60 sequences run; a start with few more than that captures only graphs twice as large."""
    found, _ = run(problem(**changes), engine())
    assert found.ending is Ending.RECOMMENDED
    assert found.limits is not None
    assert found.limits.max_num_seqs == 256
    told = next(step.why for step in found.decisions if step.topic == "max_num_seqs")
    assert "256 is the least with CUDA graphs for steps of 512 tokens" in told
    assert found.result is not None
    assert (found.result.request_rate or 0.0) > 30  # of 40, and not of 20


@pytest.mark.parametrize("changes", [{}, BATCH], ids=["chat", "batch"])
def test_current_limits_that_lack_graphs_are_measured_on_their_own_start(
    problem: MakeProblem, run: Run, changes: dict[str, object]
):
    """Live they look as good as the best; as the target runs them they carry half."""
    current = Limits(64, 1024)
    found, answers = run(problem(current=current, **changes), engine())
    assert found.ending is Ending.RECOMMENDED
    assert [start.limits for start in starts(answers)][1:] == [current, found.limits]
    assert not starts(answers)[1].hook
    assert found.gain_percent == pytest.approx(100, abs=25)
    assert found.baseline is not None
    assert (found.baseline.request_rate or 0.0) < 21
    own = [a.probe for a in answers if isinstance(a, ProbeResult) and a.probe.limits == current]
    assert own[-1].purpose is Purpose.BASELINE


def test_without_time_for_their_own_start_the_result_says_that_they_are_flattered(
    problem: MakeProblem, run: Run
):
    budget = Budget(gpu_seconds=800.0, deadline_seconds=800.0)
    found, answers = run(problem(current=Limits(64, 1024), budget=budget), engine())
    assert len(starts(answers)) == 2
    assert "CUDA graphs that their own start lacks" in found.message


def test_current_limits_that_do_not_start_end_nothing(problem: MakeProblem, run: Run):
    class Picky(Graphs):
        def _start(self, start: Start) -> StartResult:
            self.largest = Limits(1, 1) if start.limits == Limits(64, 1024) else None
            return super()._start(start)

    found, _ = run(
        problem(current=Limits(64, 1024)), Picky(best_tokens=1024, noise=0.0, graph_cap=512)
    )
    assert "the current limits, did not start" in found.message
    assert found.limits is None or found.limits.max_num_seqs == 256


def test_an_engine_without_graphs_is_trimmed_to_the_need(problem: MakeProblem, run: Run):
    found, answers = run(problem(), ToyEngine(noise=0.0))
    assert found.limits is not None
    assert found.limits.max_num_seqs < 256
    assert len(starts(answers)) == 2
