"""What the benchmark measured, one row per strategy, case and seed, and the table made of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from scipy.stats import binomtest
from truth import STEP

from vllm_tuning.api import markdown

BUILD = Path("build/bench")
ROWS = BUILD / "search-rows.jsonl"
OUTPUT = BUILD / "search.json"
CONFIDENCE = 0.95
NEAR = 1.05
"""Two steps of the ladder."""

Line = dict[str, float | int | str | None]


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy on one case with one seed. Loads are requests per second."""

    strategy: str
    case: str
    known_physics: bool
    seed: int
    limits: str | None
    """``max_num_seqs x max_num_batched_tokens``; ``None`` = no answer."""
    claimed: float | None
    true: float | None
    """What the limits that the user is left with truly carry."""
    promised_true: float | None
    """What the limits that the claim is about truly carry."""
    best: float
    """What the best pair of the grid carries."""
    starts: int
    gpu_minutes: float
    ending: str
    revision: str
    holds: bool | None = None
    """Whether a closer look met the SLA at the claimed load; ``None`` = too far off to need one."""

    @property
    def key(self) -> tuple[str, str, int]:
        """What makes the row one of its kind."""
        return self.strategy, self.case, self.seed

    @property
    def quality(self) -> float:
        """True load of the choice over that of the grid's best; 0 without an answer.

        The truth is a ladder of one step: a choice outside the grid may come out a step above it.
        """
        if not self.best:
            return 1.0 if self.limits is None else 0.0
        return (self.true or 0.0) / self.best

    @property
    def wrong(self) -> bool:
        """The promised load is above what the limits truly carry."""
        if self.holds is not None:
            return not self.holds
        return self.claimed is not None and self.claimed > (self.promised_true or 0.0) * STEP

    @property
    def near(self) -> bool:
        """Whether the promise is so near the ladder's truth that only a closer look can tell."""
        if not self.claimed or not self.promised_true:
            return False
        return 1 / NEAR < self.claimed / self.promised_true < NEAR

    def told(self) -> str:
        """One line for people."""
        return (
            f"{self.case:<24} {self.strategy:<36} {self.limits or '-':>10} "
            f"claims {self.claimed or 0:7.3f} true {self.true or 0:7.3f} best {self.best:7.3f} "
            f"quality {self.quality:.3f} {self.starts} starts {self.gpu_minutes:5.1f} GPU-min "
            f"{'WRONG ' if self.wrong else ''}{self.ending}"
        )


def load() -> list[Row]:
    """The rows so far; of rows of the same kind the latest."""
    if not ROWS.exists():
        return []
    rows = [Row(**json.loads(line)) for line in ROWS.read_text().splitlines()]
    return list({row.key: row for row in rows}.values())


def append(row: Row) -> None:
    """Keep a row."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with ROWS.open("a") as out:
        out.write(json.dumps(asdict(row)) + "\n")


def publish(rows: list[Row], names: list[str], *, cases: int) -> str:
    """Write ``search.json`` and return the table; ``cases``: how many there are in all."""
    lines = [
        summary(own) for name in names if (own := [row for row in rows if row.strategy == name])
    ]
    content = {"cases": cases, "summary": lines, "rows": [asdict(row) for row in rows]}
    BUILD.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(content, indent=1) + "\n")
    return table(lines, cases)


def summary(rows: list[Row]) -> Line:
    """A strategy's line of the table."""
    quality = sorted(row.quality for row in rows)
    promises = [row for row in rows if row.claimed is not None]
    wrong = sum(row.wrong for row in promises)
    ratios = [
        row.claimed / row.promised_true for row in promises if row.claimed and row.promised_true
    ]
    upper = 1.0
    if promises:  # Clopper-Pearson
        test = binomtest(wrong, len(promises), alternative="less")
        upper = float(test.proportion_ci(CONFIDENCE).high)
    return {
        "strategy": rows[0].strategy,
        "cases": len({row.case for row in rows}),
        "runs": len(rows),
        "answers": len(promises),
        "quality_median": median(quality),
        "quality_p5": quality[max(0, round(0.05 * len(quality)) - 1)],
        "starts_mean": sum(row.starts for row in rows) / len(rows),
        "starts_most": max(row.starts for row in rows),
        "gpu_minutes_median": median(row.gpu_minutes for row in rows),
        "wrong_promises": wrong,
        "wrong_promises_upper": upper,
        "claimed_over_true_median": median(ratios) if ratios else None,
    }


def table(lines: list[Line], cases: int) -> str:
    """Markdown."""
    head = (
        "strategy", f"cases of {cases}", "answers / runs", "quality: median (p5)",
        "starts: mean (most)", "GPU-min: median", "wrong promises (95 % upper limit)",
        "claimed / true: median",
    )  # fmt: skip
    return markdown.table(head, map(_cells, lines))


def _cells(line: Line) -> tuple[object, ...]:
    ratio = line["claimed_over_true_median"]
    return (
        line["strategy"],
        line["cases"],
        f"{line['answers']} / {line['runs']}",
        f"{line['quality_median']:.3f} ({line['quality_p5']:.2f})",
        f"{line['starts_mean']:.1f} ({line['starts_most']})",
        f"{line['gpu_minutes_median']:.0f}",
        f"{line['wrong_promises']} ({line['wrong_promises_upper']:.0%})",
        f"{ratio:.2f}" if ratio else "-",
    )
