"""Calibrate the verdict: ``python benchmarks/verdicts/run.py [--full] [--cases chat,...]``.

Quick: minutes on one core. Full: ten times the runs. Writes ``build/bench/verdicts.json`` and
prints the tables of ``benchmarks/results/verdicts.md``.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

import h200
from cases import CASES
from rules import RULES
from study import Row, play
from tables import distances, overview
from truth import truth_of

OUTPUT = Path("build/bench/verdicts.json")
QUICK_RUNS, FULL_RUNS = 12, 120
"""Runs of a rule on a case at each distance."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument(
        "--full", action="store_true", help=f"{FULL_RUNS} runs a distance, not {QUICK_RUNS}"
    )
    options.add_argument(
        "--runs", type=int, default=0, help="runs of a rule on a case at each distance"
    )
    options.add_argument("--cases", default="", help="comma-separated names")
    options.add_argument("--seed", type=int, default=1, help="other runs; with --add they are more")
    options.add_argument(
        "--add", action="store_true", help="keep the last result's other cases and seeds"
    )
    options.add_argument("--rules", default="", help="comma-separated beginnings of names")
    chosen = options.parse_args()
    runs = chosen.runs or (FULL_RUNS if chosen.full else QUICK_RUNS)
    names = [name for name in chosen.cases.split(",") if name] or [case.name for case in CASES]
    wanted = tuple(part for part in chosen.rules.split(",") if part)
    rules = [rule for rule in RULES if not wanted or rule.startswith(wanted)]
    rows = _kept(names, chosen.seed) if chosen.add else []
    replays = h200.replay()
    for case in CASES:
        if case.name not in names:
            continue
        truth = truth_of(case)
        began = time.monotonic()
        mine = list(play(case, truth, rules, runs, seed=chosen.seed))
        wrong = ", ".join(
            f"{sum(row.wrong_pass for row in mine if row.rule == rule)} by {rule}" for rule in rules
        )
        print(
            f"{case.name}: {len(mine)} runs, wrong promises: {wrong} "
            f"({time.monotonic() - began:.0f} s)",
            flush=True,
        )
        rows += mine
        _store(rows, replays)
    print(overview(rows), distances(rows), h200.table(replays), sep="\n", end="")


def _store(rows: list[Row], replays: list[h200.Replay]) -> None:
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "runs": [row.record() for row in rows],
        "h200": [asdict(replay) for replay in replays],
    }
    OUTPUT.write_text(json.dumps(content, indent=1) + "\n")


def _kept(renewed: list[str], seed: int) -> list[Row]:
    if not OUTPUT.exists():
        return []
    stored = [Row.of(record) for record in json.loads(OUTPUT.read_text())["runs"]]
    return [row for row in stored if row.case not in renewed or row.seed != seed]


if __name__ == "__main__":
    main()
