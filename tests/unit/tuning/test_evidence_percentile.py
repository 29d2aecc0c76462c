"""The bound of a percentile knows that windows differ by more than their own requests show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vllm_tuning.tuning.evidence import (
    QUARTERS,
    STEADIEST,
    percentile_upper,
    quarter_percentiles,
)
from vllm_tuning.tuning.model import (
    SLO,
    Limits,
    Metric,
    OpenLoad,
    Probe,
    ProbeResult,
    Purpose,
    Verdict,
)
from vllm_tuning.tuning.pool import pool
from vllm_tuning.tuning.samples import RequestSamples, RequestStatus, Window
from vllm_tuning.tuning.verdict import judge

TTFT = SLO(Metric.TTFT, percentile=95, max_milliseconds=300)
WINDOWS = (Window(0.0, 30.0), Window(30.0, 60.0))
STEADY = [(float(t), 20) for t in range(60)]


def probe(*, decide: bool = True) -> Probe:
    return Probe(
        id="p", purpose=Purpose.CONFIRM, limits=Limits(64, 2048), load=OpenLoad(20.0), seed=1,
        window_seconds=30.0, windows=2, decide=decide,
    )  # fmt: skip


def stream(*medians_ms: float, spread: float = 0.12) -> RequestSamples:
    """Twenty requests a second with lognormal TTFT, of another median in each window."""
    at = np.arange(0.0, 30.0 * len(medians_ms), 0.05)
    medians = np.repeat(medians_ms, 600)
    first = at + medians / 1e3 * np.random.default_rng(5).lognormal(0.0, spread, len(at))
    return RequestSamples.of(
        scheduled_at=at, first_token_at=first, last_token_at=first + 1, output_tokens=[99] * len(at)
    )


def test_equal_windows_well_within_pass():
    judgement = judge(stream(150, 150), [TTFT], probe(), windows=WINDOWS, in_flight=STEADY)
    result = judgement.slos[0]
    assert judgement.verdict is Verdict.PASS
    assert len(result.quarter_milliseconds) == QUARTERS * len(WINDOWS)
    assert result.observed_milliseconds is not None
    assert result.upper_milliseconds is not None
    assert result.observed_milliseconds < result.upper_milliseconds < 300


def test_windows_that_differ_withhold_a_pass_that_the_share_alone_would_give():
    judgement = judge(stream(100, 230), [TTFT], probe(), windows=WINDOWS, in_flight=STEADY)
    result = judgement.slos[0]
    assert result.lower is not None
    assert result.upper_milliseconds is not None
    assert result.lower > 0.95
    assert result.upper_milliseconds > 300
    assert (judgement.verdict, judgement.reason) == (Verdict.UNDECIDED, "TooCloseToCall")


def test_a_queue_that_holds_a_quarter_up_counts_as_what_it_is():
    calm = stream(150, 150)
    late = np.where((calm.scheduled_at > 40) & (calm.scheduled_at < 42), 2.0, 0.0)
    held_up = RequestSamples.of(
        scheduled_at=calm.scheduled_at,
        first_token_at=calm.first_token_at + late,
        last_token_at=calm.last_token_at + late,
        output_tokens=calm.output_tokens,
    )
    judgement = judge(held_up, [TTFT], probe(), windows=WINDOWS, in_flight=STEADY)
    assert judgement.slos[0].attainment is not None
    assert judgement.slos[0].attainment > 0.95
    assert judgement.verdict is Verdict.UNDECIDED


def test_requests_that_never_answered_are_beyond_any_bound():
    good = stream(150, 150)
    status = np.where(np.arange(len(good)) % 10 == 0, RequestStatus.TIMEOUT, RequestStatus.OK)
    failed = RequestSamples.of(
        scheduled_at=good.scheduled_at,
        first_token_at=np.where(status == RequestStatus.OK, good.first_token_at, np.nan),
        last_token_at=good.last_token_at,
        output_tokens=good.output_tokens,
        status=status,
    )
    result = judge(failed, [TTFT], probe(), windows=WINDOWS, in_flight=STEADY).slos[0]
    assert result.upper_milliseconds is None
    assert max(result.quarter_milliseconds) == 50 * 300


def test_a_probe_that_may_not_decide_bounds_nothing():
    judgement = judge(
        stream(150, 150), [TTFT], probe(decide=False), windows=WINDOWS, in_flight=STEADY
    )
    assert judgement.slos[0].quarter_milliseconds == ()
    assert judgement.slos[0].upper_milliseconds is None


def test_an_empty_quarter_bounds_nothing():
    at = np.array([1.0, 20.0, 29.0])
    assert quarter_percentiles(at, at, [(0.0, 30.0)], percentile=95) == ()
    assert percentile_upper([10.0], (), alpha=0.05) is None


@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_the_calmest_run_still_has_a_margin(alpha: float):
    upper = percentile_upper([100.0], (100.0,) * 8, alpha=alpha)
    assert upper is not None
    assert 100 * np.exp(STEADIEST) < upper < 115


def test_more_windows_say_more_and_a_smaller_alpha_wants_more():
    quarters = (100.0, 110.0, 95.0, 105.0)
    bounds = [percentile_upper([105.0], quarters * count, alpha=0.01) for count in (2, 4, 6)]
    assert bounds == sorted(bounds, reverse=True)
    strict = percentile_upper([105.0], quarters * 2, alpha=0.001)
    assert strict is not None
    assert bounds[0] is not None
    assert strict > bounds[0]


def test_the_worse_probe_sets_the_common_percentile():
    both = percentile_upper([100.0, 200.0], (150.0,) * 16, alpha=0.05)
    assert both is not None
    assert both > 175


@pytest.mark.parametrize("between", [0.05, 0.15])
def test_the_true_percentile_is_within_the_bound_as_often_as_promised(between: float):
    """Windows that vary as the model says: three times what their quarters let expect."""
    rng = np.random.default_rng(11)
    windows, alpha, runs, outside = 4, 0.05, 2000, 0
    within = between / np.sqrt(3.0)
    for _ in range(runs):
        level = rng.normal(0.0, np.sqrt(between**2 - within**2), (windows, 1))
        quarters = np.exp(level + rng.normal(0.0, 2 * within, (windows, QUARTERS)))
        observed = float(np.exp(np.log(quarters).mean()))
        upper = percentile_upper([observed], quarters.ravel(), alpha=alpha)
        assert upper is not None
        outside += upper < 1.0
    # Few degrees of freedom are weighed as if they were all alike: a little beyond the level.
    assert outside / runs < 1.5 * alpha


def test_pooled_probes_need_the_quarters_of_each():
    samples = stream(150, 150)
    judgement = judge(samples, [TTFT], probe(), windows=WINDOWS, in_flight=STEADY)
    assert judgement.slos[0].quarter_milliseconds
    one = ProbeResult(
        probe(), judgement.verdict, "WithinSLO", "", seconds=70.0, slos=judgement.slos
    )
    bare = replace(one, slos=(replace(one.slos[0], quarter_milliseconds=()),))
    assert pool([one, one], alpha=0.01).verdict is Verdict.PASS
    assert pool([one, bare], alpha=0.01).verdict is Verdict.UNDECIDED
