"""The highest load that our driver holds VALID: whole probes against the replay server.

``capacity.py URL WINDOW_SECONDS STREAMS...``. Each probe is a closed loop of N streams, each a
token every ``GAP_SECONDS``; it counts as held if the probe is not INVALID by the limits that every
real run has, and as many chunks arrived as the server sends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from vllm_tuning.bench.load import eventloop
from vllm_tuning.bench.load.server import ServerAddress
from vllm_tuning.bench.probe import run_probe
from vllm_tuning.tuning.model import (
    SLO,
    Budget,
    ClosedLoad,
    Lengths,
    Limits,
    Metric,
    Objective,
    Probe,
    ProbeResult,
    Problem,
    Purpose,
    Space,
    Verdict,
    Workload,
)

GAP_SECONDS = 0.1
FIRST_SECONDS = 0.2
OUTPUT_TOKENS = 64
LIMITS = Limits(max_num_seqs=8192, max_num_batched_tokens=8192)


@dataclass(frozen=True)
class Held:
    """One load."""

    streams: int
    valid: bool
    reason: str
    message: str
    chunks_per_second: float
    cpu_fraction: float
    lateness_p99_ms: float
    starved_fraction: float
    """Share of the time that the driver was ready to run and another process had its core."""
    load_average: float
    """Of the machine, over the last minute: others' work on the same cores lowers what is held."""


def problem() -> Problem:
    return Problem(
        # A bound that the replay server meets by far, so that only the client can spoil it.
        slos=(SLO(Metric.TTFT, 95, 1000), SLO(Metric.TPOT, 95, 200)),
        objective=Objective.MAX_THROUGHPUT,
        workload=Workload(Lengths(128), Lengths(OUTPUT_TOKENS), arrival="Closed"),
        current=LIMITS,
        space=Space(),
        budget=Budget(3600, 3600),
    )


async def _nothing(*_: float) -> None:
    return None


async def hold(url: str, streams: int, window_seconds: float) -> Held:
    probe = Probe(
        id=f"streams-{streams}",
        purpose=Purpose.SEARCH,
        limits=LIMITS,
        load=ClosedLoad(streams),
        seed=streams,
        window_seconds=window_seconds,
        stop_on_fail=False,
    )
    begun, waited = time.monotonic(), waited_for_a_core()
    result = await run_probe(
        probe,
        problem=problem(),
        server=ServerAddress(url, "replay"),
        on_progress=lambda _: None,
        hook_record=_nothing,
        gpu_samples=_nothing,
    )
    starved = (waited_for_a_core() - waited) / (time.monotonic() - begun)
    return _held(streams, result, starved)


def waited_for_a_core() -> float:
    """Seconds that this thread has spent in the scheduler's queue (Linux: sched-stats.rst)."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


def _held(streams: int, result: ProbeResult, starved: float) -> Held:
    rate = result.output_tokens_per_second or 0.0
    cycle = FIRST_SECONDS + (OUTPUT_TOKENS - 1) * GAP_SECONDS
    expected = streams * OUTPUT_TOKENS / cycle
    whole = rate >= 0.97 * expected
    reason, message = result.reason, result.message
    if result.verdict is not Verdict.INVALID and not whole:
        reason, message = "FewerTokens", f"{rate:.0f} of {expected:.0f} chunks a second arrived"
    return Held(
        streams=streams,
        valid=result.verdict is not Verdict.INVALID and whole and not result.failed,
        reason=reason,
        message=message,
        chunks_per_second=round(rate, 1),
        cpu_fraction=round(result.client_cpu_fraction or 0.0, 3),
        lateness_p99_ms=round(result.send_lateness_p99_ms or 0.0, 2),
        starved_fraction=round(starved, 3),
        load_average=round(os.getloadavg()[0], 2),
    )


async def climb(url: str, window_seconds: float, loads: list[int]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for streams in loads:
        held = await hold(url, streams, window_seconds)
        print(json.dumps(asdict(held)), file=sys.stderr, flush=True)
        found.append(asdict(held))
        if not held.valid and found[-2:-1] and not found[-2]["valid"]:
            break  # twice in a row: this is the end, not a hiccup
    return found


if __name__ == "__main__":
    url, window, *loads = sys.argv[1:]
    print(json.dumps(eventloop.run(climb(url, float(window), [int(load) for load in loads]))))
