"""``vllm-tuning report`` on the recorded H200 run: what scripts read is what the schema says."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.cluster_fixtures.cluster import ROOT
from vllm_tuning.cli.main import app
from vllm_tuning.report.model import REPORT, from_events, read_events
from vllm_tuning.report.schema import report_schema

RECORDED = ROOT / "benchmarks/results/h200-chat/events.jsonl"


def report(*arguments: str):
    return CliRunner().invoke(app, ["report", *arguments])


@pytest.fixture(scope="module")
def written() -> str:
    done = report(str(RECORDED), "-o", "json")
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_json_is_the_report_and_nothing_else(written):
    expected = from_events(read_events(RECORDED.open()), title="events")
    assert REPORT.validate_json(written, strict=True, extra="forbid") == expected


def declared(schema, definitions):
    """The object schema behind a reference, an alternative or a list; ``None`` = a plain value."""
    if "$ref" in schema:
        return declared(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    for part in schema.get("anyOf", ()) or schema.get("oneOf", ()):
        if found := declared(part, definitions):
            return found
    if "items" in schema:
        return declared(schema["items"], definitions)
    return schema if "properties" in schema else None


def undeclared(value, schema, definitions, path="report"):
    """Where the document and the schema's fields differ."""
    for item in value if isinstance(value, list) else [value]:
        here = declared(schema, definitions)
        if not isinstance(item, dict) or here is None:
            continue
        if path.endswith("load"):  # one of two kinds: told apart by pydantic above
            continue
        if set(item) != set(here["required"]):
            yield path, set(item) ^ set(here["required"])
        for name in item.keys() & here["properties"].keys():
            inner = here["properties"][name]
            yield from undeclared(item[name], inner, definitions, f"{path}.{name}")


def test_every_field_that_is_written_is_published_and_every_published_one_is_written(written):
    schema = report_schema()
    document = json.loads(written)
    assert list(undeclared(document, schema, schema["$defs"])) == []
    assert document["schemaVersion"] == schema["properties"]["schemaVersion"]["const"]
    assert document["recommendation"]["result"]["engine"]["runningMax"] is not None


def test_explain_reads_the_report_too(written, tmp_path: Path):
    stored = tmp_path / "report.json"
    stored.write_text(written)
    done = CliRunner().invoke(app, ["explain", str(stored)])
    assert done.exit_code == 0, done.output
    from_log = CliRunner().invoke(app, ["explain", str(RECORDED)])
    assert done.stdout == from_log.stdout


def test_a_file_without_events_is_refused(tmp_path: Path):
    other = tmp_path / "other.log"
    other.write_text("INFO hello\n")
    done = report(str(other))
    assert done.exit_code == 2
    assert "no event of a benchmark run" in done.output
