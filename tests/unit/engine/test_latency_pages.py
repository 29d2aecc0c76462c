"""What histograms tell, what they cannot tell, and engines that begin anew."""

from __future__ import annotations

import math

import pytest

from tests.metrics_page import page
from vllm_tuning.engine.latency import LatencyPage, add_pages, read_latencies


def test_a_share_is_exact_at_an_edge_and_an_interval_between_two():
    ttft = read_latencies(page([0.05] * 90 + [0.3] * 6 + [2.0] * 4)).histograms["TTFT"]
    assert ttft.count == 100
    assert ttft.share_within(0.25) == (0.90, 0.90)
    assert ttft.share_within(0.3) == (0.90, 0.96)
    assert ttft.share_within(5.0) == (0.96, 1.0)
    assert ttft.share_within(0.01) == (0.0, 0.90)
    assert ttft.around(0.3) == (0.25, 0.5)


def test_an_edge_in_another_spelling_is_the_same_edge():
    lines = [
        f'vllm:time_to_first_token_seconds_bucket{{le="{edge}"}} {count}\n'
        for edge, count in (("0.3", 7), ("+Inf", 10))
    ]
    text = "".join(lines)
    ttft = read_latencies(text).histograms["TTFT"]
    assert ttft.share_within(300 / 1e3) == ttft.share_within(3 * 0.1) == (0.7, 0.7)


def test_without_requests_there_is_no_share():
    assert read_latencies(page([])).histograms == {}
    with_none = read_latencies('vllm:time_to_first_token_seconds_bucket{le="+Inf"} 0\n')
    assert with_none.histograms["TTFT"].share_within(1) is None


def test_what_came_since():
    before, after = read_latencies(page([0.05] * 50)), read_latencies(page([0.05] * 60 + [0.4] * 5))
    window = after.since(before)
    assert window.histograms["TTFT"].count == 15
    assert window.histograms["TTFT"].share_within(0.25) == (10 / 15, 10 / 15)
    assert window.finished == {"stop": 15}


def test_an_engine_that_began_anew_counts_from_zero():
    before, after = read_latencies(page([0.05] * 50)), read_latencies(page([0.4] * 7))
    assert after.since(before).histograms["TTFT"].count == 7
    restarted = LatencyPage(finished={"stop": 80.0}, started_at=2000.0)
    earlier = LatencyPage(finished={"stop": 50.0}, started_at=1000.0)
    assert restarted.since(earlier).ended == 80  # more than before, and yet another process


@pytest.mark.parametrize(
    ("family", "metric"),
    [
        ("vllm:request_time_per_output_token_seconds", "TPOT"),
        ("vllm:inter_token_latency_seconds", "ITL"),
        ("vllm:time_per_output_token_seconds", "ITL"),
        ("vllm:e2e_request_latency_seconds", "E2ELatency"),
    ],
)
def test_each_family_is_what_it_measures(family: str, metric: str):
    found = read_latencies(f'{family}_bucket{{le="+Inf"}} 3\n').histograms
    assert set(found) == {metric}


def test_of_two_spellings_the_newest_is_read_never_both():
    lines = [
        f'vllm:{name}_seconds_bucket{{le="+Inf"}} 3\n'
        for name in ("inter_token_latency", "time_per_output_token")
    ]
    assert read_latencies("".join(lines)).histograms["ITL"].count == 3


def test_engines_add_up_at_the_edges_that_they_share():
    old = read_latencies(page([0.05] * 10, edges=(0.1, 1.0)))
    new = read_latencies(page([0.3] * 10))
    both = add_pages([old, new])
    assert sorted(both.histograms["TTFT"].cumulative) == [0.1, 1.0, math.inf]
    assert both.histograms["TTFT"].share_within(0.25) == (0.5, 1.0)
    assert both.ended == 20
