"""The table of a run: sweeps of sequences and token budgets that cost little and risk nothing."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.toy_engine import MakeProblem, Run, Toy, ToyEngine
from vllm_tuning.tuning.knee import by_clients, clients_of
from vllm_tuning.tuning.model import (
    Answer,
    Budget,
    ClosedLoad,
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


def table(answers: Iterable[Answer]) -> list[ProbeResult]:
    return [
        answer
        for answer in answers
        if isinstance(answer, ProbeResult) and answer.probe.why.startswith("the table")
    ]


def sizes(answers: Iterable[Answer], tokens: int) -> list[int]:
    return [
        result.probe.limits.max_num_seqs
        for result in table(answers)
        if result.probe.limits.max_num_batched_tokens == tokens
    ]


def test_the_table_spans_one_sequence_to_the_envelope(problem: MakeProblem, toy: Toy, run: Run):
    found, answers = run(problem(), toy())
    assert found.limits is not None
    assert sizes(answers, found.limits.max_num_batched_tokens) == [1, 4, 16, 32, 128, 512]
    for result in table(answers):
        assert not result.probe.decide
        assert not result.probe.stop_on_fail
        assert result.probe.load == ClosedLoad(result.probe.limits.max_num_seqs)
    assert sum(result.seconds for result in table(answers)) < 120


def test_it_ends_just_beyond_the_kv_cache(problem: MakeProblem, toy: Toy, run: Run):
    """24,000 tokens hold 41 requests of 512 + 128 at mean length; at 64 they are preempted."""
    found, answers = run(problem(), toy(kv_tokens=24_000))
    assert found.limits is not None
    assert max(sizes(answers, found.limits.max_num_batched_tokens)) == 64


def test_the_token_budget_varies_at_one_size_unless_the_race_showed_it(
    problem: MakeProblem, toy: Toy, run: Run
):
    found, answers = run(problem(seed=2), toy())
    assert found.limits is not None
    chosen = found.limits.max_num_batched_tokens
    others = [
        result for result in table(answers) if result.probe.limits.max_num_batched_tokens != chosen
    ]
    assert {result.probe.load for result in others} == {ClosedLoad(32)}
    assert {result.probe.limits.max_num_batched_tokens for result in others} == {
        chosen // 4, chosen // 2, chosen * 2, chosen * 4,
    }  # fmt: skip
    workload = Workload(Lengths(512), Lengths(128), arrival="Closed", concurrency=128)
    batch = problem(objective=Objective.MAX_THROUGHPUT, slos=(), workload=workload)
    found, answers = run(batch, toy())  # scored every budget at the same load
    assert found.limits is not None
    assert len({result.probe.limits.max_num_batched_tokens for result in table(answers)}) == 1


def test_a_quick_run_has_four_points_of_seconds(problem: MakeProblem, toy: Toy, run: Run):
    _, answers = run(problem(quick=True), toy())
    assert len(table(answers)) == 4
    assert sum(result.seconds for result in table(answers)) < 30


def test_without_live_limits_the_clients_alone_make_the_table(
    problem: MakeProblem, toy: Toy, run: Run
):
    found, answers = run(problem(), toy(live_limits="too old"))
    assert [clients_of(result) for result in table(answers)] == [1, 4, 16, 32, 128, 512]
    assert len({result.probe.limits for result in table(answers)}) == 1
    with_table = sum(isinstance(answer, StartResult) for answer in answers)
    assert found.engine_starts == with_table
    assert with_table <= 8


def test_a_short_budget_leaves_it_out_and_says_so(problem: MakeProblem, toy: Toy, run: Run):
    found, answers = run(problem(budget=Budget(800.0, 800.0)), toy())
    assert found.ending is Ending.RECOMMENDED
    assert table(answers) == []
    assert "table of max_num_seqs was left out:" in found.message


def test_an_invalid_point_ends_neither_the_table_nor_the_run(problem: MakeProblem, run: Run):
    class Lagging(ToyEngine):
        def _probe(self, probe):
            self.invalid_from = 0 if probe.why.startswith("the table") else None
            return super()._probe(probe)

    found, answers = run(problem(), Lagging())
    assert found.ending is Ending.RECOMMENDED
    assert len(table(answers)) == 6
    assert by_clients(table(answers)) == {}


@pytest.mark.parametrize("quick", [False, True])
def test_the_table_teaches_the_confirmation_nothing(
    problem: MakeProblem, toy: Toy, run: Run, quick: bool
):
    """A single client's latency must not shorten the windows that prove."""
    slow = toy(alone_ms=60.0)
    _, answers = run(problem(quick=quick), slow)
    proofs = [
        answer.probe
        for answer in answers
        if isinstance(answer, ProbeResult) and answer.probe.decide
    ]
    windows = {probe.window_seconds for probe in proofs if probe.purpose is Purpose.CONFIRM}
    assert len(windows) == 1
    if not quick:  # ten latencies of a request near the boundary
        assert windows.pop() > 10 * 20.0 * 60.0 / 1e3 * 1.2 * 1.5


def test_the_current_limits_are_measured_before_the_budget_can_end(
    problem: MakeProblem, toy: Toy, run: Run
):
    found, answers = run(problem(budget=Budget(560.0, 560.0)), toy())
    purposes = [answer.probe.purpose for answer in answers if isinstance(answer, ProbeResult)]
    assert Purpose.BASELINE in purposes
    assert found.ending in {Ending.RECOMMENDED, Ending.BUDGET_EXHAUSTED}
    assert found.baseline is not None
    first = purposes.index(Purpose.BASELINE)
    assert purposes[:first].count(Purpose.SEARCH) <= 4
    assert isinstance(answers[0], StartResult)
    assert isinstance(answers[0].start, Start)
    assert found.baseline.probe.limits == Limits(16, 512)
