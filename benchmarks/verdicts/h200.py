"""The rules on the H200's own requests: what each says early, against how the window ended.

``benchmarks/data/h200/open-loop-requests.csv.gz`` holds the requests of 17 open-loop windows. Their
25 s are read as two windows of 12.5 s, shorter than a confirmation demands; "true" is here only how
the whole window ended, where three windows were measured at one point the mean of the three.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np
from batchqueue import Run
from replay import Recorded, measure
from rules import point_verdict, sequential_verdict, share_within

from vllm_tuning.api import markdown
from vllm_tuning.tuning.confirm import attempt_alpha
from vllm_tuning.tuning.model import (
    SLO,
    Limits,
    Metric,
    OpenLoad,
    Probe,
    Purpose,
    Verdict,
)

DATA = Path(__file__).parents[1] / "data" / "h200"
SLAS = ((200, 20), (150, 15))
WARMUP_SECONDS, WINDOW_SECONDS = 4.02, 12.5
ALPHA = 0.05
TARGET = 0.95


@dataclass(frozen=True, slots=True)
class Replay:
    """What one rule said of one window under one SLA."""

    rule: str
    window: int
    sla: str
    share: float
    """Of requests within, at the end; the mean where a point was measured more than once."""
    verdict: Verdict
    requests: int
    seconds: float


def replay() -> list[Replay]:
    """Judge every window by every rule under both SLAs."""
    facts = json.loads((DATA / "windows.json").read_text())
    points = {entry["window"]: (entry["limits"]["tokens"], entry["rate"]) for entry in facts}
    runs = _runs()
    out: list[Replay] = []
    for bounds in SLAS:
        slos = tuple(
            SLO(metric, 95, bound)
            for metric, bound in zip((Metric.TTFT, Metric.TPOT), bounds, strict=True)
        )
        shares: dict[tuple[int, float], list[float]] = defaultdict(list)
        for window, run in runs.items():
            shares[points[window]].append(_share(run, slos))
        for window, run in runs.items():
            _, rate = points[window]
            share = mean(shares[points[window]])
            sla = f"{bounds[0]}/{bounds[1]} ms"
            for rule, said in _verdicts(run, slos, rate).items():
                out.append(Replay(rule, window, sla, share, *said))
    return out


def table(rows: list[Replay]) -> str:
    """By rule."""
    head = [
        "rule", "points x SLAs", "PASS", "of these ended below 95 %", "UNDECIDED", "FAIL",
        "of these ended above 95 %", "requests", "seconds",
    ]  # fmt: skip
    lines = []
    for rule in dict.fromkeys(row.rule for row in rows):
        mine = [row for row in rows if row.rule == rule]
        passed = [row for row in mine if row.verdict is Verdict.PASS]
        failed = [row for row in mine if row.verdict is Verdict.FAIL]
        lines.append(
            [
                rule,
                len(mine),
                len(passed),
                sum(row.share < TARGET for row in passed),
                len(mine) - len(passed) - len(failed),
                len(failed),
                sum(row.share >= TARGET for row in failed),
                f"{mean(row.requests for row in mine):.0f}",
                f"{mean(row.seconds for row in mine):.1f}",
            ]
        )
    return markdown.table(head, lines)


def _runs() -> dict[int, Run]:
    columns: dict[int, list[tuple[float, float, float, int]]] = defaultdict(list)
    with gzip.open(DATA / "open-loop-requests.csv.gz", "rt") as lines:
        for row in csv.DictReader(lines):
            sent = float(row["sent_s"])
            first = sent + float(row["ttft_ms"] or "nan") / 1e3
            last = sent + float(row["e2e_ms"] or "nan") / 1e3
            columns[int(row["window"])].append((sent, first, last, int(row["output_tokens"])))
    runs = {}
    for window, rows in columns.items():
        table = np.array(sorted(rows))
        runs[window] = Run(table[:, 0], table[:, 1], table[:, 2], table[:, 3].astype(np.int64))
    return runs


def _share(run: Run, slos: tuple[SLO, ...]) -> float:
    """The smaller share of requests within its SLO, over the whole window."""
    end = WARMUP_SECONDS + 2 * WINDOW_SECONDS
    rows = Recorded(run).sent_between(WARMUP_SECONDS, end)
    return min(share_within(slo, rows) for slo in slos)


def _verdicts(
    run: Run, slos: tuple[SLO, ...], rate: float
) -> dict[str, tuple[Verdict, int, float]]:
    recorded = Recorded(run)
    probe = Probe(
        "h200", Purpose.CONFIRM, Limits(256, 2048), OpenLoad(rate), 0,
        window_seconds=WINDOW_SECONDS, windows=2, warmup_seconds=WARMUP_SECONDS,
        decide=True, alpha=attempt_alpha(ALPHA),
    )  # fmt: skip
    result = measure(recorded, probe, slos)
    end = WARMUP_SECONDS + WINDOW_SECONDS
    point = point_verdict(slos, recorded.sent_between(WARMUP_SECONDS, end))
    verdict, now = sequential_verdict(
        slos, recorded, WARMUP_SECONDS, end + WINDOW_SECONDS, alpha=attempt_alpha(ALPHA)
    )
    return {
        "ours": (result.verdict, result.sent, result.seconds),
        "point percentile of one run": (point, len(recorded.known_at(end)), end),
        "i.i.d. sequential test": (verdict, len(recorded.known_at(now)), now),
    }
