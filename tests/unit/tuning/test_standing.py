"""Standing, pressure and the frontier of one configuration."""

from __future__ import annotations

import pytest

from vllm_tuning.tuning.model import (
    SLO,
    Limits,
    Metric,
    OpenLoad,
    Probe,
    ProbeResult,
    Purpose,
    SLOResult,
    Verdict,
)
from vllm_tuning.tuning.standing import Frontier, Standing, binding, pressure, standing

TTFT = SLO(Metric.TTFT, percentile=95, max_milliseconds=300)
TPOT = SLO(Metric.TPOT, percentile=95, max_milliseconds=20)


def point(
    load: float, *, used: float, within: float, verdict: Verdict = Verdict.UNDECIDED,
    reason: str = "", rate: float | None = None, tpot: float | None = None,
) -> ProbeResult:  # fmt: skip
    slos = [SLOResult(TTFT, within, observed_milliseconds=300 * used)]
    if tpot is not None:
        slos.append(SLOResult(TPOT, 1.0 if tpot <= 1 else 0.0, observed_milliseconds=20 * tpot))
    probe = Probe("p", Purpose.SEARCH, Limits(64, 2048), OpenLoad(load), 1, 30.0)
    return ProbeResult(
        probe, verdict, reason, "", seconds=30.0, request_rate=rate, slos=tuple(slos)
    )


def good(load: float, used: float = 0.5) -> ProbeResult:
    return point(load, used=used, within=1.0)


def bad(load: float, used: float = 2.0, rate: float | None = None) -> ProbeResult:
    return point(load, used=used, within=0.5, verdict=Verdict.FAIL, rate=rate)


def frontier(*points: ProbeResult) -> Frontier:
    made = Frontier()
    for result in points:
        made.add(result.probe.load.rate_per_second, result)
    return made


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (good(1), Standing.WITHIN),
        (bad(1), Standing.OVER),
        (point(1, used=1.01, within=0.94), Standing.NEAR),
        (point(1, used=0.5, within=1.0, reason="QueueGrowing"), Standing.NEAR),
        (point(1, used=0.5, within=1.0, verdict=Verdict.INVALID), Standing.UNKNOWN),
        (point(1, used=0.9, within=0.97, verdict=Verdict.PASS), Standing.WITHIN),
    ],
)
def test_standing_of_one_point(result: ProbeResult, expected: Standing):
    assert standing(result) is expected


def test_a_metric_that_was_not_measured_has_no_standing():
    result = ProbeResult(
        good(1).probe, Verdict.UNDECIDED, "NotMeasured", "", 1.0, slos=(SLOResult(TTFT, None),)
    )
    assert standing(result) is Standing.UNKNOWN


def test_the_binding_slo_is_the_most_used_up():
    result = point(1, used=0.6, within=1.0, tpot=0.9)
    bound = binding(result)
    assert bound is not None
    assert bound.slo is TPOT
    assert pressure(result) == pytest.approx(0.9)


def test_pressure_without_a_percentile_comes_from_the_misses():
    result = ProbeResult(
        good(1).probe, Verdict.FAIL, "", "", 1.0, slos=(SLOResult(TTFT, 0.0),)
    )  # all failed: there is no percentile to observe
    assert pressure(result) == pytest.approx(20.0)


def test_the_bracket_is_between_the_last_within_and_the_first_beyond():
    found = frontier(good(10), bad(20), good(14), bad(16))
    assert (found.low, found.high) == (14, 16)
    assert found.width == pytest.approx(16 / 14)
    assert 14 < (found.estimate() or 0) < 16


def test_one_lucky_point_does_not_move_the_boundary():
    found = frontier(good(10), bad(12), bad(13), good(14), bad(15))
    assert found.low == 10


def test_one_unlucky_point_does_not_either():
    found = frontier(good(10), bad(11), good(12), good(13), bad(15))
    assert found.low == 13


def test_a_tie_goes_to_the_lower_boundary():
    assert frontier(good(10), bad(12), good(13), bad(15)).low == 10


def test_nothing_within_has_no_estimate():
    found = frontier(bad(10), bad(5))
    assert found.low is None
    assert found.high == 5
    assert found.estimate() is None


def test_invalid_points_are_no_data():
    found = frontier(point(10, used=0.1, within=1.0, verdict=Verdict.INVALID))
    assert found.threshold is None
    with pytest.raises(ValueError, match="no load"):
        found.next_load()


def test_the_next_load_narrows_the_bracket():
    found = frontier(good(10, used=0.9), bad(20))
    following = found.next_load()
    assert 10 < following < 20
    assert following < 15  # the lower end is nearly at the bound


def test_an_open_bracket_grows_with_the_room_that_is_left():
    assert frontier(good(10, used=0.95)).next_load() == pytest.approx(11.5)
    assert frontier(good(10, used=0.1)).next_load() == pytest.approx(20.0)


def test_an_overloaded_engine_tells_what_it_serves_at_most():
    assert frontier(bad(100, rate=60.0)).next_load() == pytest.approx(54.0)
    # A probe that was stopped early has hardly counted anything: not below a third.
    assert frontier(bad(100, rate=5.0)).next_load() == pytest.approx(35.0)
    assert frontier(bad(100, used=1.2, rate=99.0)).next_load() == pytest.approx(85.0)
