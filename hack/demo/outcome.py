"""What the demo claims, and whether it holds."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from rich.console import Console

from hack.demo.kube import Kube
from vllm_tuning.engine.args import edit_argv
from vllm_tuning.report.html import render as render_html
from vllm_tuning.report.model import Report, from_events
from vllm_tuning.report.terminal import render
from vllm_tuning.tuning.model import Recommendation, Verdict
from vllm_tuning.tuning.run import Event

_RECOMMENDATION: TypeAdapter[Recommendation] = TypeAdapter(Recommendation)


def result(
    kube: Kube,
    tuning: dict[str, Any],
    events: Sequence[Event],
    before: list[str],
    seconds: dict[str, float],
) -> dict[str, Any]:
    """Everything that ``build/demo/result.json`` holds."""
    report = from_events(events, title="llama")
    found = report.recommendation
    line = next(
        (text for text in kube.serving_log("llama").splitlines() if "non-default args" in text),
        None,
    )
    return {
        "before": before,
        "after": kube.args("llama"),
        "verdicts": {
            "before": found.before.verdict.value if found and found.before else None,
            "after": found.result.verdict.value if found and found.result else None,
        },
        "recommendation": _recommendation(found),
        "conditions": {
            c["type"]: f"{c['status']}/{c['reason']}"
            for c in tuning.get("status", {}).get("conditions", [])
        },
        "engineStarts": len(report.starts),
        "probes": len(report.probes),
        "engineSeconds": round(report.engine_seconds, 1),
        "servingLogLine": line,
        "seconds": seconds,
    }


def _recommendation(found: Recommendation | None) -> dict[str, Any] | None:
    if found is None:
        return None
    full = _RECOMMENDATION.dump_python(found, mode="json")
    return {
        "ending": found.ending.value,
        "message": found.message,
        "parameters": {p.name: p.recommended for p in found.parameters},
        "load": full["load"],
        "metrics": full["result"],
        "sloMargins": full["margins"],
        "gainPercent": found.gain_percent,
        "bindingLimit": found.binding_limit,
        "baseline": full["baseline"],
    }


def failures(outcome: dict[str, Any]) -> list[str]:
    """Why the demo may not exit with 0; empty = the main job was really done."""
    found = outcome["recommendation"]
    if found is None:
        return ["the run gave no recommendation"]
    if found["ending"] != "Recommended":
        return [f"the run ended {found['ending']}: {found['message']}"]
    problems = []
    wanted = edit_argv(["vllm", "serve", *outcome["before"]], found["parameters"])
    if not isinstance(wanted, list) or wanted[2:] != outcome["after"]:
        problems.append(f"the Deployment runs {outcome['after']}, not the recommended args")
    if outcome["verdicts"]["after"] != Verdict.PASS.value:
        problems.append(f"the recommended limits were {outcome['verdicts']['after']}, not PASS")
    if outcome["verdicts"]["before"] == Verdict.PASS.value and not (found["gainPercent"] or 0) > 0:
        problems.append("the old limits passed too and carried as much")
    line = outcome["servingLogLine"] or ""
    for name, value in found["parameters"].items():
        if f"'{name}': {value}" not in line:
            problems.append(
                f"the serving pod's log does not show {name}={value}: {line or 'no line'}"
            )
    return problems


def show(
    kube: Kube, outcome: dict[str, Any], events: Sequence[Event], out: Path, console: Console
) -> None:
    """Print the report, the change of args as a diff, and the serving pod's own words."""
    report: Report = dataclasses.replace(
        from_events(events, title="llama"), target="Deployment llama"
    )
    console.rule("[bold]What was measured", align="left")
    console.print(render(report))
    console.rule("[bold]The change", align="left")
    for line in difflib.unified_diff(
        outcome["before"], outcome["after"], "before", "after", lineterm=""
    ):
        style = {"+": "green", "-": "red"}.get(line[:1], "")
        console.print(line, style=style, markup=False, highlight=False)
    console.rule("[bold]What the serving pod says", align="left")
    console.print(outcome["servingLogLine"] or "no start line", markup=False, highlight=False)
    console.rule("[bold]kubectl get vt,vtrial", align="left")
    console.print(kube.run("get", "vt,vtrial", check=False), markup=False, highlight=False)
    page = out / "report.html"
    page.write_text(render_html(report))
    console.print(f"report: {page}   result: {out / 'result.json'}   events: {out / 'run.jsonl'}")
