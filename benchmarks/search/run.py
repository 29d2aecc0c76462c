"""Judge the search against the peers' rules: ``python benchmarks/search/run.py [--full] [...]``.

Quick: the first eight cases, one seed, no ablations. Full: 24 cases, three seeds, everything. Every
row is kept in ``build/bench/search-rows.jsonl`` as soon as it is known, and what is there is not
measured again, so a run may be done in pieces (``--minutes 5``). The rows make
``build/bench/search.json`` and the printed table. True capacities come from
``benchmarks/data/search-truth.json`` and are measured (and added to it) where they are missing.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from oracle import measure
from problems import Case, cases
from rows import Row, append, load, publish
from strategies import STRATEGIES, Promise
from truth import Truth, load_store, remember

from vllm_tuning.tuning.model import Limits

QUICK_CASES = 8
FULL_SEEDS = 3


def main() -> None:
    options = _options()
    names = _split(options.strategies) or [
        name for name in STRATEGIES if options.full or not name.startswith("ablation")
    ]
    seeds = options.seeds or (FULL_SEEDS if options.full else 1)
    chosen = _wanted(_split(options.cases), full=options.full)
    ends = time.monotonic() + 60.0 * options.minutes
    known = {} if options.again else {row.key: row for row in load()}
    revision = _revision()
    for case, name, seed in _order(chosen, names, seeds):
        if time.monotonic() > ends:
            print("time is up: run it again to go on", flush=True)
            break
        if (name, case.name, seed) not in known:
            row = _judge(case, name, seed, revision)
            known[row.key] = row
            append(row)
    wanted = {case.name for case in chosen}
    rows = [row for row in known.values() if row.case in wanted and row.strategy in names]
    if rows:
        print(publish(rows, names, cases=len(cases())), end="")


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--full", action="store_true", help="24 cases, three seeds")
    options.add_argument("--cases", default="", help="comma-separated parts of case names")
    options.add_argument("--strategies", default="", help="comma-separated names")
    options.add_argument("--seeds", type=int, default=0)
    options.add_argument("--again", action="store_true", help="measure what is known once more")
    options.add_argument("--minutes", type=float, default=1e9, help="begin nothing after that")
    return options.parse_args()


def _split(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _wanted(parts: list[str], *, full: bool) -> list[Case]:
    if parts:
        return [case for case in cases() if any(part in case.name for part in parts)]
    return list(cases() if full else cases()[:QUICK_CASES])


def _order(chosen: list[Case], names: list[str], seeds: int) -> Iterator[tuple[Case, str, int]]:
    """Seed by seed, so that a run which is broken off has seen every case it got to in full."""
    for seed in range(1, seeds + 1):
        for case in chosen:
            for name in names:
                yield case, name, seed


def _judge(case: Case, strategy: str, seed: int, revision: str) -> Row:
    stored = load_store().get(case.name, {})
    if "oracle" not in stored:
        print(f"{case.name}: measuring the grid once (minutes)", flush=True)
        stored = measure(case)
    began = time.monotonic()
    truth, best = Truth(case, dict(stored)), stored["oracle"]
    promise: Promise = STRATEGIES[strategy](case, seed)
    plain = _plain(promise.limits)
    true = truth.capacity(plain, promise.claimed or best) if plain else None
    confirmed = _plain(promise.confirmed)
    promised_true = truth.capacity(confirmed, promise.claimed or best) if confirmed else None
    remember(case.name, truth.known)
    row = Row(
        strategy=strategy,
        case=case.name,
        known_physics=case.known,
        seed=seed,
        limits=f"{plain.max_num_seqs}x{plain.max_num_batched_tokens}" if plain else None,
        claimed=promise.claimed,
        true=true,
        promised_true=promised_true,
        best=best,
        starts=promise.starts,
        gpu_minutes=promise.gpu_seconds / 60,
        ending=str(promise.ending),
        revision=revision,
    )
    if confirmed and row.near:
        row = replace(row, holds=truth.holds(confirmed, row.claimed or 0.0))
    print(f"{row.told()} ({time.monotonic() - began:.0f} s)", flush=True)
    return row


def _plain(limits: Limits | None) -> Limits | None:
    """The pair alone: the truth varies nothing else."""
    return limits and Limits(limits.max_num_seqs, limits.max_num_batched_tokens)


def _revision() -> str:
    """The commit that is measured, so that rows of several days can be told apart."""
    here = Path(__file__).parent
    command = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    return found.stdout.strip()


if __name__ == "__main__":
    main()
