"""The study's tables, in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import mean, median

from cases import CASES
from rules import RULES
from scipy.stats import binomtest
from study import Row

from vllm_tuning.api import markdown
from vllm_tuning.tuning.model import Verdict

CONFIDENCE = 0.95


def upper_limit(wrong: int, count: int) -> float:
    """Clopper-Pearson, one-sided."""
    test = binomtest(wrong, count, alternative="less")
    return float(test.proportion_ci(CONFIDENCE).high)


def overview(rows: Sequence[Row]) -> str:
    """Whole runs, by rule and case."""
    head = [
        "rule", "case", "runs", "wrong promises (95 % upper limit)", "at the worst distance",
        "no promise", "promised / true limit: median", "requests", "seconds",
    ]  # fmt: skip
    lines = []
    for rule in _in_order(RULES, (row.rule for row in rows)):
        mine = [row for row in rows if row.rule == rule]
        present = _in_order([case.name for case in CASES], (row.case for row in mine))
        lines += [
            _run_line(rule, name, [row for row in mine if row.case == name]) for name in present
        ]
        lines.append(_run_line(f"**{rule}**", "all", mine))
    return markdown.table(head, lines)


def _run_line(rule: str, case: str, rows: Sequence[Row]) -> list[object]:
    wrong = sum(row.wrong_pass for row in rows)
    claims = [row.outcome.claimed / row.limit for row in rows if row.outcome.claimed]
    worst = max(
        _by(rows, lambda row: row.distance).values(),
        key=lambda part: sum(row.wrong_pass for row in part),
    )
    most = sum(row.wrong_pass for row in worst)
    return [
        rule,
        case,
        len(rows),
        f"{wrong / len(rows):.1%} ({upper_limit(wrong, len(rows)):.1%})",
        f"{most / len(worst):.0%} ({upper_limit(most, len(worst)):.0%}) from {worst[0].distance:g}",
        f"{1 - len(claims) / len(rows):.0%}",
        f"{median(claims):.2f}" if claims else "-",
        f"{mean(row.outcome.requests for row in rows):.0f}",
        f"{mean(row.outcome.seconds for row in rows):.0f}",
    ]


def distances(rows: Sequence[Row]) -> str:
    """First loads, by rule and distance, over all cases."""
    head = ["rule", "load / true limit", "runs", "PASS", "UNDECIDED", "FAIL", "requests", "seconds"]
    lines = []
    for rule in _in_order(RULES, (row.rule for row in rows)):
        for distance, mine in _by(
            [row for row in rows if row.rule == rule], lambda row: row.distance
        ).items():
            lines.append(
                [
                    rule,
                    f"{distance:g}",
                    len(mine),
                    *(
                        f"{sum(row.outcome.first is verdict for row in mine) / len(mine):.1%}"
                        for verdict in (Verdict.PASS, Verdict.UNDECIDED, Verdict.FAIL)
                    ),
                    f"{mean(row.outcome.first_requests for row in mine):.0f}",
                    f"{mean(row.outcome.first_seconds for row in mine):.0f}",
                ]
            )
    return markdown.table(head, lines)


def _by(rows: Sequence[Row], key: Callable[[Row], float]) -> dict[float, list[Row]]:
    parts: dict[float, list[Row]] = {}
    for row in rows:
        parts.setdefault(key(row), []).append(row)
    return dict(sorted(parts.items()))


def _in_order(order: Iterable[str], present: Iterable[str]) -> list[str]:
    there = set(present)
    return [name for name in order if name in there]
