"""Priors, step model, pooling and pacing: the small parts of the search."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vllm_tuning.tuning.model import (
    SLO,
    Bounds,
    Budget,
    ClosedLoad,
    EngineFacts,
    Lengths,
    Limits,
    Metric,
    Objective,
    OpenLoad,
    Percentiles,
    Probe,
    ProbeResult,
    Problem,
    Purpose,
    SLOResult,
    Space,
    Verdict,
    Workload,
)
from vllm_tuning.tuning.pacing import QUICK, STANDARD, confirm_window, search_window
from vllm_tuning.tuning.pool import pool
from vllm_tuning.tuning.priors import (
    bucket_below,
    bucket_top,
    envelope,
    kv_concurrency,
    token_budgets,
    with_limits,
)
from vllm_tuning.tuning.stepmodel import fit

TTFT = SLO(Metric.TTFT, percentile=95, max_milliseconds=200)
TPOT = SLO(Metric.TPOT, percentile=95, max_milliseconds=20)
PROBLEM = Problem(
    slos=(TTFT, TPOT),
    objective=Objective.MAX_RATE,
    workload=Workload(Lengths(512), Lengths(128)),
    current=Limits(256, 8192),
    space=Space(),
    budget=Budget(7200, 7200),
)


@pytest.mark.parametrize(
    ("count", "top"),
    [(1, 1), (3, 4), (5, 8), (8, 8), (96.5, 104), (250, 256), (257, 272), (400, 400)],
)
def test_bucket_top(count: float, top: int):
    assert bucket_top(count) == top


@pytest.mark.parametrize(
    ("count", "below"), [(1, 1), (3, 2), (7, 4), (95, 88), (96, 96), (260, 256), (0.5, 1)]
)
def test_bucket_below(count: float, below: int):
    assert bucket_below(count) == below


def test_kv_capacity_gives_both_bounds_on_concurrency():
    """Measured on an H200 with 97,488 tokens and 512 + 512: preemption begins just above 95."""
    facts = EngineFacts(kv_cache_tokens=97_488, block_size=16)
    held = kv_concurrency(facts, Workload(Lengths(512), Lengths(512)))
    assert held is not None
    assert held[0] == pytest.approx(94.5, abs=1)
    assert held[1] == pytest.approx(125.6, abs=1)
    assert kv_concurrency(EngineFacts(), PROBLEM.workload) is None


def test_the_envelope_covers_current_limits_and_candidates():
    top = envelope(PROBLEM)
    assert top.max_num_seqs >= 256
    assert top.max_num_batched_tokens == max(token_budgets(PROBLEM))
    high = replace(PROBLEM, current=Limits(1024, 32768))
    assert envelope(high) == Limits(1024, 32768)


def test_bounds_that_exclude_the_current_value_do_not_exclude_it_from_the_envelope():
    space = Space(max_num_seqs=Bounds(8, 64), max_num_batched_tokens=Bounds(256, 1024))
    bounded = replace(PROBLEM, space=space)
    assert token_budgets(bounded) == (256, 512, 1024)
    assert envelope(bounded) == Limits(256, 8192)


def test_a_budget_is_never_below_the_cap():
    assert with_limits(Limits(256, 8192), tokens=128) == Limits(128, 128)


def result(
    *,
    rate: float = 1.5,
    ttft: float = 18.0,
    tpot: float | None = 4.9,
    slos: tuple[SLOResult, ...] = (),
) -> ProbeResult:
    return ProbeResult(
        Probe("p", Purpose.CALIBRATE, Limits(256, 8192), ClosedLoad(1), 1, 10.0),
        Verdict.UNDECIDED, "", "", 10.0, request_rate=rate, sent=100, completed=100,
        ttft=Percentiles(20, mean=ttft), tpot=Percentiles(20, mean=tpot), slos=slos,
    )  # fmt: skip


def test_the_step_model_follows_the_measured_h200():
    """18 ms alone, 4.9 ms a token; 64 clients at 8.8 ms and 38.8 requests/s (H200, 512 + 128)."""
    model = fit(PROBLEM, result(), result(rate=38.8, tpot=8.8))
    assert model is not None
    assert model.base == pytest.approx(0.0049)
    assert model.step(38.8) == pytest.approx(0.0088, rel=1e-6)
    carried = model.largest_load(Limits(256, 2048), PROBLEM.slos)
    assert 38 < carried < 80  # measured: about 44
    assert model.largest_load(Limits(256, 512), PROBLEM.slos) < carried
    assert model.largest_load(Limits(8, 2048), PROBLEM.slos) < carried / 2


def test_the_step_model_needs_a_first_token():
    assert fit(PROBLEM, replace(result(), ttft=Percentiles(0)), None) is None


def test_the_step_model_lives_without_tpot_and_without_a_loaded_probe():
    model = fit(PROBLEM, result(tpot=None), None)
    assert model is not None
    assert model.saturation > 0


def half(within: float, count: float | None, verdict: Verdict = Verdict.UNDECIDED) -> ProbeResult:
    slo = SLOResult(
        TTFT, within, verdict=verdict, observed_milliseconds=150.0, effective_count=count,
        quarter_milliseconds=(150.0,) * 8,
    )  # fmt: skip
    return result(slos=(slo,))


def test_pooled_seeds_pass_where_each_alone_is_too_close_to_call():
    pooled = pool([half(0.985, 170), half(0.985, 170)], alpha=0.01)
    assert pooled.verdict is Verdict.PASS
    assert pooled.completed == 200
    alone = pool([half(0.985, 170)], alpha=0.01)
    assert alone.verdict is Verdict.UNDECIDED


def test_pooling_weighs_by_what_the_requests_are_worth():
    pooled = pool([half(1.0, 900), half(0.95, 100)], alpha=0.05)
    assert pooled.slos[0].attainment == pytest.approx(0.995)


def test_a_part_that_was_not_measured_withholds_the_pass():
    missing = result(slos=(SLOResult(TTFT, None),))
    assert pool([half(1.0, 900), missing], alpha=0.05).verdict is Verdict.UNDECIDED


def test_rates_that_the_engine_counts_pass_only_if_every_part_did():
    passed = half(1.0, None, Verdict.PASS)
    assert pool([passed, passed], alpha=0.05).verdict is Verdict.PASS
    assert pool([passed, half(1.0, None)], alpha=0.05).verdict is Verdict.UNDECIDED


def test_windows_scale_with_latency_and_count():
    assert search_window(STANDARD, OpenLoad(50.0), 1.0) == 12.0
    assert search_window(STANDARD, OpenLoad(5.0), 1.0) == 40.0
    assert search_window(STANDARD, OpenLoad(2.0), 1.0) == 45.0
    assert search_window(STANDARD, OpenLoad(0.1), 40.0) == 200.0
    assert search_window(QUICK, OpenLoad(0.1), 40.0) == 200.0  # twenty requests


def test_confirmations_span_ten_latencies_and_thirty_seconds():
    assert confirm_window(STANDARD, PROBLEM, OpenLoad(50.0), 1.0) == 30.0
    assert confirm_window(STANDARD, PROBLEM, OpenLoad(50.0), 20.0) == 200.0
    fixed = replace(PROBLEM, window_seconds=7.0)
    assert confirm_window(STANDARD, fixed, OpenLoad(50.0), 20.0) == 7.0


def test_a_pool_needs_parts():
    with pytest.raises(ValueError, match="nothing"):
        pool([], alpha=0.05)
