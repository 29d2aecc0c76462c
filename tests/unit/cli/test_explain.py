"""``vllm-tuning explain`` on what a run leaves behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from vllm_tuning.cli.explain import UnreadableError, explain_text
from vllm_tuning.cli.main import app
from vllm_tuning.tuning.model import (
    DecisionStep,
    Ending,
    EngineFacts,
    Limits,
    OpenLoad,
    Probe,
    ProbeResult,
    Purpose,
    Recommendation,
    Start,
    StartResult,
    Verdict,
)
from vllm_tuning.tuning.run import EVENT, ProbeEnded, RunEnded, StartEnded

START = StartResult(
    Start("s1", Purpose.CALIBRATE, Limits(256, 8192), hook=True, why="the envelope"),
    92.0,
    facts=EngineFacts(kv_cache_tokens=97_488),
)
PROBE = ProbeResult(
    Probe("p1", Purpose.SEARCH, Limits(96, 2048), OpenLoad(38.0), 1, 30.0, why="does it hold?"),
    Verdict.FAIL, "SLOViolated", "p95 TTFT 412 ms > 300 ms", seconds=35.0,
)  # fmt: skip
FOUND = Recommendation(
    Ending.SLA_UNSATISFIABLE,
    "No limits meet the SLA.",
    decisions=(DecisionStep("SLA", "p95 TTFT ≤ 300 ms", "TTFT binds"),),
    engine_starts=1, probes=1, engine_seconds=127.0,
)  # fmt: skip


@pytest.fixture
def log() -> str:
    events = (
        StartEnded(1, 1.0, START, 92.0),
        ProbeEnded(2, 2.0, PROBE, 127.0),
        RunEnded(3, 3.0, FOUND, 127.0),
    )
    lines = [EVENT.dump_json(event).decode() for event in events]
    return "\n".join([lines[0], "INFO a line of something else", *lines[1:]])


def test_a_log_reads_as_a_trace_with_its_decisions(log: str):
    text = "\n".join(explain_text(log))
    assert "start seqs 256, tokens 8192, with live limits: ready, KV cache 97,488 tokens" in text
    assert "seqs 96, tokens 2048 at 38 req/s: FAIL SLOViolated" in text
    assert "| does it hold?" in text
    assert "SLAUnsatisfiable: No limits meet the SLA." in text
    assert "SLA: p95 TTFT ≤ 300 ms - TTFT binds" in text


def test_a_log_that_was_cut_off_says_that_the_run_has_not_ended(log: str):
    assert explain_text("\n".join(log.splitlines()[:2]))[-1] == "The run has not ended."


def test_a_document_with_a_recommendation_is_explained():
    from pydantic import TypeAdapter

    stored = TypeAdapter(Recommendation).dump_json(FOUND).decode()
    assert explain_text(stored) == explain_text(f'{{"recommendation": {stored}}}')


@pytest.mark.parametrize("text", ["", "hello\nworld", '{"spec": {}}', "[1, 2]"])
def test_anything_else_is_refused_with_what_is_expected(text: str):
    with pytest.raises(UnreadableError, match="recommendation"):
        explain_text(text)


def test_the_command_reads_a_file_and_fails_clearly(tmp_path: Path, log: str):
    stored = tmp_path / "bench.log"
    stored.write_text(log)
    shown = CliRunner().invoke(app, ["explain", str(stored)])
    assert shown.exit_code == 0, shown.output
    assert "cost: 1 starts, 1 probes, 127 GPU-seconds" in shown.output
    missing = CliRunner().invoke(app, ["explain", str(tmp_path / "nothing")])
    assert missing.exit_code == 2
    assert "No such file" in missing.output
