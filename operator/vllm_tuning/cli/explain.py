"""``vllm-tuning explain``: the reasoning of a run, from what it left behind."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError

from vllm_tuning.report.model import REPORT
from vllm_tuning.tuning.model import Answer, Recommendation
from vllm_tuning.tuning.run import EVENT, ProbeEnded, RunEnded, RunFailed, StartEnded
from vllm_tuning.tuning.trace import conclusion, trace

RECOMMENDATION: TypeAdapter[Recommendation] = TypeAdapter(Recommendation)


class UnreadableError(Exception):
    """The file holds nothing that can be explained; the message says what was expected."""


def explain(
    file: Annotated[
        Path,
        typer.Argument(
            help="A benchmark's log (its JSON lines, other lines are skipped), a report as JSON, "
            "or any JSON document that holds one under 'recommendation'. '-' reads stdin."
        ),
    ],
) -> None:
    """Explain a stored result: what was measured and why, and the decisions in their order."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
        lines = explain_text(text)
    except (OSError, UnreadableError) as error:
        typer.echo(f"vllm-tuning explain: {error}", err=True)
        raise typer.Exit(2) from error
    typer.echo("\n".join(lines))


def explain_text(text: str) -> list[str]:
    """Explain the content of a file. Raises ``UnreadableError``."""
    document = _json(text)
    if isinstance(document, dict) and "schemaVersion" in document:
        return _explain_report(document)
    if isinstance(document, dict) and "kind" not in document:
        return _explain_document(document)
    return _explain_log(text.splitlines())


def _explain_report(document: dict[str, Any]) -> list[str]:
    try:
        report = REPORT.validate_python(document)
    except ValidationError as error:
        raise UnreadableError(f"this report is not of this version: {error}") from error
    found: dict[str, Answer] = {answer.start.id: answer for answer in report.starts}
    found |= {answer.probe.id: answer for answer in report.probes}
    told = trace([found[span.label] for span in report.timeline])
    if report.recommendation:
        return [*told, "", *conclusion(report.recommendation)]
    end = f"The run broke: {report.failure}" if report.failure else "The run has not ended."
    return [*told, "", end]


def _explain_document(document: dict[str, Any]) -> list[str]:
    stored = document.get("recommendation", document)
    try:
        return conclusion(RECOMMENDATION.validate_python(stored))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        raise UnreadableError(
            f"no recommendation in this JSON document: {where}: {first['msg']}"
        ) from error


def _explain_log(lines: list[str]) -> list[str]:
    answers: list[Answer] = []
    ended: list[str] = []
    for line in lines:
        document = _json(line)
        if not isinstance(document, dict) or "kind" not in document:
            continue
        try:
            event = EVENT.validate_python(document)
        except ValidationError:
            continue  # an event of a newer version, or not ours
        match event:
            case StartEnded() | ProbeEnded():
                answers.append(event.result)
            case RunEnded():
                ended = ["", *conclusion(event.recommendation)]
            case RunFailed():
                ended = ["", f"The run broke: {event.reason}: {event.message}"]
            case _:
                pass
    if not answers and not ended:
        raise UnreadableError(
            "no events of a benchmark run; give the log of a benchmark pod's 'bench' container, "
            "or a stored recommendation"
        )
    return [*trace(answers), *(ended or ["", "The run has not ended."])]


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None
