"""Stored results under another SLA: never more than a measurement under it would have said."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import ceil

import pytest

from tests.simulated_bench import TINY, measure
from vllm_tuning.bench.sim.inprocess import SimulatedServer
from vllm_tuning.bench.sim.parameters import PRESETS
from vllm_tuning.tuning.model import (
    SLO,
    Answer,
    Budget,
    Ending,
    Limits,
    Metric,
    OpenLoad,
    Probe,
    ProbeResult,
    Problem,
    Purpose,
    Recommendation,
    Start,
    Verdict,
)
from vllm_tuning.tuning.rejudge import rejudge
from vllm_tuning.tuning.reuse import describe_question, reuse
from vllm_tuning.tuning.run import ProbeEnded, RunEnded, StartEnded
from vllm_tuning.tuning.search import Search
from vllm_tuning.tuning.standing import Standing, standing

LIMITS = Limits(32, 512)
PROBLEM = replace(TINY, quick=True)


def probed(rate: float, slos: tuple[SLO, ...], *, decide: bool) -> ProbeResult:
    """Measure one load on a fresh server: the same noise, whatever the SLA."""
    server = SimulatedServer(PRESETS["tiny"], seed=1)
    server.start(Start("s", Purpose.SEARCH, LIMITS, hook=True))
    probe = Probe(
        "p", Purpose.SEARCH, LIMITS, OpenLoad(rate), seed=3, window_seconds=6.0, windows=2,
        decide=decide,
    )  # fmt: skip
    return server.run(probe, replace(PROBLEM, slos=slos))


SLAS = [
    (SLO(Metric.TTFT, 50, 20),),
    (SLO(Metric.TTFT, 95, 60),),
    (SLO(Metric.TTFT, 95, 200),),
    (SLO(Metric.TPOT, 95, 8),),
    (SLO(Metric.TPOT, 90, 25),),
    (SLO(Metric.E2E_LATENCY, 90, 300),),
    (SLO(Metric.TTFT, 99, 500), SLO(Metric.ITL, 95, 30)),
    (SLO(Metric.MAX_GAP, 95, 100), SLO(Metric.ERROR_RATE, max_percent=1)),
    (SLO(Metric.TTFT, 95, 400), SLO(Metric.PREEMPTION_RATE, max_percent=0)),
]


@pytest.mark.parametrize("decide", [False, True])
@pytest.mark.parametrize("rate", [15.0, 75.0])
def test_it_says_nothing_that_a_measurement_would_not(rate: float, decide: bool):
    """Every stored SLA against every asked one; the truth is the same probe under the latter."""
    truth = {slos: probed(rate, slos, decide=decide) for slos in SLAS}
    told = 0
    for (old, stored), (new, true) in product(truth.items(), truth.items()):
        judged = rejudge(stored, new)
        if judged is None:
            assert old != new
            continue
        told += 1
        assert [part.slo for part in judged.slos] == list(new)
        if judged.verdict is Verdict.PASS:
            assert true.verdict is Verdict.PASS, (old, new, true.message)
        if judged.verdict is Verdict.FAIL:
            assert true.verdict is Verdict.FAIL, (old, new, true.message)
        if standing(judged) is Standing.WITHIN:
            assert standing(true) is Standing.WITHIN, (old, new, true.message)
        if standing(judged) is Standing.NEAR:
            assert standing(true) is not Standing.WITHIN, (old, new, true.message)
    assert told > len(SLAS)  # more than each under its own SLA


def test_a_probe_that_ended_at_its_early_fail_must_be_measured_for_a_looser_sla():
    strict = (SLO(Metric.TTFT, 95, 1),)
    stored = probed(60, strict, decide=False)
    assert stored.verdict is Verdict.FAIL
    assert stored.measured_seconds < 12.0
    assert rejudge(stored, (SLO(Metric.TTFT, 95, 1000),)) is None
    tighter = rejudge(stored, (SLO(Metric.TTFT, 99, 1),))
    assert tighter is not None
    assert tighter.verdict is Verdict.FAIL


def test_an_invalid_result_stays_invalid():
    probe = Probe("p", Purpose.SEARCH, LIMITS, OpenLoad(1), seed=1, window_seconds=1)
    invalid = ProbeResult(probe, Verdict.INVALID, "ClientLag", "late", seconds=1)
    assert rejudge(invalid, (SLO(Metric.TTFT, 50, 1000),)) is invalid


Run = tuple[list[Answer], Recommendation]


def run(problem: Problem) -> Run:
    events = measure(problem, ())
    answers = [event.result for event in events if isinstance(event, StartEnded | ProbeEnded)]
    assert isinstance(events[-1], RunEnded)
    return answers, events[-1].recommendation


@pytest.fixture(scope="module")
def stored() -> Run:
    return run(PROBLEM)


def test_the_same_sla_is_answered_from_what_is_stored(stored: Run):
    answers, before = stored
    assert before.ending in (Ending.RECOMMENDED, Ending.NO_IMPROVEMENT)
    assert reuse(PROBLEM, answers).recommendation == before
    frugal = replace(PROBLEM, budget=Budget(60, 60))  # what is measured is not paid for twice
    assert reuse(frugal, answers).recommendation == before


def test_a_bound_that_binds_nowhere_may_move_without_a_measurement(stored: Run):
    answers, before = stored
    slacker = (*PROBLEM.slos, SLO(Metric.E2E_LATENCY, 50, 60_000))
    found = reuse(replace(PROBLEM, slos=slacker), answers).recommendation
    assert found is not None
    assert (found.ending, found.limits, found.load) == (before.ending, before.limits, before.load)
    assert {margin.slo for margin in found.margins} == set(slacker)


def test_a_bound_that_binds_asks_for_the_first_load_that_was_not_measured(stored: Run):
    answers, _ = stored
    other = replace(PROBLEM, slos=(SLO(Metric.TTFT, 95, 2000), SLO(Metric.TPOT, 95, 25)))
    found = reuse(other, answers)
    assert found.recommendation is None
    assert 0 < len(found.answers) < len(answers)
    assert "at " in describe_question(found.question)
    search = Search(other)
    assert search.replay(found.answers) == len(found.answers)  # a run goes on from there
    assert search.ask() == found.question


def met_bounds(answers: list[Answer], found: Recommendation) -> tuple[SLO, ...]:
    """A stricter SLA that binds, and that every request of the confirmation was within."""
    result = found.result
    assert result is not None
    seeds = [
        answer
        for answer in answers
        if isinstance(answer, ProbeResult)
        and (answer.probe.purpose, answer.probe.load) == (Purpose.CONFIRM, result.probe.load)
    ]
    slowest = ceil(1.2 * max(seed.ttft.maximum or 0 for seed in seeds))
    assert slowest < 200
    return (SLO(Metric.TTFT, 95, slowest), PROBLEM.slos[1])


def test_a_stricter_sla_that_the_confirmed_load_meets_changes_nothing(stored: Run):
    answers, before = stored
    stricter = met_bounds(answers, before)
    found = reuse(replace(PROBLEM, slos=stricter), answers).recommendation
    assert found is not None
    assert (found.ending, found.limits, found.load) == (before.ending, before.limits, before.load)
    assert found.result is not None
    assert found.result.verdict is Verdict.PASS
    assert [margin.slo for margin in found.margins] == list(stricter)
    assert "stricter, and that load meets it" in found.message
    assert found.decisions[0].decision == "; ".join(map(str, stricter))


def test_a_stricter_sla_that_the_confirmed_load_does_not_meet_is_measured(stored: Run):
    answers, before = stored
    result = before.result
    assert result is not None
    beyond = tuple(
        replace(part.slo, max_milliseconds=max(1, int(0.9 * (part.observed_milliseconds or 0))))
        for part in result.slos
    )
    assert reuse(replace(PROBLEM, slos=beyond), answers).recommendation is None


def test_what_is_unsatisfiable_stays_so_under_a_stricter_sla():
    hopeless = replace(PROBLEM, slos=(SLO(Metric.TTFT, 95, 2),))
    answers, before = run(hopeless)
    assert before.ending is Ending.SLA_UNSATISFIABLE
    stricter = replace(PROBLEM, slos=(SLO(Metric.TTFT, 99, 1), SLO(Metric.TPOT, 95, 25)))
    found = reuse(stricter, answers).recommendation
    assert found is not None
    assert found.ending is Ending.SLA_UNSATISFIABLE
    looser = replace(PROBLEM, slos=(SLO(Metric.TTFT, 95, 200),))
    assert reuse(looser, answers).recommendation is None
