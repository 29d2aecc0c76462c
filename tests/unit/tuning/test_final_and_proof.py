"""Two steps that much hangs on: who wins a final, and what a proof leaves for the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.toy_engine import TTFT
from vllm_tuning.tuning.confirm import LOADS, Confirmation, confirm
from vllm_tuning.tuning.experiment import Experiment
from vllm_tuning.tuning.model import (
    Budget,
    Limits,
    OpenLoad,
    Probe,
    ProbeResult,
    Problem,
    Purpose,
    SLOResult,
    Verdict,
)
from vllm_tuning.tuning.race import Race

INCUMBENT, CHALLENGER = Limits(128, 2048), Limits(512, 1024)


def final(
    problem: Problem, engine, answer: Callable[[Probe], ProbeResult]
) -> tuple[Limits | None, list[float]]:
    """Play a final; the winner, and the loads it was fought at."""
    experiment = Experiment(problem)
    race = Race(experiment)
    start = experiment.start(Limits(512, 16384), Purpose.SEARCH, hook=True, why="")
    with pytest.raises(StopIteration):
        start.send(engine.answer(next(start)))
    race.incumbent = INCUMBENT
    asked: list[Probe] = []
    race.frontier(INCUMBENT).add(
        30.0, ProbeResult(_probe(30.0), Verdict.PASS, "", "", 10.0, slos=())
    )
    steps = race.final([CHALLENGER])
    question = next(steps)
    try:
        while True:
            assert isinstance(question, Probe)
            asked.append(question)
            question = steps.send(answer(question))
    except StopIteration:
        return race.incumbent, [probe.load.rate_per_second for probe in asked]


def _probe(load: float) -> Probe:
    return Probe("p", Purpose.SEARCH, INCUMBENT, OpenLoad(load), 1, 10.0)


def _result(probe: Probe, observed: float, verdict: Verdict) -> ProbeResult:
    within = 0.5 if verdict is Verdict.FAIL else 0.99
    slo = SLOResult(TTFT, within, observed_milliseconds=observed, verdict=verdict)
    return ProbeResult(probe, verdict, "", "", 10.0, slos=(slo,))


def test_a_final_is_not_decided_by_how_long_a_queue_grew(problem, toy):
    """Beyond the SLA a queue misses by far and a step by little: both miss, the incumbent stays."""

    def answer(probe: Probe) -> ProbeResult:
        return _result(probe, 2000.0 if probe.limits == INCUMBENT else 310.0, Verdict.FAIL)

    winner, loads = final(problem(), toy(), answer)
    assert winner == INCUMBENT
    assert loads[0] == loads[1] == 30.0
    assert loads[2] == loads[3] < 30.0  # neither held it
    assert len(loads) == 12  # it ends all the same


def test_who_holds_the_load_more_often_wins(problem, toy):
    def answer(probe: Probe) -> ProbeResult:
        held = probe.limits == CHALLENGER
        return _result(probe, 299.0, Verdict.PASS if held else Verdict.FAIL)

    winner, loads = final(problem(), toy(), answer)
    assert winner == CHALLENGER
    assert loads == [30.0] * 4


def test_where_both_hold_it_the_one_with_more_room_wins(problem, toy):
    def answer(probe: Probe) -> ProbeResult:
        return _result(probe, 150.0 if probe.limits == CHALLENGER else 250.0, Verdict.PASS)

    assert final(problem(), toy(), answer)[0] == CHALLENGER


def test_a_lucky_window_is_brought_down_to_earth(problem, toy):
    """30/s held once; with long windows the incumbent holds no more than 26."""

    def answer(probe: Probe) -> ProbeResult:
        holds = probe.load.rate_per_second <= 26.0
        assert probe.windows == 3
        return _result(probe, 280.0, Verdict.PASS if holds else Verdict.FAIL)

    winner, loads = final(problem(), toy(), answer)
    assert winner == INCUMBENT
    assert min(loads) == pytest.approx(30.0 * 0.95**4, rel=1e-3)  # two steps where both FAIL
    assert loads.count(min(loads)) == 4  # both, twice


class Proof:
    """A confirmation played with given percentiles: steady ones, so that each has narrow bounds."""

    def __init__(
        self,
        problem: Problem,
        engine,
        observed: Callable[[int, float], float],
        *,
        growing: frozenset[int] = frozenset(),
    ) -> None:
        """``observed`` gives p95 TTFT in milliseconds of the nth probe at a load.

        Of the probes ``growing`` the requests in flight grew.
        """
        self.asked: list[Probe] = []
        steps = confirm(Experiment(problem), Limits(96, 2048), OpenLoad(30.0))
        question = steps.send(engine.answer(next(steps)))
        try:
            while True:
                assert isinstance(question, Probe)
                assert isinstance(question.load, OpenLoad)
                self.asked.append(question)
                value = observed(len(self.asked), question.load.rate_per_second)
                result = _deciding(question, value)
                if len(self.asked) in growing:
                    result = replace(result, reason="QueueGrowing")
                question = steps.send(result)
        except StopIteration as end:
            self.outcome: Confirmation = end.value

    @property
    def loads(self) -> list[float]:
        return [probe.load.rate_per_second for probe in self.asked]


def _deciding(probe: Probe, milliseconds: float) -> ProbeResult:
    """A deciding probe of two windows whose quarters differ by a few percent."""
    quarters = tuple(milliseconds * share for share in (0.97, 1.0, 1.03, 1.0) * probe.windows)
    within = 0.999 if milliseconds <= 300.0 else 0.9
    verdict = Verdict.FAIL if milliseconds > 600.0 else Verdict.UNDECIDED
    slo = SLOResult(
        TTFT,
        within,
        observed_milliseconds=milliseconds,
        effective_count=900.0,
        quarter_milliseconds=quarters,
        upper_milliseconds=1.1 * milliseconds,
    )
    return ProbeResult(probe, verdict, "TooCloseToCall", "", 70.0, slos=(slo,))


def test_two_seeds_that_leave_no_doubt_are_enough(problem, toy):
    proof = Proof(problem(), toy(), lambda _n, _load: 200.0)
    assert proof.loads == [30.0, 30.0]
    assert proof.asked[0].seed != proof.asked[1].seed
    assert proof.outcome.judged == 1
    assert proof.outcome.result is not None
    assert proof.outcome.result.verdict is Verdict.PASS


def test_a_seed_that_no_second_could_save_ends_its_attempt_and_takes_no_alpha(problem, toy):
    """Within the SLA, but its bound is not, by little: one probe at 30/s, then half a step down."""
    proof = Proof(problem(), toy(), lambda _n, load: 295.0 if load > 29.5 else 200.0)
    assert proof.loads == [30.0, 29.24, 29.24]
    assert proof.outcome.judged == 1
    assert proof.outcome.failed[0].verdict is Verdict.UNDECIDED


def test_a_load_beyond_the_sla_goes_down_two_steps(problem, toy):
    proof = Proof(problem(), toy(), lambda _n, load: 700.0 if load > 29.0 else 200.0)
    assert proof.loads == [30.0, pytest.approx(30.0 * 0.95**2), pytest.approx(30.0 * 0.95**2)]


def test_a_third_seed_settles_what_two_leave_open(problem, toy):
    """The first two differ, which widens the bound; a third like the better one closes it."""
    seen = {1: 230.0, 2: 295.0}
    proof = Proof(problem(), toy(), lambda n, _load: seen.get(n, 230.0))
    assert proof.loads == [30.0, 30.0, 30.0]
    assert proof.outcome.judged == 2


def test_one_seed_that_seems_to_grow_calls_for_another_look(problem, toy):
    """One steady probe in twenty looks so by chance; its requests count all the same."""
    proof = Proof(problem(), toy(), lambda _n, _load: 200.0, growing=frozenset({1}))
    assert proof.loads == [30.0] * 3
    assert proof.outcome.judged == 1
    assert proof.outcome.result is not None
    assert "over 3 arrival seeds" in proof.outcome.result.message


def test_a_load_under_which_two_seeds_grow_is_left(problem, toy):
    proof = Proof(problem(), toy(), lambda _n, _load: 200.0, growing=frozenset({1, 2}))
    assert proof.loads == [30.0, 30.0, 28.5, 28.5]


def test_evidence_is_judged_five_times_at_most(problem, toy):
    """Each judgement has a fifth of alpha, whichever load and however many seeds it is about."""
    seeds = (230.0, 295.0, 299.0)  # of each load: two leave it open, and so does the third
    proof = Proof(problem(), toy(), lambda n, _load: seeds[(n - 1) % 3])
    assert proof.outcome.load is None
    assert proof.outcome.judged == 5
    assert [proof.loads.count(load) for load in sorted(set(proof.loads), reverse=True)] == [3, 3, 2]


def test_a_proof_gives_up_after_some_loads(problem, toy):
    proof = Proof(problem(), toy(), lambda _n, _load: 400.0)
    assert proof.outcome.load is None
    assert proof.outcome.judged == 0
    assert len(proof.loads) == len(proof.outcome.failed) == LOADS


def test_a_first_seed_is_not_begun_without_the_time_of_a_second(problem, toy):
    engine, experiment = toy(), Experiment(problem(budget=Budget(200.0, 200.0)))
    steps = confirm(experiment, Limits(96, 2048), OpenLoad(30.0))
    with pytest.raises(StopIteration) as ended:
        steps.send(engine.answer(next(steps)))
    assert ended.value.value.out_of_budget
    assert experiment.probes == []
