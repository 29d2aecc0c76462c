"""``vllm-tuning tune`` with a workload from a trace: the ConfigMap comes from its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.unit.reconcile.builders import a_deployment, a_tuning
from vllm_tuning.cli.main import app
from vllm_tuning.tuning.run import EVENT, RunFailed, StartEnded

TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,400,10
2023-11-16 18:17:13.9799600,200,30
"""


def tune(tmp_path: Path, *documents: dict[str, Any]) -> Any:
    """Run it on manifests whose engine is not installed here."""
    tuning = a_tuning(workload={"traceRef": {"name": "traces", "key": "azure.csv"}})
    target = a_deployment(env=[{"name": "PATH", "value": str(tmp_path)}])
    path = tmp_path / "manifests.yaml"
    path.write_text(yaml.safe_dump_all([tuning, target, *documents]))
    args = ["tune", "-f", str(path), "--out", str(tmp_path / "out"), "--quick"]
    return CliRunner().invoke(app, args)


def config_map(text: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "traces"},
        "data": {"azure.csv": text},
    }


@pytest.mark.parametrize(
    ("documents", "words"),
    [((), "TraceNotFound"), ((config_map("a,b\n"),), "TraceInvalid")],
    ids=["absent", "something else"],
)
def test_without_a_trace_that_can_be_read_nothing_is_started(
    tmp_path: Path, documents: tuple[dict[str, Any], ...], words: str
) -> None:
    done = tune(tmp_path, *documents)
    assert done.exit_code == 2
    assert words in done.output
    assert not (tmp_path / "out").exists()


def test_the_run_reads_the_trace_that_the_manifest_holds(tmp_path: Path) -> None:
    done = tune(tmp_path, config_map(TRACE))
    assert (tmp_path / "out" / "trace").read_text() == TRACE, done.output
    events = [EVENT.validate_json(line) for line in (tmp_path / "out" / "events.jsonl").open()]
    reasons = [event.reason for event in events if isinstance(event, RunFailed)]
    assert "TraceInvalid" not in reasons
    assert any(isinstance(event, StartEnded) for event in events)  # it came as far as the engine
