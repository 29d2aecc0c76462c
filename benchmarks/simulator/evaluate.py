"""Compare the twin with every measured window and write ``benchmarks/results/simulator.md``.

    python benchmarks/simulator/evaluate.py [--seeds N]

Windows in ``fit.TRAINING`` were seen by the fit; all others are predictions. Each is run with
several seeds: a seed draws the host's slow stretches and the card, which is what differs between
two measurements of the same load.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fit import TRAINING
from measured import METRICS, MeasuredWindow, load_windows, predict
from speed import measure_speed

from vllm_tuning.bench.sim.parameters import PRESETS

RESULTS = Path(__file__).resolve().parents[1] / "results"
GOALS = {"ttft_p50": 0.10, "tpot_p50": 0.10, "out_tok_s": 0.10, "ttft_p95": 0.20, "tpot_p95": 0.20}
NAMES = {
    "ttft_p50": "TTFT p50",
    "ttft_p95": "TTFT p95",
    "tpot_p50": "TPOT p50",
    "tpot_p95": "TPOT p95",
    "out_tok_s": "tok/s",
}
REPEATS = ((12, 25),)
"""Windows that differ in nothing but time."""
SLA = {"ttft_p95": 200.0, "tpot_p95": 20.0}
RATES = (30, 38, 42, 46, 50)
GROWING = frozenset({13, 14, 18, 19, 23, 24})
"""Open windows in which the queue still grew: their values depend on when one looks."""


@dataclass(frozen=True)
class Compared:
    """One window: measured, and predicted by each seed."""

    window: MeasuredWindow
    runs: Sequence[dict[str, float | None]]

    def mean(self, metric: str) -> float:
        return float(np.mean([run[metric] for run in self.runs]))

    def spread(self, metric: str) -> float:
        """Half the range over seeds, relative to the mean."""
        values = [run[metric] for run in self.runs]
        return (max(values) - min(values)) / 2 / self.mean(metric)

    def error(self, metric: str) -> float:
        return self.mean(metric) / self.window.measured[metric] - 1

    def has(self, metric: str) -> bool:
        return bool(self.window.measured.get(metric))


def compare(seeds: int) -> list[Compared]:
    """Run every window with every seed."""
    parameters = PRESETS["h200-8b"]
    return [
        Compared(window, [predict(parameters, window, seed) for seed in range(100, 100 + seeds)])
        for window in load_windows()
        if not window.name.startswith("warmup")
    ]


def table(rows: Sequence[Compared]) -> str:
    lines = [
        "| window | " + " | ".join(NAMES[m] for m in METRICS) + " | preemptions | max running |",
        "|---|" + "---|" * (len(METRICS) + 2),
    ]
    for row in rows:
        cells = []
        for metric in METRICS:
            if not row.has(metric):
                cells.append("")
                continue
            measured = row.window.measured[metric]
            cells.append(f"{measured:.4g} / {row.mean(metric):.4g} ({row.error(metric):+.0%})")
        measured = row.window.measured
        cells.append(f"{measured['preemptions_all']:.0f} / {row.mean('preemptions'):.0f}")
        cells.append(f"{measured['running_max']:.0f} / {row.mean('running_max'):.0f}")
        lines.append(f"| {row.window.window} {row.window.label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def summary(rows: Sequence[Compared]) -> str:
    lines = [
        "| metric | median error | within the goal or the spread of seeds | worst |",
        "|---|---|---|---|",
    ]
    for metric in METRICS:
        known = [row for row in rows if row.has(metric)]
        errors = [abs(row.error(metric)) for row in known]
        goal = GOALS[metric]
        good = sum(abs(r.error(metric)) <= max(goal, r.spread(metric)) for r in known)
        worst = known[int(np.argmax(errors))]
        lines.append(
            f"| {NAMES[metric]} | {np.median(errors):.1%} | {good} of {len(known)} "
            f"(goal {goal:.0%}) | {worst.error(metric):+.0%} (window {worst.window.window}) |"
        )
    return "\n".join(lines)


def knees(rows: Sequence[Compared]) -> str:
    """Highest measured rate within the SLA for each token budget, measured and predicted."""
    lines = [
        "| token budget | knee measured | knee predicted, by seed |",
        "|---|---|---|",
    ]
    for tokens in (512, 2048, 8192):
        at = {
            int(row.window.rate): row
            for row in rows
            if row.window.name == "C-open" and row.window.limits["tokens"] == tokens
        }
        measured = _knee({rate: row.window.measured for rate, row in at.items()})
        seeds = range(len(next(iter(at.values())).runs))
        predicted = [_knee({rate: row.runs[s] for rate, row in at.items()}) for s in seeds]
        lines.append(f"| {tokens} | {measured} | {', '.join(map(str, predicted))} |")
    return "\n".join(lines)


def _knee(by_rate: dict[int, dict[str, float | None]]) -> int | None:
    within = [
        rate for rate in RATES if all(by_rate[rate][name] <= bound for name, bound in SLA.items())
    ]
    return max(within, default=None)


def repeats(rows: Sequence[Compared]) -> str:
    by_number = {row.window.window: row.window.measured for row in rows}
    parts = []
    for first, second in REPEATS:
        for metric in METRICS:
            change = by_number[second][metric] / by_number[first][metric] - 1
            parts.append(f"{NAMES[metric]} {change:+.0%}")
    return ", ".join(parts)


def plot(rows: Sequence[Compared]) -> str:
    """Predicted over measured, for each metric: an SVG without any library."""
    width, height, left, top = 640, 360, 60, 20
    bottom = height - 50
    per = (width - left - 20) / len(METRICS)

    def y(ratio: float) -> float:
        span = math.log(2.0)
        share = (math.log(min(2.0, max(0.5, ratio))) + span) / (2 * span)
        return bottom - share * (bottom - top)

    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            'font-family="sans-serif" font-size="12">'
        ),
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for ratio in (0.5, 0.8, 0.9, 1.0, 1.1, 1.25, 2.0):
        weight = 1.5 if ratio == 1 else 0.5
        parts.append(
            f'<line x1="{left}" x2="{width - 20}" y1="{y(ratio):.1f}" y2="{y(ratio):.1f}" '
            f'stroke="#888" stroke-width="{weight}"/>'
            f'<text x="{left - 8}" y="{y(ratio) + 4:.1f}" text-anchor="end">{ratio:g}</text>'
        )
    for column, metric in enumerate(METRICS):
        x = left + per * (column + 0.5)
        parts.append(
            f'<text x="{x:.1f}" y="{height - 28}" text-anchor="middle">{NAMES[metric]}</text>'
        )
        known = [row for row in rows if row.has(metric)]
        for place, row in enumerate(known):
            at = x + per * 0.8 * (place / max(1, len(known) - 1) - 0.5)
            trained = row.window.window in TRAINING
            ratio = 1 + row.error(metric)
            parts.append(
                f'<circle cx="{at:.1f}" cy="{y(ratio):.1f}" r="3.5" stroke="#1f4e9c" '
                f'fill="{"white" if trained else "#1f4e9c"}"><title>{row.window.window} '
                f"{row.window.label}: {ratio:.2f}</title></circle>"
            )
    parts.append(
        f'<text x="{left}" y="{height - 8}">predicted / measured, one dot a window; '
        "full = not seen by the fit</text></svg>"
    )
    return "\n".join(parts) + "\n"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=5)
    seeds = arguments.parse_args().seeds
    rows = compare(seeds)
    trained = [row for row in rows if row.window.window in TRAINING]
    held = [row for row in rows if row.window.window not in TRAINING]
    stationary = [row for row in held if row.window.window not in GROWING]
    growing = [row for row in held if row.window.window in GROWING]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "simulator.svg").write_text(plot(rows), encoding="utf-8")
    text = f"""# The simulated engine against the H200

Made by `python benchmarks/simulator/evaluate.py --seeds {seeds}` from `benchmarks/data/h200` (our
own measurements, see there). Coefficients: preset `h200-8b`, fitted by
`benchmarks/simulator/fit.py` on the training windows alone. Every cell: measured / predicted
(error of the mean over {seeds} seeds). The same window measured twice on one card, minutes apart,
differed by: {repeats(rows)}.

![predicted over measured](simulator.svg)

## Held-out stationary windows
{summary(stationary)}

{table(stationary)}

## Held-out windows in which the queue still grew
Their values depend on the moment at which one looks, and a few percent of capacity decide them.

{summary(growing)}

{table(growing)}

## The knee (TTFT p95 ≤ 200 ms and TPOT p95 ≤ 20 ms, rates {", ".join(map(str, RATES))} req/s)
{knees(rows)}

## Training windows
{summary(trained)}

{table(trained)}

## Speed
{measure_speed()}
"""
    (RESULTS / "simulator.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
