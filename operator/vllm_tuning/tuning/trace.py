"""A run as lines that a person reads: what was asked, why, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable

from vllm_tuning.tuning.model import (
    Answer,
    ProbeResult,
    Recommendation,
    StartResult,
)
from vllm_tuning.tuning.text import describe, load_text


def trace(answers: Iterable[Answer]) -> list[str]:
    """One line per start and probe, in order."""
    return [
        _start_line(answer) if isinstance(answer, StartResult) else _probe_line(answer)
        for answer in answers
    ]


def conclusion(recommendation: Recommendation) -> list[str]:
    """The ending, its price, and the decisions in an engineer's order."""
    lines = [f"{recommendation.ending}: {recommendation.message}"]
    for choice in recommendation.parameters:
        span = (
            f" (from {choice.lower_bound} to {choice.upper_bound} measured alike)"
            if choice.lower_bound != choice.upper_bound
            else ""
        )
        cut_off = choice.uncapped not in {None, choice.recommended}
        beyond = f"; bounds cut off {choice.uncapped}" if cut_off else ""
        lines.append(f"  {choice.name}: {choice.current} -> {choice.recommended}{span}{beyond}")
    lines += [
        f"  {margin.slo}: {margin.margin_percent:.0f} % of the bound left"
        for margin in recommendation.margins
        if margin.margin_percent is not None
    ]
    lines += [f"  {step.topic}: {step.decision} - {step.why}" for step in recommendation.decisions]
    lines.append(
        f"  cost: {recommendation.engine_starts} starts, {recommendation.probes} probes, "
        f"{recommendation.engine_seconds:.0f} GPU-seconds"
    )
    return lines


def _start_line(result: StartResult) -> str:
    start = result.start
    how = "with live limits" if start.hook else "exact args"
    if result.failure is not None:
        ended = f"{result.failure.kind}/{result.failure.reason}"
    else:
        tokens = result.facts.kv_cache_tokens if result.facts else None
        ended = f"ready, KV cache {tokens:,} tokens" if tokens else "ready"
        if start.hook and result.facts and result.facts.live_limits is not None:
            ended += f"; no live limits: {result.facts.live_limits}"
    asked = f"{start.id:<4} start {describe(start.limits)}, {how}"
    return f"{asked}: {ended} ({result.seconds:.0f} s) | {start.why}"


def _probe_line(result: ProbeResult) -> str:
    probe = result.probe
    asked = (
        f"{probe.id:<4} {probe.purpose.lower():<9} {describe(probe.limits)} "
        f"at {load_text(probe.load)}"
    )
    found = f"{result.verdict} {result.reason} - {result.message} ({result.seconds:.0f} s)"
    return f"{asked}: {found} | {probe.why}"
