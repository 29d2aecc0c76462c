"""A small exhaustive grid around an answer, to see its regret: every cell at the same loads.

One start, live limits, one whole window a cell. First the answer at the load that was confirmed on
a fresh start: do live limits measure the same? Then, at each load above it (a number of clients:
twice at the same), the answer, its neighbours in both limits, and the answer again: that is how
much a repeat differs.
``python benchmarks/h200/grid.py vllm-tuning-out/events.jsonl -- vllm serve …`` writes
``build/bench/grid.jsonl``, which ``vllm-tuning report`` reads, and prints a table.
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
from vllm_tuning.tuning.experiment import Experiment, OutOfBudgetError, Steps, rounded
from vllm_tuning.tuning.model import (
    SLO,
    Budget,
    ClosedLoad,
    Ending,
    Lengths,
    Limits,
    Load,
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
from vllm_tuning.tuning.priors import bucket_top
from vllm_tuning.tuning.recommend import Findings, unconfirmed
from vllm_tuning.tuning.run import ENGINE_PORT, ProbeEnded, RunEnded
from vllm_tuning.tuning.search import Search
from vllm_tuning.tuning.text import load_text

OUTPUT = Path("build/bench/grid.jsonl")
SEQS_FACTORS = (0.75, 1.0, 1.5)
TOKENS_FACTORS = (0.5, 1.0, 2.0)
LOAD_FACTORS = (1.06, 1.13)
SLOS = (
    SLO(Metric.TTFT, percentile=95, max_milliseconds=200),
    SLO(Metric.TPOT, percentile=95, max_milliseconds=20),
)
"""As chat.yaml; the lengths too."""
WORKLOAD = Workload(input_tokens=Lengths(512), output_tokens=Lengths(128))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("events", type=Path, help="of the run whose answer is looked at")
    options.add_argument("--window", type=float, default=15.0, help="seconds of a cell")
    options.add_argument("--seconds", type=float, default=3600.0, help="of the whole")
    options.add_argument("--engine-port", type=int, default=ENGINE_PORT)
    options.add_argument("command", nargs="+", help="the engine, after --")
    chosen = options.parse_args()
    answer, load = _answer(chosen.events)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    with OUTPUT.open("w") as stream:
        eventloop.run(_run(chosen, answer, load, stream))
    ended = read_events(OUTPUT.read_text().splitlines())
    head = ("seqs", "tokens", "load", "out tok/s", "TTFT p95", "TPOT p95", "within both", "verdict")
    rows = (_cells(event.result) for event in ended if isinstance(event, ProbeEnded))
    print(table(head, rows), end="")


def _answer(path: Path) -> tuple[Limits, Load]:
    """The limits that a run confirmed, and their load; it exits if there are none."""
    last = read_events(path.read_text().splitlines())[-1]
    found = last.recommendation if isinstance(last, RunEnded) else None
    if found is None or found.result is None or found.load is None:
        sys.exit(f"{path} does not end with a confirmed load")
    return found.result.probe.limits, found.load


async def _run(chosen: argparse.Namespace, answer: Limits, load: Load, stream: TextIO) -> None:
    problem = Problem(
        slos=SLOS if isinstance(load, OpenLoad) else (),
        objective=Objective.MAX_RATE,
        workload=WORKLOAD,
        current=answer,
        space=Space(),
        budget=Budget(gpu_seconds=chosen.seconds, deadline_seconds=chosen.seconds),
    )

    def plan(experiment: Experiment, findings: Findings) -> Steps[Recommendation]:
        with suppress(OutOfBudgetError):
            yield from _measure(experiment, answer, load, chosen.window)
        return unconfirmed(findings, Ending.INCONCLUSIVE, "a grid proves nothing")

    await run_here(
        problem,
        chosen.command,
        stream,
        log=OUTPUT.with_suffix(".engine.log"),
        engine_port=chosen.engine_port,
        search=Search(problem, plan),
    )


def _measure(experiment: Experiment, answer: Limits, load: Load, window: float) -> Steps[None]:
    # A cap above the number of clients is idle: a fresh start needs it for its graphs, a race not.
    clients = load.concurrency if isinstance(load, ClosedLoad) else answer.max_num_seqs
    centre = min(answer.max_num_seqs, clients)
    cells = [
        Limits(bucket_top(seqs * centre), int(tokens * answer.max_num_batched_tokens))
        for seqs, tokens in product(SEQS_FACTORS, TOKENS_FACTORS)
    ]
    top = Limits(
        max(cell.max_num_seqs for cell in (answer, *cells)),
        max(cell.max_num_batched_tokens for cell in cells),
    )
    started = yield from experiment.start(top, Purpose.SEARCH, hook=True, why="the grid's envelope")
    if started.failure is not None:
        sys.exit(started.failure.message)
    yield from _look(experiment, answer, load, 2 * window, "as confirmed, but live")
    neighbours = [cell for cell in cells if cell != answer]
    for factor in LOAD_FACTORS:
        if isinstance(load, OpenLoad):
            above: Load = OpenLoad(rounded(factor * load.rate_per_second))
        else:
            above = load
        for cell in (answer, *neighbours, answer):
            yield from _look(experiment, cell, above, window, "grid")


def _look(
    experiment: Experiment, cell: Limits, load: Load, window: float, why: str
) -> Steps[ProbeResult]:
    if experiment.left_seconds < 2 * window:
        raise OutOfBudgetError
    return (
        yield from experiment.glance(cell, load, Purpose.SEARCH, why=why, window_seconds=window)
    )


def _cells(result: ProbeResult) -> tuple[object, ...]:
    limits, load = result.probe.limits, result.probe.load
    ttft, tpot = (f"{value.p95:.0f}" if value.p95 else "-" for value in (result.ttft, result.tpot))
    share = "-" if result.goodput_fraction is None else f"{100 * result.goodput_fraction:.1f} %"
    speed = f"{result.output_tokens_per_second or 0:.0f}"
    pair = limits.max_num_seqs, limits.max_num_batched_tokens
    return *pair, load_text(load), speed, ttft, tpot, share, f"{result.verdict}: {result.reason}"


if __name__ == "__main__":
    main()
