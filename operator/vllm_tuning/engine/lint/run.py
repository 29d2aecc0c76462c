"""Run all rules over a manifest."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_tuning.engine.args import EngineArgs
from vllm_tuning.engine.launch.read import describe
from vllm_tuning.engine.launch.text import Mark
from vllm_tuning.engine.lint import limit_rules, line_rules, parser_rules, pod_rules
from vllm_tuning.engine.lint.model import RULES, Context, Finding, Severity
from vllm_tuning.engine.manifest.document import Stream
from vllm_tuning.engine.manifest.edit import parse, read_engine
from vllm_tuning.engine.manifest.workloads import Engine, Misfit, find_engines
from vllm_tuning.engine.outcome import Refusal

RULE_MODULES = (parser_rules, line_rules, limit_rules, pod_rules)
"""Importing them registers their rules."""
PROMPT_TOKENS = 512
"""Prompt length that the budget is judged with, unless the caller knows better."""


def lint_manifest(
    text: str, *, version: str | None = None, prompt_tokens: int = PROMPT_TOKENS
) -> list[Finding] | Refusal:
    """Findings of every engine in a manifest; ``version`` overrides what the images tell."""
    stream = parse(text)
    if isinstance(stream, Refusal):
        return stream
    findings: list[Finding] = []
    for found in find_engines(stream.values):
        if isinstance(found, Misfit):
            findings.append(_unread(found.title, found.refusal))
            continue
        args = read_engine(found, stream.values, version)
        if args.refusal is not None:
            findings.append(_unread(found.title, args.refusal))
        findings += lint_engine(found, args, stream, version or found.version, prompt_tokens)
    return findings


def lint_engine(
    engine: Engine, args: EngineArgs, stream: Stream, version: str | None, prompt_tokens: int
) -> Sequence[Finding]:
    """Findings of one engine."""
    context = Context(engine, args, stream.values, version, prompt_tokens)
    findings = []
    for rule in RULES.values():
        for issue in rule.check(context):
            place = issue.place or (
                describe(issue.mark, engine.container) if issue.mark else "args"
            )
            findings.append(
                Finding(
                    rule.id,
                    issue.severity or rule.severity,
                    f"{engine.title} {place}",
                    issue.message,
                    issue.instead,
                    line_of(stream, engine, issue.mark),
                )
            )
    return findings


def line_of(stream: Stream, engine: Engine, mark: Mark | None) -> int | None:
    """The line of the file that a mark stands on; without one, the container's."""
    prefix = (*engine.object_path, *engine.path)
    if mark is not None and mark.top.path[0] in ("args", "command"):
        scalar = stream.scalar(engine.document, (*prefix, *mark.top.path))
        if not isinstance(scalar, Refusal):
            at = scalar.range(mark.top.start, mark.top.start)[1]
            return stream.text.count("\n", 0, at) + 1
    node = stream.find(engine.document, prefix)
    return None if isinstance(node, Refusal) else int(node.start_mark.line) + 1


def _unread(title: str, refusal: Refusal) -> Finding:
    return Finding(
        "not-read",
        Severity.WARNING,
        title,
        f"the flags can't be read: {refusal.message}",
        "see the message",
    )
