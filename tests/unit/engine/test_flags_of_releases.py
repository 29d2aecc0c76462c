"""The flag table: what each release knows, and what a spelling means to it."""

from __future__ import annotations

import pytest

from vllm_tuning.engine.flags.checks import check_value
from vllm_tuning.engine.flags.model import Kind
from vllm_tuning.engine.flags.numbers import normalize
from vllm_tuning.engine.flags.table import (
    Ambiguous,
    lifetime,
    release_line,
    releases,
    table_for,
    table_of,
)


def test_ladder_is_whole():
    assert releases()[0] == "0.8.5"
    assert releases()[-1] >= "0.33.0"
    assert all(len(table_of(release).flags) > 130 for release in releases())


@pytest.mark.parametrize(
    ("name", "first", "gone"),
    [
        ("max_num_seqs", "0.8.5", None),
        ("kv_cache_memory_bytes", "0.10.2", None),
        ("swap_space", "0.8.5", "0.18.1"),
        ("num_scheduler_steps", "0.8.5", "0.10.1.1"),
        ("preemption_mode", "0.8.5", "0.11.0"),
        ("max_num_partial_prefills", "0.8.5", "0.27.1"),
        ("disable_log_requests", "0.8.5", "0.17.1"),
        ("max_num_active_seqs", "0.31.0", None),
        ("max_num_queued_reqs", "0.29.0", None),
    ],
)
def test_lifetimes(name, first, gone):
    assert lifetime(name) == (first, gone)


@pytest.mark.parametrize(
    ("version", "option", "meaning"),
    [
        ("0.25.1", "--max-num-s", "max_num_seqs"),
        ("0.26.0", "--max-num-s", None),  # max-num-scheduled-tokens came
        ("0.32.0", "--gpu-mem", "gpu_memory_utilization"),
        ("0.32.0", "--kv-cache-memory", "kv_cache_memory_bytes"),
        ("0.32.0", "--no-enable-chunked-p", "enable_chunked_prefill"),
        ("0.33.0", "--disable-chunked-prefill", "enable_chunked_prefill"),
        ("0.31.0", "--device-memory-utilization", "gpu_memory_utilization"),
        ("0.12.0", "-tp", "tensor_parallel_size"),
    ],
)
def test_spellings(version, option, meaning):
    match = table_for(version).match(option)
    if meaning is None:
        assert isinstance(match, Ambiguous)
    else:
        assert match.flag.name == meaning


@pytest.mark.parametrize(
    ("version", "release", "exact"),
    [
        ("0.19.0", "0.19.1", True),
        ("v0.11.1rc2+cu128", "0.11.1", True),
        ("0.8.1", "0.8.5", True),
        ("0.99.0", releases()[-1], False),
        ("0.7.3", "0.8.5", False),
        (None, releases()[-1], False),
        ("latest", releases()[-1], False),
    ],
)
def test_nearest_release(version, release, exact):
    table = table_for(version)
    assert (table.release, table.exact) == (release, exact)


def test_without_a_version_older_flags_are_recognised():
    assert table_for(None).match("--swap-space").flag.name == "swap_space"
    assert table_for("0.20.2").match("--swap-space") is None


def test_release_lines():
    assert release_line("0.18.1") == "0.18"
    assert release_line("0.10.2") == "0.10.2"


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("8k", Kind.HUMAN_INT, "8000"),
        ("8K", Kind.HUMAN_INT, "8192"),
        ("1.5k", Kind.HUMAN_INT, "1500"),
        ("1.5K", Kind.HUMAN_INT, None),
        ("25.6k", Kind.HUMAN_INT, "25600"),
        ("2G", Kind.HUMAN_INT, str(2 << 30)),
        ("8_192", Kind.INT, "8192"),
        (" 64 ", Kind.INT, "64"),
        ("1k", Kind.INT, None),
        ("64.0", Kind.INT, None),
        ("", Kind.INT, None),
        ("None", Kind.INT, None),
        ("auto", Kind.HUMAN_INT_OR_AUTO, "-1"),
        ("-1", Kind.HUMAN_INT_OR_AUTO, "-1"),
        ("auto", Kind.HUMAN_INT, None),
        (".9", Kind.FLOAT, "0.9"),
        ("90%", Kind.FLOAT, None),
    ],
)
def test_numbers(text, kind, value):
    assert normalize(text, kind) == value


def test_values_that_the_parser_refuses():
    table = table_for("0.12.0")
    for name, value in [
        ("max_num_seqs", "1k"),
        ("enable_chunked_prefill", "yes"),
        ("kv_cache_dtype", "fp16"),
        ("max_num_seqs", ["1", "2"]),
        ("served_model_name", []),
        ("speculative_config", "{"),
    ]:
        refusal = check_value(table.get(name), value)
        assert refusal is not None, name
        assert name in refusal.message
    assert check_value(table.get("kv_cache_dtype"), "fp8") is None
    assert check_value(table.get("max_num_batched_tokens"), "8k") is None
