"""The report's pictures: inline SVG by matplotlib, coloured by the page's CSS variables.

matplotlib writes fixed colours. Ours are stand-ins that are replaced by ``var(--...)`` afterwards,
so that one picture is right in light and in dark and in print. Every panel is a picture of its own
and the key is text of the page: so they stand side by side or below each other, as there is room.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vllm_tuning.report.model import Report, slos_of
from vllm_tuning.report.sweep import curves
from vllm_tuning.tuning.model import Limits, Metric, ProbeResult, Purpose, Verdict

FOREGROUND = "#010203"
GRID = "#010204"
SERIES = tuple(f"#0102{i:02x}" for i in range(0x10, 0x18))
LIMIT = "#010205"
_CSS = {
    FOREGROUND: "var(--fg)",
    GRID: "var(--grid)",
    LIMIT: "var(--limit)",
    **{colour: f"var(--s{i})" for i, colour in enumerate(SERIES)},
}
_MARKS = {Verdict.PASS: "o", Verdict.FAIL: "X", Verdict.UNDECIDED: "D", Verdict.INVALID: "."}
_PANEL_INCHES = (4.2, 2.7)
"""A third of the page, or a whole telephone: letters have the size of the text around them."""

_NEAR = 4.0
"""Percent of activity within which two names would lie on each other."""


@dataclass(frozen=True, slots=True)
class Picture:
    """Panels that share a key."""

    title: str
    panels: tuple[str, ...]
    """SVG documents."""
    key: tuple[tuple[int, str], ...] = ()
    """Number of the series' colour (``--s0`` …), and what has it."""
    note: str = ""
    """How to read it, where it does not say so itself."""


_Value = Callable[[ProbeResult], float | None]
_VERDICTS = "● PASS   ◆ undecided   ✖ FAIL"


def pictures(report: Report) -> list[Picture]:
    """Return every picture for which something was measured."""
    made = (
        load_curves(report),
        sweep_curves(report, "max_num_seqs", "Sweep of max_num_seqs"),
        sweep_curves(report, "max_num_batched_tokens", "Trade-off of the token budget"),
        gpu_activity(report),
    )
    return [picture for picture in made if picture is not None]


def load_curves(report: Report) -> Picture | None:
    """TTFT, TPOT p95 and throughput against the offered rate, one line per setting, with SLOs.

    What was measured on the fresh start of a confirmation is a line of its own.
    """
    series: dict[tuple[Limits, bool], dict[float, ProbeResult]] = {}
    for result in report.probes:
        load = result.probe.load
        if load.kind == "open" and result.verdict is not Verdict.INVALID and result.completed:
            fresh = result.probe.purpose is Purpose.CONFIRM
            series.setdefault((result.probe.limits, fresh), {})[load.rate_per_second] = result
    if not series:
        return None
    lines = [
        _Line(
            f"{limits.max_num_seqs} seqs, {limits.max_num_batched_tokens} tokens"
            + (", fresh start" if fresh else ""),
            tuple(sorted(points.items())),
        )
        for (limits, fresh), points in series.items()
    ]
    return Picture(
        "Latency and throughput against load",
        _three_panels(report, lines, "offered load (requests/s)"),
        _key(lines),
        _VERDICTS,
    )


def sweep_curves(report: Report, varied: str, title: str) -> Picture | None:
    """The same three against one limit: the sweep of ``max_num_seqs`` or the token budget."""
    found = [curve for curve in curves(report.probes) if curve.varied == varied]
    if not found:
        return None
    lines = [
        _Line(
            f"{curve.fixed}, {curve.offered}",
            tuple((float(row.value), row.result) for row in curve.rows),
            curve.knee.value if curve.knee else None,
        )
        for curve in found
    ]
    return Picture(
        title,
        _three_panels(report, lines, varied, doubling=True),
        _key(lines),
        _VERDICTS + ("   ┊ knee" if any(curve.knee for curve in found) else ""),
    )


