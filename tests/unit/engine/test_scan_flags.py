"""Reading a command line as the engine's parser does (see vLLM's FlexibleArgumentParser)."""

from __future__ import annotations

import pytest

from vllm_tuning.engine.args import read_args
from vllm_tuning.engine.flags.scan import Fault, scan
from vllm_tuning.engine.flags.table import table_for


def values(words, version="0.12.0"):
    args = read_args({"command": ["vllm", "serve", *words]}, version=version)
    return {name: flag.value for name, flag in args.flags.items()}


@pytest.mark.parametrize(
    ("words", "read"),
    [
        (["--max_num_seqs", "64"], {"max_num_seqs": "64"}),
        (["--max-num_seqs=64", "--max-num-seqs", "8"], {"max_num_seqs": "8"}),
        (["--max-model-len", "-1"], {"max_model_len": "-1"}),
        (["--no_enable_chunked_prefill"], {"enable_chunked_prefill": "false"}),
        (["--enable-chunked-prefill", "--no-enable-ch"], {"enable_chunked_prefill": "false"}),
        (["-tp", "2", "-dp=4"], {"tensor_parallel_size": "2", "data_parallel_size": "4"}),
        (["-qawq"], {"quantization": "awq"}),
        (["-O3"], {"optimization_level": "3"}),
        (["-O", "2"], {"optimization_level": "2"}),
        (["-O=1"], {"optimization_level": "1"}),
        (
            ["--served-model-name", "a", "b", "--port", "1"],
            {"served_model_name": "a b", "port": "1"},
        ),
        (["--cudagraph-capture-sizes", "1", "2"], {"cudagraph_capture_sizes": "1 2"}),
        (["--speculative-config.method", "ngram"], {"speculative_config": '{"method": "ngram"}'}),
        (
            ["--speculative-config.a.b=1", "--speculative-config.a.c", "x"],
            {"speculative_config": '{"a": {"b": 1, "c": "x"}}'},
        ),
        (["--api-key", "k", "--", "--max-num-seqs", "8"], {"api_key": "k"}),
    ],
)
def test_values(words, read):
    assert values(["m", *words]) == read


def test_o_was_the_compilation_config_before_0_12():
    assert values(["m", "-O3"], "0.11.0") == {"compilation_config": "3"}


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--frobnicate"], Fault.UNKNOWN_FLAG),
        (["--swap-space", "4"], Fault.UNKNOWN_FLAG),
        (["--max-num", "4"], Fault.AMBIGUOUS_FLAG),
        (["--max-num-seqs"], Fault.MISSING_VALUE),
        (["--max-num-seqs", "--port", "1"], Fault.MISSING_VALUE),
        (["--enable-chunked-prefill=False"], Fault.UNEXPECTED_VALUE),
        (["--enable-chunked-prefill", "False"], Fault.UNEXPECTED_VALUE),
        (["-tp2"], Fault.UNKNOWN_FLAG),
    ],
)
def test_faults(words, fault):
    first = scan(words, table_for("0.20.2")).occurrences[0]
    assert first.fault is fault


def test_positionals_stand_where_argparse_sees_them():
    words = ["--enable-chunked-prefill", "m", "--max-num-seqs", "8", "--port 1"]
    assert scan(words, table_for("0.20.2")).positionals == (1, 4)


def test_a_removed_switch_does_not_swallow_the_model():
    words = ["--disable-log-requests", "m"]
    assert scan(words, table_for("0.20.2")).positionals == (1,)


@pytest.mark.parametrize(
    ("container", "model"),
    [
        ({"command": ["vllm", "serve", "m"]}, "m"),
        ({"command": ["vllm", "serve", "--model=m"]}, "m"),
        ({"command": ["python3", "-m", "vllm.entrypoints.openai.api_server", "m"]}, None),
        ({"command": ["python3", "-m", "vllm.entrypoints.cli.main", "serve", "m"]}, "m"),
        ({"command": ["vllm", "serve", "--port", "1"]}, None),
    ],
)
def test_model(container, model):
    read = read_args(container).model
    assert (read and read.value) == model
