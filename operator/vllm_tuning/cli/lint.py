"""``vllm-tuning lint``: what will break or be ignored in a manifest's vLLM flags."""

from __future__ import annotations

import json
from enum import StrEnum
from importlib.metadata import version as package_version
from typing import Annotated, Any

import typer

from vllm_tuning.cli.flags import FileOption, VersionOption, read_text, refuse
from vllm_tuning.engine.lint.model import RULES, Finding, Severity
from vllm_tuning.engine.lint.run import PROMPT_TOKENS, lint_manifest
from vllm_tuning.engine.outcome import Refusal

EXIT_ERRORS = 1
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


class Output(StrEnum):
    """Formats of the findings."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"


def lint(
    filename: FileOption,
    output: Annotated[Output, typer.Option("--output", "-o", help="Format.")] = Output.TEXT,
    version: VersionOption = None,
    prompt_tokens: Annotated[
        int, typer.Option(min=1, help="Typical prompt length, to judge the token budget with.")
    ] = PROMPT_TOKENS,
) -> None:
    """Check a manifest; exit code 1 if an engine will not start or will serve something else."""
    findings = lint_manifest(read_text(filename), version=version, prompt_tokens=prompt_tokens)
    if isinstance(findings, Refusal):
        refuse(findings)
    match output:
        case Output.JSON:
            typer.echo(json.dumps({"findings": [_as_json(f) for f in findings]}, indent=2))
        case Output.SARIF:
            typer.echo(json.dumps(_sarif(filename, findings), indent=2))
        case Output.TEXT:
            if not findings:
                typer.echo("no findings", err=True)
            for finding in findings:
                place = f"{filename}:{finding.line or 1}"
                typer.echo(f"{place}: {finding.severity}: {finding.message} [{finding.rule}]")
                typer.echo(f"    at {finding.where}; instead: {finding.instead}")
    if any(f.severity is Severity.ERROR for f in findings):
        raise typer.Exit(EXIT_ERRORS)


def _as_json(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "where": finding.where,
        "line": finding.line,
        "message": finding.message,
        "instead": finding.instead,
    }


def _sarif(filename: str, findings: list[Finding]) -> dict[str, Any]:
    """SARIF 2.1.0, as code-scanning services read it."""
    rules = [
        {
            "id": rule.id,
            "shortDescription": {"text": rule.summary},
            "defaultConfiguration": {"level": str(rule.severity)},
        }
        for rule in RULES.values()
    ]
    driver = {
        "name": "vllm-tuning",
        "version": package_version("vllm-tuning-operator"),
        "rules": rules,
    }
    uri = "stdin" if filename == "-" else filename
    results = [
        {
            "ruleId": f.rule,
            "level": str(f.severity),
            "message": {"text": f"{f.message}. Instead: {f.instead}"},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": uri},
                        "region": {"startLine": f.line or 1},
                    },
                    "logicalLocations": [{"fullyQualifiedName": f.where}],
                }
            ],
        }
        for f in findings
    ]
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
