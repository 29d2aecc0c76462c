"""Sums over readings, rates over samples, limits of validity, and the watch on ourselves."""

from __future__ import annotations

import asyncio
import math
import time
from time import perf_counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_tuning.bench import rates
from vllm_tuning.bench.load.selfwatch import ClientHealth, LoopWatch
from vllm_tuning.bench.metrics.deltas import engine_deltas, time_weighted_mean
from vllm_tuning.bench.metrics.scraper import MetricsScraper, Reading
from vllm_tuning.bench.probe import deadline_seconds
from vllm_tuning.bench.validity import Evidence, ValidityLimits, find_invalid
from vllm_tuning.engine.metrics import EnginePage
from vllm_tuning.tuning.model import SLO, Lengths, Metric, Workload
from vllm_tuning.tuning.samples import RequestSamples, RequestStatus, Window

from .probing import problem


def reading(at, **values):
    return Reading(at, EnginePage(**values))


# Readings


def test_a_late_reading_counts_for_the_time_it_stands_for():
    readings = [reading(0, running=10), reading(1, running=10), reading(9, running=2)]
    assert time_weighted_mean(readings, lambda page: page.running) == pytest.approx((10 + 48) / 9)


def test_deltas_are_of_the_span_only():
    readings = [
        reading(0, steps=0, step_tokens=0, preemptions=0, prefix_queries=0, prefix_hits=0),
        reading(10, steps=100, step_tokens=1000, preemptions=5, prefix_queries=50, prefix_hits=0),
        reading(20, steps=300, step_tokens=4000, preemptions=6, prefix_queries=150, prefix_hits=40),
        reading(30, steps=999, step_tokens=9999, preemptions=99, prefix_queries=999,
        prefix_hits=999),
    ]  # fmt: skip
    found = engine_deltas(readings, 10, 20)
    assert (found.steps, found.preemptions) == (200, 1)
    assert found.tokens_per_step == 15
    assert found.prefix_hit_fraction == 0.4
    assert found.running_mean is None


def test_the_hooks_maxima_are_of_its_present_window_over_ranks():
    records = [
        {
            "rank": rank,
            "window": 3,
            "running_max": 99,
            "windows": {
                "2": {"running_max": 50, "scheduled_tokens_max": 9000},
                "3": {"running_max": 16 + rank, "scheduled_tokens_max": 2048},
            },
        }
        for rank in range(2)
    ]
    found = engine_deltas([], 0, 1, hook=records)
    assert (found.hook_running_max, found.hook_scheduled_tokens_max) == (17, 2048)


async def test_a_page_that_cannot_be_read_leaves_a_gap(tiny_engine):
    import aiohttp

    engine = await tiny_engine()
    async with aiohttp.ClientSession() as session:
        scraper = MetricsScraper(session, engine.address, clock=lambda: 1.0, interval_seconds=0.01)
        engine.metrics_down = True
        assert await scraper.read() is None
        assert (scraper.failures, scraper.readings) == (1, [])
        engine.metrics_down = False
        assert (await scraper.read()).page.running == 0
        assert scraper.failures == 0


async def test_pages_are_kept_in_the_order_of_their_making(tiny_engine):
    import aiohttp

    engine = await tiny_engine()
    async with aiohttp.ClientSession() as session:
        scraper = MetricsScraper(session, engine.address, clock=perf_counter, interval_seconds=1)
        await asyncio.gather(*(scraper.read() for _ in range(20)))
    times = [reading.at for reading in scraper.readings]
    assert len(times) == 20
    assert times == sorted(times)
    # Each was asked for after the one before had come.
    assert engine.connections == 1


# Rates


def test_a_requests_tokens_count_by_the_share_of_its_stream_in_the_span():
    samples = RequestSamples.of(
        scheduled_at=[0, 0, 0],
        first_token_at=[0, 5, 20],
        last_token_at=[10, 15, 30],
        output_tokens=[100, 100, 100],
    )
    assert rates.output_token_rate(samples, 5, 10) == pytest.approx((50 + 50) / 5)
    assert rates.output_token_rate(samples, 0, 40) == pytest.approx(300 / 40)


# Shared machines stall: how long an example takes says nothing here.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.floats(0, 50), st.integers(1, 500)), min_size=1, max_size=20
    ),
    st.floats(1, 149),
)
def test_spans_that_touch_add_up(rows, cut):
    first = [start for start, _, _ in rows]
    samples = RequestSamples.of(
        scheduled_at=first,
        first_token_at=first,
        last_token_at=[start + length for start, length, _ in rows],
        output_tokens=[tokens for _, _, tokens in rows],
    )
    end = 151.0
    parts = rates.output_token_rate(samples, 0, cut) * cut
    parts += rates.output_token_rate(samples, cut, end) * (end - cut)
    assert parts == pytest.approx(sum(tokens for _, _, tokens in rows))


