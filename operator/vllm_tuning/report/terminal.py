"""The report on a terminal, by rich. Every table also reads well without colours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from vllm_tuning.report.model import Report, limits_text, slos_of
from vllm_tuning.report.sweep import Curve, curves
from vllm_tuning.tuning.model import (
    Bottleneck,
    ParameterChoice,
    ProbeResult,
    Recommendation,
    SLOResult,
    Verdict,
)
from vllm_tuning.tuning.text import load_text

WIDE = 170
"""Columns from which the whole tables fit."""
STYLES = {
    Verdict.PASS: "green",
    Verdict.FAIL: "red",
    Verdict.UNDECIDED: "yellow",
    Verdict.INVALID: "dim",
}


def render(report: Report, *, wide: bool = True) -> RenderableType:
    """The whole report, top down: answer, decisions, curves, every probe, starts.

    ``wide`` asks for 170 columns; else the tables keep to what 80 columns hold.
    """
    parts: list[RenderableType] = [_answer(report)]
    if report.recommendation and report.recommendation.decisions:
        parts.append(_decisions(report.recommendation))
    parts.extend(_curve(curve, wide=wide) for curve in curves(report.probes))
    if report.probes:
        parts.append(probe_table(report.probes, wide=wide))
    if report.starts:
        parts.append(_starts(report))
    return Group(*parts)


def number(value: float | None, digits: int = 3) -> str:
    """Three significant digits without an exponent; ``-`` for what is not known."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 10 ** (digits - 1) else f"{value:.{digits}g}"


def _answer(report: Report) -> Panel:
    found = report.recommendation
    lines: list[str] = [f"SLA        {', '.join(map(str, slos_of(report))) or '-'}"]
    if found is None:
        title, style = "run failed" if report.failure else "still running", "yellow"
        lines.append(report.failure or f"{len(report.probes)} probes so far")
    else:
        title, style = found.ending.value, "green" if found.limits else "yellow"
        lines.append(found.message)
        lines += _facts(found)
    lines.append(
        f"spent      {_seconds(report)}, "
        f"{len(report.starts)} server starts, {len(report.probes)} probes"
    )
    return Panel(Text("\n".join(lines)), title=f"{report.title}: {title}", border_style=style)


def _facts(found: Recommendation) -> list[str]:
    lines = []
    if found.limits and not found.parameters:
        lines.append(f"limits     {limits_text(found.limits)}")
    for i, choice in enumerate(found.parameters):
        label = "limits" if i == 0 else ""
        lines.append(f"{label:<10} {choice.name}: {choice.current or '-'} → {_chosen(choice)}")
    if found.load:
        lines.append(f"carries    {load_text(found.load)} within the SLA")
    for margin in found.margins:
        attained = f"{margin.attainment:.1%} within" if margin.attainment is not None else ""
        room = f"{margin.margin_percent:+.0f} % room" if margin.margin_percent is not None else ""
        seen = f"{number(margin.observed_milliseconds)} ms"
        lines.append(f"           {margin.slo}: {seen} {attained} {room}".rstrip())
    if found.gain_percent is not None:
        lines.append(f"gain       {gain_text(found)} over the current limits")
    if found.binding_limit:
        lines.append(f"bound by   {found.binding_limit}")
    if found.result and found.result.bottleneck is not Bottleneck.UNKNOWN:
        lines.append(f"           {found.result.bottleneck}: {found.result.bottleneck_evidence}")
    return lines


def gain_text(found: Recommendation) -> str:
    """``+34 % (+28 to +41)``: the gain and what the measurements allow it to be."""
    told = f"{found.gain_percent or 0.0:+.0f} %"
    if found.gain_range_percent is None:
        return told
    low, high = found.gain_range_percent
    return f"{told} ({low:+.0f} to {high:+.0f})"


def _seconds(report: Report) -> str:
    engine = f"{report.engine_seconds:.0f} engine-seconds"
    return engine if report.gpu_seconds is None else f"{report.gpu_seconds} GPU-seconds ({engine})"


def _chosen(choice: ParameterChoice) -> str:
    """The recommended value, with what does as well and what a bound kept from it."""
    low, high = choice.lower_bound, choice.upper_bound
    notes = [f"{low} to {high} do as well"] if low and high and low != high else []
    if choice.uncapped and choice.uncapped != choice.recommended:
        notes.append(f"{choice.uncapped} without the bounds")
    return f"{choice.recommended} ({'; '.join(notes)})" if notes else choice.recommended


