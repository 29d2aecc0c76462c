"""Defaults by device and release (reference: get_batch_defaults of each release)."""

from __future__ import annotations

import pytest

from vllm_tuning.engine.defaults import GIB, default_limits


@pytest.mark.parametrize(
    ("version", "memory", "name", "seqs", "tokens"),
    [
        ("0.12.0", 80 * GIB, "NVIDIA H100 80GB HBM3", 1024, 8192),
        ("0.12.0", 141 * GIB, "NVIDIA H200", 1024, 8192),
        ("0.12.0", 80 * GIB, "NVIDIA A100-SXM4-80GB", 256, 2048),
        ("0.8.5", 80 * GIB, "NVIDIA A100-SXM4-80GB", 1024, 8192),
        ("0.27.1", 180 * GIB, "NVIDIA B200", 1024, 8192),
        ("0.28.0", 180 * GIB, "NVIDIA B200", 1024, 16384),
        ("0.32.0", 119 * GIB, "NVIDIA GB10", 1024, 8192),
        ("0.33.0", 119 * GIB, "NVIDIA GB10", 256, 2048),
        ("0.32.0", 22 * GIB, "NVIDIA L4", 256, 2048),
        ("0.32.0", None, None, 256, 2048),
        ("0.32.0", 8 * GIB, "cpu", 128, 2048),
        (None, 180 * GIB, "NVIDIA B200", 1024, 16384),
    ],
)
def test_tiers(version, memory, name, seqs, tokens):
    limits = default_limits(version, memory, name)
    assert (limits.max_num_seqs, limits.max_num_batched_tokens) == (seqs, tokens)


def test_a_budget_lowers_the_default_seqs_since_0_10_1():
    assert (
        default_limits("0.12.0", 80 * GIB, "h100", max_num_batched_tokens=512).max_num_seqs == 512
    )
    assert (
        default_limits("0.10.0", 80 * GIB, "h100", max_num_batched_tokens=512).max_num_seqs == 1024
    )


def test_a_default_budget_is_not_above_what_a_batch_can_use():
    limits = default_limits("0.12.0", 80 * GIB, "h100", max_num_seqs=4, max_model_len=1024)
    assert limits.max_num_batched_tokens == 4096


def test_without_chunked_prefill_a_budget_holds_a_whole_prompt():
    limits = default_limits("0.12.0", 22 * GIB, "l4", chunked_prefill=False, max_model_len=8192)
    assert limits.max_num_batched_tokens == 8192


def test_memory_share():
    assert default_limits("0.19.1", None).gpu_memory_utilization_percent == 90
    assert default_limits("0.20.2", None).gpu_memory_utilization_percent == 92
