"""Do limits that are set live measure what a start with exactly these args does?

Two engines on one GPU, each with a part of its memory: one with the hook, started at the envelope,
and one without it, started with the limits themselves. At each point they are loaded in turn with
the same arrivals, A B A B, while the other one idles; so card and minute are the same for both.
``python benchmarks/h200/live.py --fresh 128 2048 -- vllm serve … --gpu-memory-utilization 0.45``
prints a table and writes ``build/bench/live.jsonl``.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TextIO

import aiohttp
from grid import SLOS, WORKLOAD
from pydantic import TypeAdapter

from vllm_tuning.api.markdown import table
from vllm_tuning.bench.load import eventloop
from vllm_tuning.bench.probe import run_probe
from vllm_tuning.bench.session import connect, local_launcher
from vllm_tuning.bench.starts import RunningEngine, Starter
from vllm_tuning.tuning.model import (
    Budget,
    ClosedLoad,
    Limits,
    Load,
    Objective,
    OpenLoad,
    Probe,
    ProbeResult,
    Problem,
    Purpose,
    Space,
    Start,
    Workload,
)

OUTPUT = Path("build/bench/live.jsonl")
ENVELOPE = Limits(512, 4096)
SHARED = replace(WORKLOAD, shared_prefix_percent=50)
START_SECONDS = 600.0
RESULT = TypeAdapter(ProbeResult)


@dataclass(frozen=True, slots=True)
class Point:
    """A load, and how often each side takes it."""

    name: str
    load: Load
    workload: Workload = WORKLOAD
    turns: int = 2


def points(seqs: int, rate: float) -> tuple[Point, ...]:
    """The knee; few clients (decode batches in small CUDA graphs); a prefix cache that is hit."""
    return (
        Point("knee", OpenLoad(rate)),
        Point("few clients", ClosedLoad(min(24, seqs))),
        Point("shared prefix", OpenLoad(rate), SHARED, turns=1),
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--fresh", type=int, nargs=2, default=(128, 2048))
    options.add_argument("--rate", type=float, default=41.0, help="of the open loads, a second")
    options.add_argument("--window", type=float, default=10.0)
    options.add_argument("command", nargs="+", help="the engine, after --")
    chosen = options.parse_args()
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    with OUTPUT.open("w") as stream:
        rows = eventloop.run(_run(chosen, stream))
    head = ("point", "limits", "TTFT p50", "p95", "TPOT p50", "p95", "out tok/s", "running")
    print(table(head, rows), end="")


async def _run(chosen: argparse.Namespace, stream: TextIO) -> list[tuple[object, ...]]:
    limits = Limits(*chosen.fresh)
    rows: list[tuple[object, ...]] = []
    async with (
        _engine(chosen.command, ENVELOPE, hook=True, port=8911) as live,
        _engine(chosen.command, limits, hook=False, port=8912) as fresh,
    ):
        sides = dict(zip(("live", "fresh"), await asyncio.gather(live, fresh), strict=True))
        hook = sides["live"].live
        assert hook is not None, "the hook does not answer: limits cannot be set live"
        if refused := await hook.apply(limits):
            raise SystemExit(refused)
        for point in points(limits.max_num_seqs, chosen.rate):
            for turn, (side, engine) in product(range(point.turns), sides.items()):
                result = await _measure(engine, limits, point, turn, chosen.window)
                stream.write(RESULT.dump_json(result).decode() + "\n")
                stream.flush()
                rows.append(_row(point, side, result))
                print(*rows[-1], flush=True)
    return rows


@asynccontextmanager
async def _engine(
    command: Sequence[str], limits: Limits, *, hook: bool, port: int
) -> AsyncIterator[asyncio.Task[RunningEngine]]:
    """Start an engine; the task ends when it serves, so that several start at once."""
    log = OUTPUT.with_suffix(".fresh.log" if not hook else ".live.log")
    async with (
        local_launcher(command, log=log) as address,
        connect(address) as launcher,
        aiohttp.ClientSession() as http,
    ):
        starter = Starter(
            launcher, await launcher.wait(120.0), http, port=port, timeout_seconds=START_SECONDS
        )
        start = Start("s1", Purpose.SEARCH, limits, hook)

        async def begin() -> RunningEngine:
            result, engine = await starter.start(start, starter.plan(start))
            if engine is None:
                raise SystemExit(result.failure.message if result.failure else "no engine")
            return engine

        yield asyncio.create_task(begin())


async def _measure(
    engine: RunningEngine, limits: Limits, point: Point, turn: int, window: float
) -> ProbeResult:
    problem = Problem(
        slos=SLOS,
        objective=Objective.MAX_RATE,
        workload=point.workload,
        current=limits,
        space=Space(),
        budget=Budget(gpu_seconds=1e9, deadline_seconds=1e9),
    )
    probe = Probe(
        "p", Purpose.SEARCH, limits, point.load, seed=turn, window_seconds=window,
        stop_on_fail=False,
    )  # fmt: skip

    async def none(*_: float) -> None:
        return None

    return await run_probe(
        probe,
        problem=problem,
        server=engine.server,
        on_progress=lambda _: None,
        hook_record=none,
        gpu_samples=none,
    )


def _row(point: Point, side: str, result: ProbeResult) -> tuple[object, ...]:
    def told(value: float | None) -> str:
        return "-" if value is None else f"{value:.4g}"

    return (
        point.name,
        side,
        told(result.ttft.p50),
        told(result.ttft.p95),
        told(result.tpot.p50),
        told(result.tpot.p95),
        told(result.output_tokens_per_second),
        told(result.engine.running_mean),
    )


if __name__ == "__main__":
    main()