def _decisions(found: Recommendation) -> Table:
    table = Table(
        title="Decisions, in order", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for column in ("topic", "decision", "why"):
        table.add_column(column, overflow="fold")
    for step in found.decisions:
        table.add_row(step.topic, step.decision, step.why)
    return table


def _curve(curve: Curve, *, wide: bool) -> Table:
    table = Table(
        title=f"{curve.varied} at {curve.fixed}, {curve.offered}",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    figures = _figures(wide=wide)
    for column in (curve.varied.removeprefix("max_num_"), *(name for name, _ in figures)):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("knee", overflow="fold")
    for row in curve.rows:
        mark = f"◄ knee: {row.knee}" if row.knee else ""
        table.add_row(str(row.value), *(number(get(row.result)) for _, get in figures), mark)
    return table


@dataclass(frozen=True, slots=True)
class Column:
    """A figure of a measured point."""

    name: str
    """Heading where all columns stand side by side: a percentile belongs to the one before."""
    value: Callable[[ProbeResult], float | None]
    alone: str | None = None
    """Heading where only the essential columns stand, in 80 characters; ``None``: not essential."""


COLUMNS = (
    Column("TTFT p50", lambda r: r.ttft.p50),
    Column("p95", lambda r: r.ttft.p95, alone="TTFT p95"),
    Column("TPOT p50", lambda r: r.tpot.p50),
    Column("p95", lambda r: r.tpot.p95, alone="TPOT p95"),
    Column("gap p95", lambda r: r.max_gap.p95),
    Column("out tok/s", lambda r: r.output_tokens_per_second, alone="out tok/s"),
    Column("running", lambda r: _first(r.engine.running_max, r.engine.hook_running_max)),
    Column("KV %", lambda r: _percent(r.engine.kv_usage_peak_fraction)),
    Column("preempt", lambda r: r.engine.preemptions),
)
_Figures = list[tuple[str, Callable[[ProbeResult], float | None]]]


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else round(100 * fraction, 1)


def _figures(*, wide: bool) -> _Figures:
    if wide:
        return [(column.name, column.value) for column in COLUMNS]
    return [(column.alone, column.value) for column in COLUMNS if column.alone]


def probe_table(probes: tuple[ProbeResult, ...], *, wide: bool) -> Table:
    """Every probe with its verdict, and on a wide terminal with its reason and what bound it."""
    table = Table(
        title="Every probe (times in ms)",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    figures = _figures(wide=wide)
    for column in ("probe", "seqs", "tokens", "load", *(name for name, _ in figures)):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    if wide:
        for column in ("n", "why", "bound by"):
            table.add_column(column, justify="right" if column == "n" else "left", no_wrap=True)
    for result in probes:
        limits = result.probe.limits
        purpose = result.probe.purpose.value
        why = [str(result.completed), result.reason, _bottleneck(result)] if wide else []
        table.add_row(
            f"{result.probe.id} {purpose if wide else purpose[:4]}",
            str(limits.max_num_seqs),
            str(limits.max_num_batched_tokens),
            load_text(result.probe.load),
            *(number(value(result)) for _, value in figures),
            Text(result.verdict.value, style=STYLES[result.verdict]),
            *why,
        )
    return table


def _bottleneck(result: ProbeResult) -> str:
    known = result.bottleneck is not Bottleneck.UNKNOWN
    return result.bottleneck.value.removesuffix("Bound") if known else "-"


def _starts(report: Report) -> Table:
    table = Table(
        title="Server starts", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for column in ("start", "seqs", "tokens", "limits", "seconds"):
        table.add_column(column, justify="left" if column in {"start", "limits"} else "right")
    table.add_column("outcome", overflow="fold")
    for started in report.starts:
        facts = started.facts
        kv = f"KV cache {facts.kv_cache_tokens:,} tokens" if facts and facts.kv_cache_tokens else ""
        failure = started.failure
        outcome = f"{failure.reason}: {failure.message}" if failure else f"ready {kv}".rstrip()
        limits = started.start.limits
        table.add_row(
            f"{started.start.id} {started.start.purpose.value}",
            str(limits.max_num_seqs),
            str(limits.max_num_batched_tokens),
            "live" if started.start.hook else "exact args",
            number(started.seconds),
            outcome,
        )
    return table


def slo_line(result: SLOResult) -> str:
    """``p95 TTFT ≤ 300 ms: 412 ms, 81.3 % within``."""
    share = "not measured" if result.attainment is None else f"{result.attainment:.1%} within"
    seen = result.observed_milliseconds
    return f"{result.slo}: " + (f"{number(seen)} ms, {share}" if seen is not None else share)