def test_goodput_is_joint():
    samples = RequestSamples.of(
        scheduled_at=[0] * 5,
        first_token_at=[0.1, 0.1, 0.9, 0.9, math.nan],
        last_token_at=[1.1, 2.1, 1.9, 3.0, math.nan],
        output_tokens=[11, 11, 11, 11, 0],
        status=[RequestStatus.OK] * 4 + [RequestStatus.TIMEOUT],
    )
    slos = (SLO(Metric.TTFT, 95, 500), SLO(Metric.TPOT, 95, 150))
    assert rates.goodput_fraction(slos, samples) == pytest.approx(1 / 5)
    assert rates.goodput_fraction((SLO(Metric.ERROR_RATE, max_percent=1),), samples) is None


def test_requests_count_in_the_window_they_were_scheduled_in():
    samples = RequestSamples.of(scheduled_at=[0.5, 1.0, 1.9, 2.0, 3.5])
    inside = rates.rows_in(samples, [Window(1, 2), Window(3, 4)])
    assert inside.scheduled_at.tolist() == [1.0, 1.9, 3.5]


# Limits of validity

TTFT = (SLO(Metric.TTFT, 95, 1000),)


@pytest.mark.parametrize(
    ("slos", "idle", "limit"),
    [
        (TTFT, 0.0, 50.0),  # 5 % of the bound
        (TTFT, 30.0, 120.0),  # four times the machine's own lateness
        (TTFT, 500.0, 200.0),  # but never more than 20 % of the bound
        ((SLO(Metric.TTFT, 95, 100),), 0.0, 10.0),
        ((SLO(Metric.TTFT, 95, 20),), 100.0, 10.0),
        ((SLO(Metric.TPOT, 95, 20),), 0.0, 10.0),
        ((SLO(Metric.TPOT, 95, 20),), 100.0, 50.0),
        ((*TTFT, SLO(Metric.MAX_GAP, 95, 400)), 500.0, 80.0),
    ],
)
def test_accepted_lateness_follows_the_machine_up_to_a_ceiling(slos, idle, limit):
    assert ValidityLimits().wait_limit_ms(slos, idle) == pytest.approx(limit)


def evidence(**changes) -> Evidence:
    calm = ClientHealth(lag_p99_ms=1, lag_max_ms=2, cpu_fraction=0.1, seconds=10)
    settings = {
        "slos": TTFT,
        "samples": RequestSamples.empty(),
        "measured": RequestSamples.empty(),
        "idle": calm,
        "busy": calm,
        "readings": (),
        "first": None,
        "last": None,
    }
    return Evidence(**{**settings, **changes})


def test_without_evidence_nothing_is_invalid():
    assert find_invalid(evidence()) is None


def test_cpu_beyond_the_limit_is_the_client():
    hot = ClientHealth(lag_p99_ms=1, lag_max_ms=2, cpu_fraction=0.97, seconds=10)
    assert find_invalid(evidence(busy=hot)).reason == "ClientCPU"


def test_one_late_send_in_two_hundred_is_within_the_limit():
    late = RequestSamples.of(scheduled_at=np.zeros(100), sent_at=np.full(100, 0.06))
    assert find_invalid(evidence(measured=late)).reason == "SendLateness"
    few = RequestSamples.of(scheduled_at=np.zeros(200), sent_at=np.r_[np.zeros(199), 0.06])
    assert find_invalid(evidence(measured=few)) is None


def test_a_deadline_follows_from_what_the_slos_allow():
    assert deadline_seconds(problem(slos=TTFT)) == 60
    slow = problem(
        slos=(SLO(Metric.TTFT, 95, 10_000), SLO(Metric.TPOT, 95, 100)),
        workload=Workload(Lengths(1), Lengths(500, cv_percent=10, maximum=1000)),
    )
    assert deadline_seconds(slow) == pytest.approx(4 * (10 + 100))
    endless = problem(slos=(SLO(Metric.E2E_LATENCY, 95, 10_000_000),))
    assert deadline_seconds(endless) == 1800


# The watch on ourselves


async def test_a_stall_is_seen_as_long_as_it_was():
    watch = LoopWatch()
    watch.start()
    begin = perf_counter()
    await asyncio.sleep(0.1)
    calm_until = perf_counter()
    time.sleep(0.4)  # noqa: ASYNC251 - the stall itself
    await asyncio.sleep(0.1)
    end = perf_counter()
    await watch.stop()
    stalled = watch.health(calm_until, end)
    assert stalled.lag_max_ms >= 350
    # Everything that came due in those 0.4 s was late, not one tick: nearly all of the time.
    assert stalled.lag_p99_ms >= 300
    assert watch.health(begin, end).seconds == pytest.approx(end - begin)


async def test_cpu_is_told_as_cores():
    watch = LoopWatch()
    watch.start()
    begin, used = perf_counter(), time.process_time()
    while perf_counter() < begin + 0.3:
        sum(range(2000))
        await asyncio.sleep(0)
    end = perf_counter()
    used = time.process_time() - used
    await watch.stop()
    assert watch.health(begin, end).cpu_fraction == pytest.approx(used / (end - begin), rel=0.4)
