"""A machine that changes during the search: told by the canary, and its loads measured again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from tests.toy_engine import Run, ToyEngine, make_problem
from vllm_tuning.tuning.drift import CEILING, limit
from vllm_tuning.tuning.model import (
    ClosedLoad,
    Ending,
    Limits,
    Objective,
    OpenLoad,
    Percentiles,
    Probe,
    ProbeResult,
    Purpose,
    Verdict,
    Workload,
)


@dataclass
class Changing(ToyEngine):
    """All that it does takes ``slower`` times as long while ``slow`` probes are asked."""

    slow: range = range(0)
    slower: float = 1.25

    def answer(self, question):
        now = self.slower if self._probes() in self.slow else 1.0
        whole, self.peak = self.peak, self.peak / now
        answer = super().answer(question)
        self.peak = whole
        if isinstance(answer, ProbeResult):
            return replace(answer, tpot=replace(answer.tpot, p50=answer.tpot.p50 * now))
        return answer


def alone(asked) -> list[Probe]:
    return [p for p in asked if isinstance(p, Probe) and p.load == ClosedLoad(1)]


def again(asked) -> list[Probe]:
    return [p for p in asked if "the machine changed" in p.why]


@pytest.fixture
def calm(run: Run):
    engine = Changing(guard=0.0)
    found, _ = run(make_problem(), engine)
    return found, engine


def test_a_steady_machine_costs_no_probe(calm):
    found, engine = calm
    assert "canary" not in found.message
    assert len(alone(engine.asked)) == 2  # calibration, and the table's first row
    assert not again(engine.asked)


def before_the_table(engine: Changing) -> int:
    """How many probes there are before the table's single client."""
    probes = [p for p in engine.asked if isinstance(p, Probe)]
    return probes.index(alone(engine.asked)[-1])


def test_loads_are_measured_again_at_the_speed_that_the_machine_has_now(calm, run: Run):
    steady, engine = calm
    slow = Changing(guard=0.0, slow=range(before_the_table(engine), 1000))
    found, _ = run(make_problem(), slow)
    assert found.ending is Ending.RECOMMENDED
    assert "changed their pace by +25%" in found.message
    limits = {probe.limits for probe in again(slow.asked)}
    assert limits == {found.limits, make_problem().current}
    assert isinstance(found.load, OpenLoad)
    assert isinstance(steady.load, OpenLoad)
    assert found.load.rate_per_second == pytest.approx(steady.load.rate_per_second / 1.25, rel=0.1)
    attempts = {p.load for p in slow.asked if isinstance(p, Probe) and p.decide}
    assert len(attempts) <= 3  # without a new look it would go down from what is 25 % too much


def test_a_blip_of_one_canary_is_no_drift(calm, run: Run):
    _, engine = calm
    at = before_the_table(engine)
    blip = Changing(guard=0.0, slow=range(at, at + 1))
    found, _ = run(make_problem(), blip)
    assert "canary" not in found.message
    assert len(alone(blip.asked)) == 3  # looked once more
    assert not again(blip.asked)


def test_looks_that_err_on_opposite_sides_are_noise(calm, run: Run):
    _, engine = calm
    at = before_the_table(engine)

    @dataclass
    class Noisy(Changing):
        def answer(self, question):
            self.slower = 0.8 if "pace changed" in question.why else 1.25
            return super().answer(question)

    noisy = Noisy(guard=0.0, slow=range(at, 1000))
    found, _ = run(make_problem(), noisy)
    assert len(alone(noisy.asked)) == 3
    assert "canary" not in found.message


def test_an_answer_is_not_lost_where_it_cannot_be_measured_again(calm, run: Run):
    """The client lags from the moment at which the loads would be measured anew."""
    _, engine = calm
    at = before_the_table(engine)

    @dataclass
    class Lagging(Changing):
        def answer(self, question):
            answer = super().answer(question)
            if isinstance(question, Probe) and "the machine changed" in question.why:
                return replace(answer, verdict=Verdict.INVALID, reason="OtherLoad")
            return answer

    lagging = Lagging(guard=0.0, slow=range(at, 1000))
    found, _ = run(make_problem(), lagging)
    assert again(lagging.asked)
    assert "stayed as it was measured" in found.message
    assert found.ending is Ending.RECOMMENDED  # the proof goes down to what holds now


def test_scores_at_a_given_load_are_measured_again(run: Run):
    wanted = make_problem(
        objective=Objective.MIN_LATENCY,
        workload=Workload(
            make_problem().workload.input_tokens,
            make_problem().workload.output_tokens,
            rate_per_second=8.0,
        ),
    )
    engine = Changing(guard=0.0)
    run(wanted, engine)
    slow = Changing(guard=0.0, slow=range(before_the_table(engine), 1000))
    found, _ = run(wanted, slow)
    assert "canary" in found.message
    assert {p.load for p in again(slow.asked)} == {OpenLoad(8.0)}


def canary(p50: float, p90: float, count: int = 25) -> ProbeResult:
    probe = Probe("p", Purpose.CALIBRATE, Limits(1, 2048), ClosedLoad(1), 1, 10.0)
    return ProbeResult(
        probe, Verdict.UNDECIDED, "", "", 10.0, tpot=Percentiles(count, p50=p50, p90=p90)
    )


@pytest.mark.parametrize(
    ("p90", "accepted"),
    [(5.0, 0.05), (5.1, 0.05), (6.0, 0.166), (50.0, CEILING)],
)
def test_the_accepted_change_follows_the_canarys_own_scatter(p90: float, accepted: float):
    assert limit(canary(5.0, p90), canary(5.0, p90)) == pytest.approx(accepted, abs=0.001)
