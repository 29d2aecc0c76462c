"""Measure the grid of every case: ``python benchmarks/search/oracle.py [CASE...]``. Hours on one
core; its result is committed.
"""

from __future__ import annotations

import sys
import time

from problems import Case, cases
from truth import Truth, load_store, remember

FIRST_GUESS = {
    "h200-8b": 30.0,
    "a100-8b": 10.0,
    "l4-8b": 2.0,
    "h200-moe": 15.0,
    "a100-padded": 10.0,
    "h200-drifting": 25.0,
}


def measure(case: Case) -> dict[str, float]:
    """Find the best pair of the grid, store what was measured on the way, and return it."""
    began = time.monotonic()
    truth = Truth(case, dict(load_store().get(case.name, {})), keep=True)
    workload = case.traffic.workload
    weight = workload.input_tokens.mean + 4 * workload.output_tokens.mean
    limits, carried = truth.oracle(FIRST_GUESS[case.engine.name] * 1000 / weight)
    remember(case.name, {**truth.known, "oracle": carried})
    print(
        f"{case.name}: {limits.max_num_seqs} x {limits.max_num_batched_tokens} "
        f"carries {carried:.3g}/s ({time.monotonic() - began:.0f} s)",
        flush=True,
    )
    return load_store()[case.name]


def main(wanted: list[str]) -> None:
    for case in cases():
        if wanted and not any(name in case.name for name in wanted):
            continue
        if "oracle" not in load_store().get(case.name, {}):
            measure(case)


if __name__ == "__main__":
    main(sys.argv[1:])