def gpu_activity(report: Report) -> Picture | None:
    """DRAM against tensor activity per load point: decode is top left, prefill bottom right."""
    points = [
        (r.gpu.tensor_active_percent, r.gpu.dram_active_percent, r)
        for r in report.probes
        if r.gpu
        and r.gpu.tensor_active_percent is not None
        and r.gpu.dram_active_percent is not None
    ]
    if not points:
        return None
    figure, ax = _panel("DRAM active (%)", "tensor pipe active (%)")
    labelled: list[tuple[float, float]] = []
    for tensor, dram, result in points:
        ax.plot(tensor, dram, _MARKS[result.verdict], color=SERIES[0], markersize=5)
        if any(abs(tensor - x) < _NEAR and abs(dram - y) < _NEAR for x, y in labelled):
            continue  # its name would cover another's
        labelled.append((tensor, dram))
        ax.annotate(
            result.probe.id,
            (tensor, dram),
            xytext=(4, 3),
            textcoords="offset points",
            fontsize=7,
            color=FOREGROUND,
        )
    ax.set_xlim(0, max(1.0, 1.12 * max(point[0] for point in points)))
    _from_zero(ax, [point[1] for point in points])
    return Picture(
        "GPU activity",
        (_svg(figure),),
        note="Top left: bound by reading memory (decode). Bottom right: by arithmetic (prefill).",
    )


@dataclass(frozen=True, slots=True)
class _Line:
    label: str
    points: tuple[tuple[float, ProbeResult], ...]
    knee: float | None = None


def _key(lines: Sequence[_Line]) -> tuple[tuple[int, str], ...]:
    return tuple((i % len(SERIES), line.label) for i, line in enumerate(lines))


def _three_panels(
    report: Report, lines: Sequence[_Line], x: str, *, doubling: bool = False
) -> tuple[str, ...]:
    panels: tuple[tuple[str, _Value, Metric | None], ...] = (
        ("TTFT p95 (ms)", lambda result: result.ttft.p95, Metric.TTFT),
        ("TPOT p95 (ms)", lambda result: result.tpot.p95, Metric.TPOT),
        ("output tokens/s", lambda result: result.output_tokens_per_second, None),
    )
    made = []
    for title, value, metric in panels:
        figure, ax = _panel(title, x)
        drawn = [
            y
            for i, line in enumerate(lines)
            for y in _draw(ax, line, value, SERIES[i % len(SERIES)])
        ]
        bounds = _slo_lines(ax, report, metric)
        _from_zero(ax, [*drawn, *bounds])
        if doubling:
            ax.set_xscale("log", base=2)
            ax.xaxis.set_major_formatter(lambda number, _: f"{number:g}")
        made.append(_svg(figure))
    return tuple(made)


def _draw(ax: Axes, line: _Line, value: _Value, colour: str) -> list[float]:
    """Draw a line with a mark per verdict; returns the heights."""
    points = [(x, y, r) for x, r in line.points if (y := value(r)) is not None]
    ax.plot([p[0] for p in points], [p[1] for p in points], color=colour, linewidth=1.4)
    for x, y, result in points:
        ax.plot(x, y, _MARKS[result.verdict], color=colour, markersize=5)
    if line.knee is not None:
        ax.axvline(line.knee, color=colour, linewidth=0.9, linestyle=":")
    return [p[1] for p in points]


def _slo_lines(ax: Axes, report: Report, metric: Metric | None) -> list[float]:
    bounds = [
        slo.max_milliseconds
        for slo in slos_of(report)
        if slo.metric is metric and slo.max_milliseconds is not None
    ]
    for bound in bounds:
        ax.axhline(bound, color=LIMIT, linewidth=1, linestyle="--")
    if bounds:  # above the picture, where no point can be hidden by it
        words = f"SLO {min(bounds)} ms"
        ax.set_title(words, fontsize=8, loc="right", color=LIMIT)
    return [float(bound) for bound in bounds]


def _panel(title: str, x: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=_PANEL_INCHES, layout="constrained")
    ax = figure.subplots()
    ax.set_title(title, fontsize=9, loc="left", color=FOREGROUND)
    ax.set_xlabel(x, fontsize=8.5, color=FOREGROUND)
    ax.grid(visible=True, color=GRID, linewidth=0.5)
    ax.set_axisbelow(True)
    ax.tick_params(colors=FOREGROUND, labelsize=8)
    for name, spine in ax.spines.items():
        spine.set_color(GRID)
        spine.set_visible(name in {"left", "bottom"})
    return figure, ax


def _from_zero(ax: Axes, heights: Sequence[float]) -> None:
    """Let the axis begin at zero: what is twice as high is twice as much."""
    ax.set_ylim(0, 1.08 * max(heights, default=0.0) or 1.0)


def _svg(figure: Figure) -> str:
    """Render without date and with stable ids, then hand the colours to CSS."""
    out = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "vllm-tuning"}):
        figure.savefig(out, format="svg", metadata={"Date": None}, transparent=True)
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'<svg ([^>]*?)width="[^"]*" height="[^"]*"', r"<svg \1", text, count=1)
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for colour, css in _CSS.items():
        text = text.replace(colour, css)
    return re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", text)
