"""Metrics pages of several versions, cut to what is read; written by hand after real ones."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from vllm_tuning.engine.exposition import parse_samples
from vllm_tuning.engine.metrics import EnginePage, delta, read_page, restarted

V0_8 = """
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{model_name="m"} 3.0
vllm:num_requests_waiting{model_name="m"} 1.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.25
vllm:gpu_prefix_cache_queries_total{model_name="m"} 100.0
vllm:gpu_prefix_cache_hits_total{model_name="m"} 40.0
vllm:num_preemptions_total{model_name="m"} 2.0
vllm:time_per_output_token_seconds_count{model_name="m"} 10.0
"""

V0_10 = (
    V0_8
    + """
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.26
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 101.0
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 41.0
"""
)

V0_33 = """
process_start_time_seconds 1.79e+09
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 5.0
vllm:num_requests_waiting{engine="0",model_name="m"} 0.0
vllm:num_requests_waiting{engine="1",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.2
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.9
vllm:num_preemptions_total{engine="0",model_name="m"} 1.0
vllm:num_preemptions_total{engine="1",model_name="m"} 2.0
vllm:num_preemptions_created{engine="0",model_name="m"} 1.79e+09
vllm:prompt_tokens_total{engine="0",model_name="m"} 1000.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="m"} 8.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 1.0
vllm:request_success_total{engine="1",finished_reason="abort",model_name="m"} 2.0
vllm:iteration_tokens_total_bucket{engine="0",le="8.0",model_name="m"} 9.0
vllm:iteration_tokens_total_count{engine="0",model_name="m"} 11.0
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 640.0
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="5000"} 1.0
vllm:num_requests_running{engine="0",model_name="another"} 100.0
"""


def test_the_oldest_spellings():
    page = read_page(V0_8)
    assert (page.running, page.waiting, page.kv_usage) == (3, 1, 0.25)
    assert (page.prefix_queries, page.prefix_hits, page.preemptions) == (100, 40, 2)
    assert page.steps is None


def test_both_spellings_are_one_value_and_the_new_one_counts():
    page = read_page(V0_10)
    assert (page.kv_usage, page.prefix_queries, page.prefix_hits) == (0.26, 101, 41)


def test_ranks_are_summed_and_the_fullest_cache_told():
    page = read_page(V0_33, model="m")
    assert (page.running, page.waiting, page.kv_usage) == (8, 2, 0.9)
    assert (page.preemptions, page.engines) == (3, 2)


def test_another_models_series_are_left_out():
    assert read_page(V0_33, model="m").running == 8
    assert read_page(V0_33, model="another").running == 100


def test_the_histogram_with_the_counters_name_gives_the_steps():
    page = read_page(V0_33, model="m")
    assert (page.steps, page.step_tokens) == (11, 640)


def test_ends_and_aborts():
    page = read_page(V0_33, model="m")
    assert (page.finished, page.aborted) == (11, 3)


def test_the_cache_configuration():
    told = dict(read_page(V0_33, model="m").cache_config)
    assert (told["block_size"], told["num_gpu_blocks"]) == ("16", "5000")


def test_an_empty_page_knows_nothing():
    assert read_page("") == EnginePage()


def test_deltas():
    before = EnginePage(preemptions=1, steps=10)
    after = EnginePage(preemptions=4, steps=30, finished=5)
    assert delta(before, after, "preemptions") == 3
    assert delta(before, after, "finished") == 5  # its series was made on first use
    assert delta(before, after, "prompt_tokens") is None
    assert delta(after, before, "steps") is None  # it went backwards
    assert not restarted(before, after)


@pytest.mark.parametrize(
    "after",
    [
        EnginePage(started_at=160.0, steps=20),
        EnginePage(started_at=100.0, steps=9),
        EnginePage(started_at=100.0, created_at=60.0, steps=20),
    ],
)
def test_a_restart_shows_in_any_mark(after):
    assert restarted(EnginePage(started_at=100.0, created_at=50.0, steps=10), after)


def test_a_start_time_read_anew_may_be_rounded_differently():
    assert not restarted(EnginePage(started_at=100.0), EnginePage(started_at=100.01))


def test_label_values_may_hold_anything():
    text = 'a{x="}, {",y="q\\"uote",z="back\\\\slash\\nline"} 1.5 1700000000000\n'
    [sample] = parse_samples(text)
    assert sample.labels == {"x": "}, {", "y": 'q"uote', "z": "back\\slash\nline"}
    assert (sample.value, sample.timestamp_ms) == (1.5, 1_700_000_000_000)


@pytest.mark.parametrize("line", ["a", "a{", 'a{x="1"', "a{x=1} 2", 'a{x="1"} two', "{} 1"])
def test_lines_that_are_no_samples_are_skipped(line):
    assert [sample.name for sample in parse_samples(f"{line}\nb 1\n")] == ["b"]


# Shared machines stall: how long an example takes says nothing here.
calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

LABELS = st.dictionaries(
    st.from_regex(r"_?[a-z][a-z0-9_]{0,8}", fullmatch=True),  # "__..." is reserved
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=8),
    max_size=4,
)


@calmly
@given(LABELS, st.floats(allow_nan=False))
def test_what_the_official_client_writes_is_read_back(labels, value):
    registry = CollectorRegistry()
    gauge = Gauge("thing", "a thing", labelnames=list(labels), registry=registry)
    (gauge.labels(**labels) if labels else gauge).set(value)
    [sample] = parse_samples(generate_latest(registry).decode())
    assert (sample.name, dict(sample.labels), sample.value) == ("thing", labels, value)


@calmly
@given(st.text(max_size=200))
@example("\t")
def test_any_text_is_a_page(text):
    read_page(text)
    read_page(V0_33 + text, model="m")
