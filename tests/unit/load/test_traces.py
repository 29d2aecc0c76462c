"""Published traces, in miniature, as they are published."""

from __future__ import annotations

import hashlib
import itertools

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_tuning.bench.load.traces import read_trace
from vllm_tuning.bench.workload import ProbeWorkload
from vllm_tuning.tuning.model import Lengths, OpenLoad, Workload
from vllm_tuning.tuning.recorded import TraceError, parse_trace

from .probing import probe

# Shared machines stall: how long an example takes says nothing here.
calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0319600,3180,8
2023-11-16 18:17:04.0781490,110,27
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:00.017335+00:00,2399,6
"""
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,0,417,API log
"""
MOONCAKE = """{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2, 3]}
{"timestamp": 3000, "input_length": 7322, "output_length": 490, "hash_ids": [0, 14, 15]}

{"timestamp": 3052, "input_length": "many", "output_length": 1}
{"timestamp": 3100
"""


def test_azure_2023():
    trace = parse_trace(AZURE_2023)
    assert (trace.kind, trace.bad_rows) == ("Azure", 0)
    assert [(row.input_tokens, row.output_tokens) for row in trace.rows] == [
        (4808, 10),
        (3180, 8),
        (110, 27),
    ]
    first, second, _ = trace.rows
    assert second.at_seconds - first.at_seconds == pytest.approx(0.052, abs=1e-5)


def test_azure_2024_has_zones():
    first, second = parse_trace(AZURE_2024).rows
    assert second.at_seconds - first.at_seconds == pytest.approx(0.007405, abs=1e-6)


def test_burstgpts_failed_requests_are_left_out_and_named():
    trace = parse_trace(BURST)
    assert [(row.at_seconds, row.input_tokens) for row in trace.rows] == [(5, 472), (45, 1087)]
    assert trace.bad_rows == 1
    assert trace.bad_examples == ("line 4: 417 input and 0 output tokens",)


def test_mooncake_keeps_its_blocks_and_names_its_bad_rows():
    trace = parse_trace(MOONCAKE)
    assert [row.at_seconds for row in trace.rows] == [0, 3]
    assert trace.rows[1].blocks == (0, 14, 15)
    assert trace.bad_rows == 2
    assert trace.bad_examples[0].startswith("line 4: ")
    assert trace.bad_examples[1].startswith("line 5: ")


def test_rows_are_put_in_order_of_arrival():
    shuffled = "\n".join([BURST.splitlines()[0], *reversed(BURST.splitlines()[1:])])
    assert [row.at_seconds for row in parse_trace(shuffled).rows] == [5, 45]


def test_windows_line_ends_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_bytes(b"\xef\xbb\xbf" + AZURE_2023.replace("\n", "\r\n").encode())
    assert len(read_trace(path).rows) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "neither"),
        ("a,b,c\n1,2,3\n", "neither"),
        (BURST.splitlines()[0], "no usable row: it is empty"),
        (BURST.splitlines()[0] + "\n1,ChatGPT\n", "2 of 6 columns"),
        ('{"timestamp": 0}\n', "no column 'input_length'"),
        ('{"timestamp": "nan", "input_length": 1, "output_length": 1}\n', "timestamp nan"),
    ],
)
def test_what_is_no_trace_says_why(text, said):
    with pytest.raises(TraceError, match=said):
        parse_trace(text)


@calmly
@given(st.text(max_size=300) | st.text(max_size=200).map(lambda text: BURST + text))
def test_any_text_is_a_trace_or_a_reason(text):
    try:
        trace = parse_trace(text)
    except TraceError:
        return
    assert trace.rows
    assert all(row.input_tokens > 0 and row.output_tokens > 0 for row in trace.rows)


def test_a_missing_file_is_a_reason(tmp_path):
    with pytest.raises(TraceError, match="absent"):
        read_trace(tmp_path / "absent.csv")


def test_its_lengths_are_told_as_a_workload_has_them():
    trace = parse_trace(AZURE_2023)
    assert trace.input_tokens == Lengths(mean=2699, cv_percent=72, maximum=4808)
    assert trace.output_tokens == Lengths(mean=15, cv_percent=57, maximum=27)
    assert trace.describe() == "3 requests over 0 s in Azure's format"
    assert parse_trace(BURST).describe() == (
        "2 requests over 40 s in BurstGPT's format; 1 row left out (line 4: 417 input and 0 "
        "output tokens)"
    )


def test_another_content_than_was_asked_for_is_refused(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(BURST)
    sha256 = hashlib.sha256(BURST.encode()).hexdigest()
    assert len(read_trace(path, sha256=sha256).rows) == 2
    path.write_text(BURST + "200,ChatGPT,1,1,2,Conversation log\n")
    with pytest.raises(TraceError, match="has changed since"):
        read_trace(path, sha256=sha256)


def test_a_probe_replays_a_trace_at_the_rate_it_is_asked_for(tmp_path, caplog):
    path = tmp_path / "burst.csv"
    path.write_text(BURST)
    declared = Workload(Lengths(1), Lengths(1), trace_path=str(path))
    workload = ProbeWorkload(declared, probe(OpenLoad(2.0)))
    times = list(itertools.islice(workload.arrivals(OpenLoad(2.0), ramp_seconds=0), 4))
    # One gap of the mean, then the trace again after another.
    assert times == pytest.approx([0, 0.5, 1.0, 1.5])
    assert "1 row left out (line 4" in caplog.text


def test_equal_blocks_are_equal_tokens(tmp_path):
    from vllm_tuning.bench.load.facts import ServerFacts
    from vllm_tuning.bench.load.prompts import Vocabulary

    path = tmp_path / "mooncake.jsonl"
    path.write_text(MOONCAKE)
    declared = Workload(Lengths(1), Lengths(1), trace_path=str(path))
    workload = ProbeWorkload(declared, probe(OpenLoad(2.0)))
    facts = ServerFacts(Vocabulary(100, 30_000), max_model_len=7000)
    source = workload.source(model="m", facts=facts)
    import json

    first, second = (json.loads(source.next().body) for _ in range(2))
    assert not workload.predictable_prefix
    assert first["prompt"][:512] == second["prompt"][:512]
    assert first["prompt"][512:1024] != second["prompt"][512:1024]
    assert len(first["prompt"]) + first["max_tokens"] == 7000
    assert len(second["prompt"]) + second["max_tokens"] == 7000
    assert source.shortened == 2
