"""The committed CRDs and reference pages: current, stable, and complete."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vllm_tuning.api.crd import KINDS, Kind, definition
from vllm_tuning.api.schema import walk

ROOT = Path(__file__).resolve().parents[3]


def _schema(kind: Kind) -> dict[str, Any]:
    schema: dict[str, Any] = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def test_every_generated_file_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "hack/generate.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_text_does_not_depend_on_the_hash_seed() -> None:
    def text(seed: str) -> bytes:
        return subprocess.run(
            [sys.executable, "-m", "vllm_tuning", "crds"],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout

    assert text("1") == text("2")


def test_no_line_of_a_crd_ends_in_a_blank() -> None:
    for path in (ROOT / "crds").iterdir():
        assert not re.search(r"[ \t]+$", path.read_text(), re.MULTILINE), path


def _steps(path: str) -> Iterator[str]:
    """Take ``.status.conditions[?(@.type=="X")].reason`` apart into field names."""
    yield from re.sub(r"\[\?\([^)]*\)\]", "", path).lstrip(".").split(".")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_column_shows_a_field_that_exists(kind: Kind) -> None:
    for column in kind.columns:
        if column.json_path.startswith(".metadata."):
            continue
        node = _schema(kind)
        for step in _steps(column.json_path):
            node = node.get("items", node)["properties"][step]
        assert node["type"] in {"string", "integer"}, column.name


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_only_fields_that_nothing_else_can_supply_have_a_default(kind: Kind) -> None:
    defaulted = {path for path, node in walk(_schema(kind)) if "default" in node}
    assert defaulted <= {
        ".spec.targetRef.apiVersion",
        ".spec.targetRef.kind",
        ".spec.suspend",
        ".spec.historyLimit",
        ".spec.priority",
        ".spec.enforcement",
    }


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_wire_names_are_camel_case(kind: Kind) -> None:
    for path, node in walk(_schema(kind)):
        for name in node.get("properties", {}):
            assert re.fullmatch(r"[a-z][a-zA-Z0-9]*", name), f"{path}.{name}"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_rule_says_what_to_do(kind: Kind) -> None:
    rules = [
        rule for _, node in walk(_schema(kind)) for rule in node.get("x-kubernetes-validations", ())
    ]
    assert rules
    messages = [rule["message"] for rule in rules]
    assert all(message == message.strip() and len(message) > 20 for message in messages)


def test_the_crds_command_prints_what_is_committed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "vllm_tuning", "crds", "--to", str(tmp_path)], check=True)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_bytes() for path in (ROOT / "crds").iterdir()}
    assert written == committed
