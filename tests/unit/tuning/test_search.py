"""The search against a toy engine: every ending, every promise."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.toy_engine import MakeProblem, Run, Toy, starts
from vllm_tuning.tuning.confirm import LOADS
from vllm_tuning.tuning.model import (
    SLO,
    Answer,
    Bounds,
    Budget,
    Done,
    Ending,
    FailureKind,
    Lengths,
    Limits,
    Metric,
    Objective,
    OpenLoad,
    Probe,
    ProbeResult,
    Purpose,
    Space,
    Start,
    Verdict,
    Workload,
)
from vllm_tuning.tuning.search import Search


def probes(answers: list[Answer]) -> list[ProbeResult]:
    return [answer for answer in answers if isinstance(answer, ProbeResult)]


@pytest.mark.parametrize("seed", range(6))
def test_it_finds_the_best_pair_with_two_starts(
    problem: MakeProblem, toy: Toy, run: Run, seed: int
):
    engine = toy(guard=0.0)
    found, _ = run(problem(seed=seed), engine)
    assert found.ending is Ending.RECOMMENDED
    assert found.limits is not None
    assert engine.capacity(found.limits) >= 0.97 * engine.peak
    assert found.engine_starts == 2
    assert isinstance(found.load, OpenLoad)
    assert 0.8 * engine.peak <= found.load.rate_per_second <= 1.02 * engine.peak


def test_the_confirmation_is_a_fresh_start_with_exact_limits_and_no_hook(
    problem: MakeProblem, toy: Toy, run: Run
):
    found, answers = run(problem(), toy())
    envelope, fresh = starts(answers)
    assert envelope.hook
    assert not fresh.hook
    assert fresh.limits == found.limits
    confirming = [result for result in probes(answers) if result.probe.purpose is Purpose.CONFIRM]
    assert all(result.probe.decide for result in confirming)
    passed = [result for result in confirming if result.probe.load == found.load]
    assert len({result.probe.seed for result in passed}) == 2
    assert found.result is not None
    assert found.result.verdict is Verdict.PASS


def test_a_cap_that_protects_what_binds_is_found(problem: MakeProblem, toy: Toy, run: Run):
    """Only caps between 60 and 84 carry 25 % more, and TPOT is what binds."""
    slo = SLO(Metric.TPOT, percentile=95, max_milliseconds=300)
    found, _ = run(problem(slos=(slo,)), toy(guard=0.25, noise=0.01, slo=slo))
    assert found.limits is not None
    assert 60 <= found.limits.max_num_seqs <= 84


def test_the_gain_compares_with_the_current_limits(problem: MakeProblem, toy: Toy, run: Run):
    found, answers = run(problem(current=Limits(16, 512)), toy())
    baseline = [result for result in probes(answers) if result.probe.purpose is Purpose.BASELINE]
    assert {result.probe.limits for result in baseline} == {Limits(16, 512)}
    assert found.gain_percent == pytest.approx(368, rel=0.2)  # 40 against 8.5 requests per second
    assert found.before is not None
    assert found.before.verdict is Verdict.FAIL
    assert found.before.probe.decide


def test_limits_that_are_best_already_are_kept(problem: MakeProblem, toy: Toy, run: Run):
    found, _ = run(problem(current=Limits(96, 2048)), toy())
    assert found.ending is Ending.NO_IMPROVEMENT
    assert found.limits is None
    assert found.load is not None


def test_an_impossible_sla_ends_after_the_canary(problem: MakeProblem, toy: Toy, run: Run):
    found, answers = run(problem(), toy(alone_ms=700.0))
    assert found.ending is Ending.SLA_UNSATISFIABLE
    assert found.nearest_miss is not None
    assert found.limits is None
    assert len(answers) <= 3


def test_a_canary_that_saw_too_few_requests_to_be_sure_looks_again(
    problem: MakeProblem, toy: Toy, run: Run
):
    class FewAtFirst(toy):  # type: ignore[valid-type,misc]  # a class that a fixture returns
        def _probe(self, probe: Probe) -> ProbeResult:
            seen = super()._probe(probe)
            if probe.window_seconds > 15:
                return seen
            return replace(seen, completed=17, verdict=Verdict.UNDECIDED, reason="NearLimit")

    found, answers = run(problem(), FewAtFirst(alone_ms=700.0))

    assert found.ending is Ending.SLA_UNSATISFIABLE
    assert [probe.verdict for probe in probes(answers)][:2] == [Verdict.UNDECIDED, Verdict.FAIL]


def test_a_fresh_start_that_carries_less_is_not_recommended(
    problem: MakeProblem, toy: Toy, run: Run
):
    found, answers = run(problem(), toy(slow_fresh=0.35))
    assert found.ending is Ending.INCONCLUSIVE
    assert found.limits is None
    confirming = [result for result in probes(answers) if result.probe.purpose is Purpose.CONFIRM]
    loads = sorted({result.probe.load.rate_per_second for result in confirming}, reverse=True)
    assert len(loads) == LOADS
    for higher, lower in pairwise(loads):
        assert 0.849 * higher <= lower <= 0.951 * higher


@pytest.mark.parametrize(
    ("kind", "engine_starts"),
    [(FailureKind.BAD_ARGUMENTS, 2), (FailureKind.ENVIRONMENT, 2), (FailureKind.TIMEOUT, 2)],
)
def test_an_engine_that_does_not_start_ends_the_run(
    problem: MakeProblem, toy: Toy, run: Run, kind: FailureKind, engine_starts: int
):
    found, _ = run(problem(), toy(failures=(kind,) * 9))
    assert found.ending is Ending.ENGINE_FAILED
    assert kind in found.message
    assert found.engine_starts == engine_starts


def test_an_envelope_that_does_not_fit_shrinks_to_one_that_does(
    problem: MakeProblem, toy: Toy, run: Run
):
    found, answers = run(problem(), toy(largest=Limits(128, 8192)))
    assert found.ending is Ending.RECOMMENDED
    asked = [start.limits for start in starts(answers)]
    for failed, later in pairwise(asked):
        assert not (
            later.max_num_seqs >= failed.max_num_seqs
            and later.max_num_batched_tokens >= failed.max_num_batched_tokens
        )


def test_measurements_that_stay_invalid_end_the_run_after_two_retries(
    problem: MakeProblem, toy: Toy, run: Run
):
    found, answers = run(problem(), toy(invalid_from=4))
    assert found.ending is Ending.INCONCLUSIVE
    assert "OtherLoad" in found.message
    invalid = [result for result in probes(answers) if result.verdict is Verdict.INVALID]
    assert len(invalid) == 3
    assert len({result.probe.seed for result in invalid}) == 3


def test_a_hopeless_budget_is_refused_before_anything_starts(
    problem: MakeProblem, toy: Toy, run: Run
):
    found, answers = run(problem(budget=Budget(100.0, 100.0)), toy())
    assert found.ending is Ending.INCONCLUSIVE
    assert "BudgetTooSmall" in found.message
    assert answers == []


def test_a_budget_that_ends_the_race_early_still_confirms_the_best(
    problem: MakeProblem, toy: Toy, run: Run
):
    found, _ = run(problem(budget=Budget(650.0, 650.0)), toy())
    assert found.engine_seconds <= 650.0
    assert found.ending in {Ending.RECOMMENDED, Ending.BUDGET_EXHAUSTED}
    assert "budget" in found.message


def test_bounds_are_kept_and_what_they_cut_off_is_told(problem: MakeProblem, toy: Toy, run: Run):
    space = Space(max_num_seqs=Bounds(8, 48), max_num_batched_tokens=Bounds(256, 1024))
    found, answers = run(problem(space=space), toy())
    assert found.limits is not None
    assert found.limits.max_num_seqs <= 48
    assert found.limits.max_num_batched_tokens <= 1024
    searched = {
        result.probe.limits
        for result in probes(answers)
        if result.probe.purpose in {Purpose.SEARCH, Purpose.CONFIRM}
    }
    assert max(limits.max_num_seqs for limits in searched) <= 48
    assert max(limits.max_num_batched_tokens for limits in searched) <= 1024


def test_without_live_limits_every_pair_has_its_own_start(problem: MakeProblem, toy: Toy, run: Run):
    engine = toy(live_limits="the scheduler class overrides schedule()")
    found, answers = run(problem(), engine)  # the toy refuses probes that would need live limits
    assert found.ending is Ending.RECOMMENDED
    assert found.limits is not None
    assert engine.capacity(found.limits) >= 0.9 * engine.peak
    assert len(starts(answers)) <= 8


def test_a_larger_memory_share_is_tried_only_where_kv_capacity_binds(
    problem: MakeProblem, toy: Toy, run: Run
):
    space = Space(gpu_memory_utilization_percent=Bounds(80, 95))
    asked = problem(space=space, current=Limits(16, 512, gpu_memory_utilization_percent=90))
    found, answers = run(asked, toy(kv_gain=0.2))
    assert found.limits is not None
    assert found.limits.gpu_memory_utilization_percent == 95
    assert len(starts(answers)) == 3
    found, answers = run(asked, toy())
    assert found.limits is not None
    assert found.limits.gpu_memory_utilization_percent == 90
    assert len(starts(answers)) == 2


@pytest.mark.parametrize(("gain", "chosen"), [(0.2, False), (-0.2, None)])
def test_chunked_prefill_is_compared_last(
    problem: MakeProblem, toy: Toy, run: Run, gain: float, chosen: bool | None
):
    asked = problem(space=Space(enable_chunked_prefill=(True, False)))
    found, answers = run(asked, toy(whole_prompt_gain=gain, noise=0.01))
    assert found.limits is not None
    assert found.limits.enable_chunked_prefill is chosen
    off = [result for result in probes(answers) if not _chunked(result.probe.limits)]
    assert off
    searched = [result for result in probes(answers) if result.probe.purpose is Purpose.SEARCH]
    assert searched.index(off[0]) > len(searched) // 2


def _chunked(limits: Limits) -> bool:
    return limits.enable_chunked_prefill is not False


def test_min_latency_keeps_the_given_rate(problem: MakeProblem, toy: Toy, run: Run):
    workload = Workload(Lengths(512), Lengths(128), rate_per_second=8.0)
    asked = problem(objective=Objective.MIN_LATENCY, workload=workload)
    found, answers = run(asked, toy())
    assert found.ending is Ending.RECOMMENDED
    assert found.load == OpenLoad(8.0)
    offered = {
        result.probe.load
        for result in probes(answers)
        if result.probe.purpose is not Purpose.CALIBRATE
    }
    assert offered == {OpenLoad(8.0)}


def test_max_throughput_needs_no_slo(problem: MakeProblem, toy: Toy, run: Run):
    workload = Workload(Lengths(512), Lengths(128), arrival="Closed", concurrency=64)
    asked = problem(objective=Objective.MAX_THROUGHPUT, workload=workload, slos=())
    engine = toy()
    found, _ = run(asked, engine)
    assert found.ending is Ending.RECOMMENDED
    assert found.limits is not None
    assert engine.capacity(found.limits) >= 0.95 * engine.peak


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"slos": ()}, "SLO"),
        ({"objective": Objective.MIN_LATENCY}, "rate"),
        ({"objective": Objective.MAX_THROUGHPUT}, "concurrency"),
    ],
)
def test_a_problem_that_asks_for_nothing_is_refused(
    problem: MakeProblem, toy: Toy, run: Run, changes: dict[str, object], word: str
):
    found, answers = run(problem(**changes), toy())
    assert found.ending is Ending.INCONCLUSIVE
    assert word in found.message
    assert answers == []


def test_decisions_come_in_the_order_of_an_engineer(problem: MakeProblem, toy: Toy, run: Run):
    found, _ = run(problem(), toy())
    assert [step.topic for step in found.decisions] == [
        "SLA",
        "traffic",
        "max_num_seqs",
        "max_num_batched_tokens",
        "gpu_memory_utilization",
        "enable_chunked_prefill",
    ]
    assert all(step.decision and step.why for step in found.decisions)


def test_a_quick_run_is_short_and_says_so(problem: MakeProblem, toy: Toy, run: Run):
    found, answers = run(problem(quick=True), toy())
    assert found.ending is Ending.RECOMMENDED
    assert "Quick run" in found.message
    asked = [result.probe for result in probes(answers)]
    assert sum(probe.windows * probe.window_seconds for probe in asked) < 120
    assert len(asked) <= 25


def test_an_answer_to_another_question_is_refused(problem: MakeProblem, toy: Toy):
    search, engine = Search(problem()), toy()
    question = search.ask()
    assert isinstance(question, Start)
    answer = engine.answer(question)
    with pytest.raises(ValueError, match="s1"):
        search.tell(replace(answer, start=replace(question, id="s9")))
    search.tell(answer)
    assert isinstance(search.ask(), Probe)


def test_stop_ends_with_what_is_known(problem: MakeProblem, toy: Toy):
    search, engine = Search(problem()), toy()
    for _ in range(12):
        question = search.ask()
        assert not isinstance(question, Done)
        search.tell(engine.answer(question))
    done = search.stop("the deadline is 10 s away")
    assert done.recommendation.ending is Ending.BUDGET_EXHAUSTED
    assert done.recommendation.limits is None
    assert done.recommendation.probes == 11
    assert search.ask() is done


@pytest.mark.parametrize("most", [25.0, 12.0, 9.0])
def test_a_client_that_does_not_keep_up_bounds_the_load_and_the_result_says_so(
    problem: MakeProblem, toy: Toy, run: Run, most: float
):
    """The engine carries 40/s; what the client can offer is less, and is confirmed all the same."""
    found, answers = run(problem(), toy(client_rate=most))
    assert found.load is not None
    assert isinstance(found.load, OpenLoad)
    assert 0.5 * most < found.load.rate_per_second <= most
    assert "The client did not keep up with" in found.message
    assert "ClientLag" in found.message
    asked = [
        result.probe.load.rate_per_second
        for result in probes(answers)
        if result.verdict is Verdict.INVALID and isinstance(result.probe.load, OpenLoad)
    ]
    assert asked == sorted(asked, reverse=True)  # what was too much is not asked for again


def test_a_client_that_offers_nothing_ends_the_run(problem: MakeProblem, toy: Toy, run: Run):
    found, _ = run(problem(), toy(client_rate=0.001))
    assert found.ending is Ending.INCONCLUSIVE
    assert "ClientLag" in found.message
