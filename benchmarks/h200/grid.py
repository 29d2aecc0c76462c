"""A small exhaustive grid around an answer, to see its regret: every cell at the same loads.

One start, live limits, one whole window a cell; the cells of a load follow each other, and the
first cell is looked at again at the end of each load: that is how much a repeat differs.
``python benchmarks/h200/grid.py --seqs 96 128 --tokens 2048 4096 --rates 44 -- vllm serve …``
writes ``build/bench/grid.jsonl``, which ``vllm-tuning report`` reads, and prints a table.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import TextIO

from vllm_tuning.api.markdown import table
from vllm_tuning.bench.load import eventloop
from vllm_tuning.bench.main import run_here
from vllm_tuning.report.model import read_events
from vllm_tuning.tuning.experiment import Experiment, OutOfBudgetError, Steps
from vllm_tuning.tuning.model import (
    SLO,
    Budget,
    Ending,
    Lengths,
    Limits,
    Metric,
    Objective,
    OpenLoad,
    ProbeResult,
    Problem,
    Purpose,
    Recommendation,
    Space,
    Workload,
)
from vllm_tuning.tuning.recommend import Findings, unconfirmed
from vllm_tuning.tuning.run import ProbeEnded
from vllm_tuning.tuning.search import Search

OUTPUT = Path("build/bench/grid.jsonl")
SLOS = (
    SLO(Metric.TTFT, percentile=95, max_milliseconds=200),
    SLO(Metric.TPOT, percentile=95, max_milliseconds=20),
)
"""As chat.yaml; the lengths too."""
WORKLOAD = Workload(input_tokens=Lengths(512), output_tokens=Lengths(128))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seqs", type=int, nargs="+", required=True)
    options.add_argument("--tokens", type=int, nargs="+", required=True)
    options.add_argument("--rates", type=float, nargs="+", required=True, help="requests a second")
    options.add_argument("--window", type=float, default=15.0, help="seconds of a cell")
    options.add_argument("--seconds", type=float, default=3600.0, help="of the whole")
    options.add_argument("command", nargs="+", help="the engine, after --")
    chosen = options.parse_args()
    cells = [Limits(*pair) for pair in product(chosen.seqs, chosen.tokens)]
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    with OUTPUT.open("w") as stream:
        eventloop.run(_run(chosen, cells, stream))
    ended = read_events(OUTPUT.read_text().splitlines())
    head = ("seqs", "tokens", "req/s", "TTFT p95", "TPOT p95", "within both", "verdict")
    rows = (_cells(event.result) for event in ended if isinstance(event, ProbeEnded))
    print(table(head, rows), end="")


async def _run(chosen: argparse.Namespace, cells: list[Limits], stream: TextIO) -> None:
    problem = Problem(
        slos=SLOS,
        objective=Objective.MAX_RATE,
        workload=WORKLOAD,
        current=cells[0],
        space=Space(),
        budget=Budget(gpu_seconds=chosen.seconds, deadline_seconds=chosen.seconds),
    )

    def plan(experiment: Experiment, findings: Findings) -> Steps[Recommendation]:
        with suppress(OutOfBudgetError):
            yield from _measure(experiment, cells, chosen.rates, chosen.window)
        return unconfirmed(findings, Ending.INCONCLUSIVE, "a grid proves nothing")

    await run_here(
        problem,
        chosen.command,
        stream,
        log=OUTPUT.with_suffix(".engine.log"),
        search=Search(problem, plan),
    )


def _measure(
    experiment: Experiment, cells: list[Limits], rates: list[float], window: float
) -> Steps[None]:
    top = Limits(
        max(cell.max_num_seqs for cell in cells), max(cell.max_num_batched_tokens for cell in cells)
    )
    started = yield from experiment.start(top, Purpose.SEARCH, hook=True, why="the grid's envelope")
    if started.failure is not None:
        sys.exit(started.failure.message)
    for rate in rates:
        for cell in (*cells, cells[0]):
            yield from experiment.glance(
                cell,
                OpenLoad(rate),
                Purpose.SEARCH,
                why="grid",
                window_seconds=window,
            )


def _cells(result: ProbeResult) -> tuple[object, ...]:
    limits, load = result.probe.limits, result.probe.load
    assert isinstance(load, OpenLoad)
    ttft, tpot = (f"{value.p95:.0f}" if value.p95 else "-" for value in (result.ttft, result.tpot))
    share = "-" if result.goodput_fraction is None else f"{100 * result.goodput_fraction:.1f} %"
    rate, verdict = f"{load.rate_per_second:g}", f"{result.verdict}: {result.reason}"
    return limits.max_num_seqs, limits.max_num_batched_tokens, rate, ttft, tpot, share, verdict


if __name__ == "__main__":
    main()
