"""FAIL may come early, PASS never does; and what is not known is never a hit."""

import numpy as np
import pytest

from vllm_tuning.tuning.evidence import DESIGN_EFFECT_FLOOR, design_effect, growth, wilson
from vllm_tuning.tuning.model import SLO, Limits, Metric, OpenLoad, Probe, Purpose, Verdict
from vllm_tuning.tuning.samples import RequestSamples, RequestStatus, Window
from vllm_tuning.tuning.verdict import judge

TTFT = SLO(Metric.TTFT, percentile=95, max_milliseconds=300)
TPOT = SLO(Metric.TPOT, percentile=95, max_milliseconds=20)
WINDOWS = (Window(0.0, 30.0), Window(30.0, 60.0))
STEADY = [(float(t), 20) for t in range(60)]


def probe(*, decide: bool = True, windows: int = 2, alpha: float = 0.05) -> Probe:
    return Probe(
        id="p", purpose=Purpose.CONFIRM, limits=Limits(64, 2048), load=OpenLoad(20.0), seed=1,
        window_seconds=30.0, windows=windows, decide=decide, alpha=alpha,
    )  # fmt: skip


def stream(
    *, ttft_ms: float | list[float] = 100.0, tpot_ms: float = 10.0, rate: float = 20.0,
    seconds: float = 60.0,
) -> RequestSamples:  # fmt: skip
    at = np.arange(0.0, seconds, 1.0 / rate)
    first = at + np.broadcast_to(ttft_ms, at.shape) / 1e3
    return RequestSamples.of(
        scheduled_at=at,
        first_token_at=first,
        last_token_at=first + tpot_ms * 99 / 1e3,
        output_tokens=[100] * len(at),
    )


def pattern(share_within: float, count: int = 1200) -> list[float]:
    """Misses spread evenly, so that blocks do not differ."""
    misses = np.floor(np.arange(1, count + 1) * (1 - share_within)) > np.floor(
        np.arange(count) * (1 - share_within)
    )
    return [900.0 if miss else 100.0 for miss in misses]


def test_a_sound_point_passes_when_the_probe_may_decide():
    judgement = judge(stream(), [TTFT, TPOT], probe(), windows=WINDOWS, in_flight=STEADY)
    assert (judgement.verdict, judgement.reason) == (Verdict.PASS, "WithinSLO")
    assert "100.0% of 1200 requests within" in judgement.message


def test_the_same_point_is_only_provisional_when_the_probe_may_not_decide():
    judgement = judge(stream(), [TTFT], probe(decide=False), windows=WINDOWS, in_flight=STEADY)
    assert (judgement.verdict, judgement.reason) == (Verdict.UNDECIDED, "LooksWithinSLO")


def test_one_complete_window_is_not_enough_for_a_pass():
    windows = (Window(0.0, 30.0), Window(30.0, 60.0, complete=False))
    judgement = judge(stream(), [TTFT], probe(), windows=windows, in_flight=STEADY)
    assert (judgement.verdict, judgement.reason) == (Verdict.UNDECIDED, "WindowsIncomplete")


def test_just_above_the_target_is_too_close_to_call():
    samples = stream(ttft_ms=pattern(0.955))
    judgement = judge(samples, [TTFT], probe(), windows=WINDOWS, in_flight=STEADY)
    assert (judgement.verdict, judgement.reason) == (Verdict.UNDECIDED, "TooCloseToCall")


def test_a_smaller_share_of_alpha_demands_more():
    samples = stream(ttft_ms=pattern(0.975))
    loose = judge(samples, [TTFT], probe(alpha=0.1), windows=WINDOWS, in_flight=STEADY)
    strict = judge(samples, [TTFT], probe(alpha=0.001), windows=WINDOWS, in_flight=STEADY)
    assert (loose.verdict, strict.verdict) == (Verdict.PASS, Verdict.UNDECIDED)


def test_fail_comes_early_from_requests_that_still_run():
    at = np.arange(0.0, 5.0, 0.05)
    samples = RequestSamples.of(
        scheduled_at=at, status=[RequestStatus.PENDING] * len(at), ended_at=[np.nan] * len(at)
    )
    running = (Window(0.0, 5.0, complete=False),)
    late = judge(samples, [TTFT], probe(), windows=running, in_flight=[], now=5.0)
    assert (late.verdict, late.reason) == (Verdict.FAIL, "SLOViolated")
    soon = judge(samples, [TTFT], probe(), windows=running, in_flight=[], now=0.2)
    assert soon.verdict is Verdict.UNDECIDED


