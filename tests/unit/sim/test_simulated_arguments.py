"""The simulated server understands the command lines that vLLM 0.32 does."""

from __future__ import annotations

import pytest

from vllm_tuning.bench.sim.arguments import read, resolve
from vllm_tuning.bench.sim.parameters import PRESETS


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        ("--max_num_seqs 64", "max_num_seqs", 64),
        ("--max-num-seq=64", "max_num_seqs", 64),
        ("--max-num-seqs 1 --max-num-seqs 2", "max_num_seqs", 2),
        ("--max-num-batched-tokens 8k", "max_num_batched_tokens", 8000),
        ("--max-num-batched-tokens 8K", "max_num_batched_tokens", 8192),
        ("--max-num-batched-tokens 1.5k", "max_num_batched_tokens", 1500),
        ("--max-model-len auto", "max_model_len", -1),
        ("--no_enable_chunked_prefill", "enable_chunked_prefill", False),
        ("--no-enable-chunked-p", "enable_chunked_prefill", False),
        ("--gpu-mem 0.8", "gpu_memory_utilization", 0.8),
        ("--device-memory-utilization 0.5", "gpu_memory_utilization", 0.5),
        ("-tp 2", "tensor_parallel_size", 2),
        ("-O3 -O 2 -O.mode=3 --compilation-config.x 1 --max-num-seqs 5", "max_num_seqs", 5),
        ("--cudagraph-capture-sizes 1 2 4", "cudagraph_capture_sizes", [1, 2, 4]),
        ("--api-key secret", "api_key", ["secret"]),
    ],
)
def test_flags_are_read_as_vllm_reads_them(argv: str, name: str, value: object):
    known = read(["m", *argv.split()])
    assert getattr(known, name) == value
    assert known.model == "m"


@pytest.mark.parametrize(
    "argv",
    [
        "--max-num-s 4",
        "--max-num-seqs 64.0",
        "--max-num-batched-tokens 1.5K",
        "--enable-chunked-prefill=False",
        "--enable-chunked-prefill False",
        "--kv-cache-dtype fp16",
        "--swap-space 4",
        "--disable-log-requests",
    ],
)
def test_what_vllm_refuses_ends_with_code_2(argv: str):
    with pytest.raises(SystemExit) as ended:
        read(["m", *argv.split()])
    assert ended.value.code == 2


def test_a_secret_is_not_logged():
    given = read(["m", "--api-key", "secret"]).given
    assert "secret" not in repr(given)


@pytest.mark.parametrize(
    ("argv", "preset", "seqs", "tokens"),
    [
        ("", "h200-8b", 1024, 8192),
        ("", "a100-padded", 256, 2048),
        ("--max-num-batched-tokens 512", "h200-8b", 512, 512),
        ("--max-num-seqs 2 --max-model-len 64", "tiny", 2, 128),
        ("--no-enable-chunked-prefill --max-model-len 20k", "h200-8b", 1024, 20_000),
    ],
)
def test_defaults_are_those_of_the_simulated_device(argv: str, preset: str, seqs: int, tokens: int):
    settings = resolve(read(["m", *argv.split()]), PRESETS[preset])
    assert (settings.max_num_seqs, settings.max_num_batched_tokens) == (seqs, tokens)
