"""The gain, what it may really be, and the replicas that follow from a capacity."""

from __future__ import annotations

import pytest

from tests.toy_engine import MakeProblem, Run, Toy, ToyEngine
from vllm_tuning.tuning.gain import Carried, gain_at_load, gain_in_load, replicas_for
from vllm_tuning.tuning.model import (
    ClosedLoad,
    Ending,
    Lengths,
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


def result(throughput: float, e2e: float = 1000.0) -> ProbeResult:
    probe = Probe("p", Purpose.SEARCH, Limits(8, 512), ClosedLoad(8), 1, 10.0)
    return ProbeResult(
        probe, Verdict.PASS, "", "", 10.0,
        output_tokens_per_second=throughput, e2e=Percentiles(100, mean=e2e),
    )  # fmt: skip


def test_a_gain_in_load_spans_from_bracket_to_bracket():
    gain = gain_in_load(Carried(40, 38, 42), Carried(20, 19, 21), baseline_fails=False)
    assert gain is not None
    assert gain.percent == pytest.approx(100)
    assert gain.range == pytest.approx((100 * (38 / 21 - 1), 100 * (42 / 19 - 1)), abs=0.1)


def test_overlapping_brackets_allow_a_loss_unless_the_baseline_failed_there():
    ours, theirs = Carried(41, 39, 42), Carried(39.5, 38, 41)
    gain = gain_in_load(ours, theirs, baseline_fails=False)
    assert gain is not None
    assert gain.low is not None
    assert gain.low < 0 < gain.percent
    failed = gain_in_load(ours, theirs, baseline_fails=True)
    assert failed is not None
    assert failed.low == 0.0


def test_a_baseline_that_was_not_followed_to_its_end_may_carry_as_much():
    gain = gain_in_load(Carried(40, 39, 42), Carried(38, 38, None), baseline_fails=False)
    assert gain is not None
    assert gain.low is not None
    assert gain.low < 0


def test_a_baseline_that_carries_nothing_has_no_gain():
    assert gain_in_load(Carried(40, 39, 42), Carried(0.0), baseline_fails=True) is None


def test_a_gain_at_one_load_spans_the_repeats_of_both_sides():
    gain = gain_at_load(
        Objective.MAX_THROUGHPUT, [result(110), result(112)], [result(100), result(98)], result(108)
    )
    assert gain is not None
    assert gain.percent == pytest.approx(100 * (108 / 98 - 1))
    assert gain.range == pytest.approx((8.0, 100 * (112 / 98 - 1)), abs=0.1)
    saved = gain_at_load(Objective.MIN_LATENCY, [result(1, 800)], [result(1, 1000)], result(1, 750))
    assert saved is not None
    assert saved.percent == pytest.approx(25)
    assert saved.range is None  # the baseline was measured once: its spread is not known


@pytest.mark.parametrize(
    ("rate", "capacity", "replicas"), [(100, 38.2, 3), (76.4, 38.2, 2), (1, 38.2, 1), (77, 38.2, 3)]
)
def test_replicas_are_rounded_up(rate: float, capacity: float, replicas: int):
    assert replicas_for(rate, capacity) == replicas


def test_a_workload_that_names_its_rate_is_told_its_replicas(
    problem: MakeProblem, toy: Toy, run: Run
):
    asked = problem(workload=Workload(Lengths(512), Lengths(128), rate_per_second=100.0))
    found, _ = run(asked, toy())
    assert found.ending is Ending.RECOMMENDED
    assert isinstance(found.load, OpenLoad)
    assert found.replicas == replicas_for(100.0, found.load.rate_per_second)
    assert f"100 requests/s need {found.replicas} replicas" in found.message
    assert found.gain_range_percent is not None
    low, high = found.gain_range_percent
    assert 0 < low < found.gain_percent < high


@pytest.mark.parametrize(
    ("current", "seed"),
    [
        (Limits(64, 2048), 0),  # they pass at the load to be confirmed
        (Limits(256, 4096), 0),  # 0.94 of the best: brackets overlap
    ],
)
def test_what_noise_does_not_tell_from_the_current_limits_is_no_improvement(
    problem: MakeProblem,
    toy: Toy,
    run: Run,
    *,
    current: Limits,
    seed: int,
):
    found, _ = run(problem(current=current, seed=seed, minimum_gain_percent=0.0), toy())
    assert found.ending is Ending.NO_IMPROVEMENT
    assert "noise does not tell" in found.message
    assert found.limits is None
    assert found.load is not None


def test_what_is_kept_is_what_is_confirmed(problem: MakeProblem, toy: Toy, run: Run):
    """The best budget carries a little more than the current one: not worth a change."""
    current = Limits(512, 4096)
    found, _ = run(problem(current=current, minimum_gain_percent=30.0), toy())
    assert found.ending is Ending.NO_IMPROVEMENT
    assert "below the least gain of 30 %" in found.message
    assert "The current limits are confirmed at" in found.message
    assert found.result is not None
    assert found.result.probe.limits == current
    assert found.gain_percent is not None
    assert 0 < found.gain_percent < 30


class Flattering(ToyEngine):
    """Single windows of the current limits look half as loaded again as they are."""

    def capacity(self, limits: Limits) -> float:
        asked = self.asked[-1]
        short = isinstance(asked, Probe) and not asked.decide and asked.windows == 1
        flattered = short and asked.purpose is Purpose.BASELINE
        return super().capacity(limits) * (1.5 if flattered else 1.0)


def test_the_current_limits_are_not_kept_for_a_lucky_window(problem: MakeProblem, run: Run):
    """They carry two thirds of the best, and seem to carry as much in the race."""
    current = Limits(40, 2048)
    found, answers = run(problem(current=current), Flattering(noise=0.0))
    assert found.ending is Ending.RECOMMENDED
    assert found.gain_percent is not None
    assert found.gain_percent > 5
    judged = [a.probe for a in answers if isinstance(a, ProbeResult) and a.probe.decide]
    assert Purpose.BASELINE in {probe.purpose for probe in judged if probe.limits == current}


def test_a_load_that_was_not_held_caps_what_is_said_to_be_carried():
    assert Carried(40, 38, 42).at_most(35) == Carried(35, 35, 35)
    assert Carried(20, 19, 21).at_most(35) == Carried(20, 19, 21)
    assert Carried(40).at_most(35) == Carried(35, None, 35)


def test_limits_that_an_idle_cap_tells_apart_are_measured_once(
    problem: MakeProblem, toy: Toy, run: Run
):
    """256 or 512 sequences, of which 60 run: the same server below the boundary."""
    found, answers = run(problem(current=Limits(256, 8192)), toy(best_tokens=8192))
    assert found.ending is Ending.NO_IMPROVEMENT
    assert "The current limits are the best found" in found.message
    asked = [answer.probe for answer in answers if isinstance(answer, ProbeResult)]
    in_final = {probe.limits for probe in asked if "final" in probe.why}
    assert Limits(256, 8192) in in_final
    assert Limits(512, 8192) not in in_final


class Tiring(ToyEngine):
    """From its final on it carries less than half of what the race saw."""

    def capacity(self, limits: Limits) -> float:
        tired = any(isinstance(asked, Probe) and "the final" in asked.why for asked in self.asked)
        return super().capacity(limits) * (0.4 if tired else 1.0)


def test_a_machine_that_becomes_too_slow_for_the_final_is_measured_once_more(
    problem: MakeProblem, run: Run
):
    found, answers = run(problem(), Tiring(noise=0.0))
    asked = [answer.probe for answer in answers if isinstance(answer, ProbeResult)]
    assert any("what is left of the best?" in probe.why for probe in asked)
    assert isinstance(found.load, OpenLoad)
    assert 10 < found.load.rate_per_second < 16