def test_every_slo_of_the_set_must_hold():
    samples = stream(tpot_ms=25.0)
    judgement = judge(samples, [TTFT, TPOT], probe(), windows=WINDOWS, in_flight=STEADY)
    assert judgement.verdict is Verdict.FAIL
    assert [result.verdict for result in judgement.slos] == [Verdict.PASS, Verdict.FAIL]
    assert "TPOT" in judgement.message
    assert "TTFT" not in judgement.message


@pytest.mark.parametrize(
    "status", [RequestStatus.TIMEOUT, RequestStatus.SERVER_ERROR, RequestStatus.REJECTED]
)
def test_failed_requests_are_misses(status: RequestStatus):
    good = stream()
    statuses = np.where(np.arange(len(good)) % 5 == 0, int(status), int(RequestStatus.OK))
    samples = RequestSamples.of(
        scheduled_at=good.scheduled_at,
        first_token_at=good.first_token_at,
        last_token_at=good.last_token_at,
        output_tokens=[100] * len(good),
        status=statuses,
    )
    judgement = judge(samples, [TTFT], probe(), windows=WINDOWS, in_flight=STEADY)
    assert judgement.verdict is Verdict.FAIL
    assert judgement.slos[0].attainment == pytest.approx(0.8)


def test_a_growing_queue_fails_even_while_all_latencies_are_within():
    growing = [(float(t), 10 + t) for t in range(60)]
    judgement = judge(stream(), [TTFT], probe(), windows=WINDOWS, in_flight=growing)
    assert (judgement.verdict, judgement.reason) == (Verdict.FAIL, "QueueGrowing")


def test_a_gentle_slope_withholds_the_pass():
    creeping = [(float(t), round(40 + t * 0.3)) for t in range(60)]
    judgement = judge(stream(), [TTFT], probe(), windows=WINDOWS, in_flight=creeping)
    assert (judgement.verdict, judgement.reason) == (Verdict.UNDECIDED, "QueueGrowing")


def test_a_missing_metric_is_never_a_zero():
    slo = SLO(Metric.PREEMPTION_RATE, max_percent=1)
    unknown = judge(stream(), [slo], probe(), windows=WINDOWS, in_flight=STEADY)
    assert (unknown.verdict, unknown.reason) == (Verdict.UNDECIDED, "NotMeasured")
    measured = judge(stream(), [slo], probe(), windows=WINDOWS, in_flight=STEADY, preemptions=0)
    assert measured.verdict is Verdict.PASS
    many = judge(stream(), [slo], probe(), windows=WINDOWS, in_flight=STEADY, preemptions=40)
    assert many.verdict is Verdict.FAIL


def test_one_token_outputs_have_no_tpot():
    at = np.arange(0.0, 60.0, 0.05)
    samples = RequestSamples.of(
        scheduled_at=at, first_token_at=at + 0.1, last_token_at=at + 0.1, output_tokens=[1] * 1200
    )
    judgement = judge(samples, [TPOT], probe(), windows=WINDOWS, in_flight=STEADY)
    assert (judgement.verdict, judgement.reason) == (Verdict.UNDECIDED, "NotMeasured")


def test_tokens_of_one_request_are_not_independent_evidence():
    itl = SLO(Metric.ITL, percentile=95, max_milliseconds=20)
    at = np.arange(0.0, 60.0, 6.0)  # ten requests with a hundred gaps each
    samples = RequestSamples.of(
        scheduled_at=at, first_token_at=at, last_token_at=at + 1, output_tokens=[101] * 10,
        gap_ms=[5.0] * 1000, gap_row=np.repeat(np.arange(10), 100),
    )  # fmt: skip
    judgement = judge(samples, [itl], probe(), windows=WINDOWS, in_flight=STEADY)
    assert judgement.slos[0].attainment == 1.0
    assert judgement.verdict is Verdict.UNDECIDED


def test_correlated_misses_inflate_the_design_effect():
    at = np.arange(0.0, 100.0, 0.1)
    even = (np.arange(1000) % 10 != 0).astype(float)
    clustered = np.ones(1000)
    clustered[400:500] = 0.0
    ones = np.ones(1000)
    assert design_effect(at, even, ones, block_seconds=5.0) == DESIGN_EFFECT_FLOOR
    assert design_effect(at, clustered, ones, block_seconds=5.0) > 20


def test_wilson_reproduces_the_known_sample_size():
    # Proving 95 % with zero misses takes 73 requests at two-sided 95 % (z = 1.96).
    assert wilson(73, 73, alpha=0.025).lower >= 0.95
    assert wilson(72, 72, alpha=0.025).lower < 0.95


def test_growth_of_a_flat_noisy_series_is_insignificant():
    series = np.random.default_rng(3).poisson(40, 200).astype(float)
    assert abs(growth(series)[1]) < 3.0
