"""The commands `flags` and `lint`: output, formats and exit codes."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tests.launch_corpus import DIRECTORY
from vllm_tuning.cli.main import app

runner = CliRunner()
BLOCK = str(DIRECTORY / "shell-block.yaml")


def run(*words, text=None):
    return runner.invoke(app, list(words), input=text)


def test_show_json():
    result = run("flags", "show", "-f", BLOCK, "-o", "json")
    assert result.exit_code == 0
    [container] = json.loads(result.stdout)["containers"]
    assert (container["name"], container["form"], container["version"]) == (
        "vllm",
        "Shell",
        "0.12.0",
    )
    seqs = container["flags"]["max_num_seqs"]
    assert (seqs["value"], seqs["source"]) == ("64", "Shell")
    assert seqs["where"].startswith("command[2]:")


def test_show_table_and_what_is_not_read():
    result = run("flags", "show", "-f", BLOCK)
    assert "max_num_seqs" in result.stdout
    result = run("flags", "show", "-f", str(DIRECTORY / "shell-eval.yaml"))
    assert result.exit_code == 0
    assert "not read: `eval`" in result.stdout
    result = run("flags", "show", "-f", str(DIRECTORY / "kind-ray-service.yaml"), "-o", "json")
    assert json.loads(result.stdout)["containers"][0]["refusal"]["reason"] == "RayManaged"


def test_set_writes_the_whole_file_and_nothing_else():
    before = (DIRECTORY / "yaml-crlf.yaml").read_bytes()
    result = run("flags", "set", "-f", str(DIRECTORY / "yaml-crlf.yaml"), "max_num_seqs=96")
    assert result.exit_code == 0
    edited = before.replace(b"--max-num-seqs 64", b"--max-num-seqs 96")
    assert edited != before
    assert result.stdout_bytes == edited


def test_set_from_standard_input():
    text = (DIRECTORY / "kind-multi-document.yaml").read_text()
    result = run("flags", "set", "-f", "-", "max-num-seqs=96", text=text)
    assert result.stdout == text.replace('"64"', '"96"')


def test_set_diff_and_patch():
    diff = run("flags", "set", "-f", BLOCK, "max_num_seqs=96", "--diff").stdout
    changed = [line for line in diff.splitlines() if line[:1] in "+-" and line[1:2] not in "+-"]
    assert changed == ["-            --max-num-seqs 64 \\", "+            --max-num-seqs 96 \\"]
    patch = json.loads(run("flags", "set", "-f", BLOCK, "max_num_seqs=96", "--json-patch").stdout)
    assert [op["op"] for op in patch] == ["test", "test", "replace"]
    assert patch[-1]["path"] == "/spec/template/spec/containers/0/command/2"


def test_set_removes_and_takes_lists():
    text = (DIRECTORY / "argv-list-flags.yaml").read_text()
    result = run("flags", "set", "-f", "-", "max_num_seqs-", "served_model_name=x,y", text=text)
    assert result.exit_code == 0
    assert "max-num-seqs" not in result.stdout.partition("spec:")[2]
    assert '- x\n        - "y"' in result.stdout or "- x\n        - y" in result.stdout


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("shell-eval.yaml", "EvalCommand"),
        ("template-helm.yaml", "UnrenderedTemplate"),
        ("compose.yaml", "NoEngineContainer"),
    ],
)
def test_set_refuses_with_3(file, reason):
    result = run("flags", "set", "-f", str(DIRECTORY / file), "max_num_seqs=96")
    assert result.exit_code == 3
    assert result.stdout == ""
    assert f"refused: {reason}: " in result.stderr


def test_the_container_can_be_named():
    file = str(DIRECTORY / "container-two-engines.yaml")
    assert run("flags", "set", "-f", file, "max_num_seqs=96").exit_code == 3
    result = run("flags", "set", "-f", file, "-c", "embed", "max_num_seqs=96", "--diff")
    assert result.exit_code == 0
    assert "--port=8001, --max-num-seqs=96" in result.stdout


def test_bad_usage_is_2():
    assert run("flags", "set", "-f", BLOCK, "max_num_seqs").exit_code == 2
    assert run("flags", "show", "-f", "/no/such/file").exit_code == 2


def test_lint_exit_codes_and_formats():
    bad = str(DIRECTORY / "argv-removed-flags.yaml")
    result = run("lint", "-f", bad, "-o", "json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)["findings"]
    assert {"rule", "severity", "where", "message", "instead"} <= set(found[0])
    assert {f["rule"] for f in found if f["severity"] == "error"} == {"removed-flag"}
    result = run("lint", "-f", bad)
    assert f"{bad}:13: error: `--swap-space` was removed in vLLM 0.18" in result.stdout
    assert run("lint", "-f", BLOCK).exit_code == 0


def test_lint_sarif():
    result = run("lint", "-f", str(DIRECTORY / "argv-removed-flags.yaml"), "-o", "sarif")
    log = json.loads(result.stdout)
    assert log["version"] == "2.1.0"
    [sarif] = log["runs"]
    known = {rule["id"] for rule in sarif["tool"]["driver"]["rules"]}
    for finding in sarif["results"]:
        assert finding["ruleId"] in known
        assert finding["level"] in ("error", "warning", "note")
        [location] = finding["locations"]
        assert location["physicalLocation"]["region"]["startLine"] == 13
