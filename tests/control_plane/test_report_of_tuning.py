"""``vllm-tuning report NAME`` against a real API server: during a run, after it, and long after."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.operator_process import Operator, a_tuning
from tests.played_node import PlayedNode, a_played_target
from tests.rest import path_of
from tests.unit.reconcile.bench_events import BETTER
from vllm_tuning.cli.main import app
from vllm_tuning.report.model import REPORT, Report

pytestmark = pytest.mark.control_plane


@pytest.fixture
def ask(operator: Operator, tmp_path: Path):
    """Run the command with the operator's own rights: reading is all it may need of them."""

    def run(*arguments: str) -> Result:
        place = ("-n", operator.namespace, "--kubeconfig", str(tmp_path / "kubeconfig"))
        return CliRunner().invoke(app, ["report", *arguments, *place])

    return run


def read(done: Result) -> Report:
    assert done.exit_code == 0, done.output
    return REPORT.validate_json(done.stdout, strict=True, extra="forbid")


def test_a_tuning_is_told_from_its_log_and_then_from_what_is_stored(
    operator: Operator, ask, tmp_path: Path
) -> None:
    nobody = ask("llama")
    assert nobody.exit_code == 2
    assert f"no VLLMTuning llama in namespace {operator.namespace}" in nobody.output

    operator.kubectl("get", "vtrial")  # waits until a kind that has just been made is served
    node = PlayedNode(operator)
    node.hold_after = 4
    operator.apply(a_played_target("llama"), a_tuning("llama"))

    def trials(count: int) -> bool:
        node.step()
        return len(operator.items("vllmtrials")) >= count

    operator.wait(lambda: trials(2), "the first answers")
    halfway = read(ask("llama", "-o", "json"))
    assert not halfway.complete
    assert halfway.probes
    assert halfway.problem is not None

    node.hold_after = None
    operator.wait(lambda: trials(4), "all answers")
    operator.wait_for("llama", "Succeeded", "True")
    fresh = read(ask("llama", "-o", "json"))
    assert fresh.complete
    assert [probe.probe.id for probe in fresh.probes] == ["p1", "p2", "p3"]
    assert fresh.target == "Deployment llama"
    assert fresh.gpu_seconds is not None

    for job in operator.items("jobs"):  # as its TTL does
        path = path_of("jobs", operator.namespace, job["metadata"]["name"])
        operator.must("DELETE", path, {"propagationPolicy": "Foreground"})
    operator.wait(lambda: not operator.items("jobs"), "the Job's end")
    stored = read(ask("llama", "-o", "json"))
    assert (stored.probes, stored.starts) == (fresh.probes, fresh.starts)
    found = stored.recommendation
    assert found is not None
    assert fresh.recommendation is not None
    assert found.limits == BETTER
    assert found.message == fresh.recommendation.message
    assert found.parameters == fresh.recommendation.parameters
    assert found.gain_percent == fresh.recommendation.gain_percent
    assert found.load == fresh.recommendation.load

    page = tmp_path / "page.html"
    assert ask("llama", "--html", str(page)).exit_code == 0
    assert "max_num_seqs=64" in page.read_text()
    terminal = ask("llama")
    assert "Recommended" in terminal.output
    assert "max_num_seqs: 4 → 64" in terminal.output
