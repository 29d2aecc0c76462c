"""Compare the batch queue with the simulated engine: ``python benchmarks/verdicts/validate.py``.

The simulated engine is itself compared with the H200 (``benchmarks/results/simulator.md``). What
the study needs of the queue is not its capacity but how windows vary around it, so both are
compared at the same *pressure*: p95 TPOT, its spread over windows, and that spread over what the
quarters of a window let expect (``evidence.BETWEEN_WINDOWS``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from batchqueue import Span
from cases import CASES
from replay import Recorded

from vllm_tuning.api import markdown
from vllm_tuning.bench.sim.inprocess import SimulatedServer
from vllm_tuning.bench.sim.parameters import PRESETS
from vllm_tuning.tuning.evidence import QUARTERS, quarter_percentiles
from vllm_tuning.tuning.model import Limits, OpenLoad, Probe, Purpose, Start
from vllm_tuning.tuning.samples import Floats, RequestSamples

LIMITS = Limits(256, 2048)
WARMUP_SECONDS, WINDOW_SECONDS = 10.0, 30.0
QUEUE_RATES, SIMULATED_RATES = (30.0, 36.0, 40.0), (32.0, 38.0, 42.0)
"""Requests per second that make about the same p95 TPOT of each."""

RUNS = {"queue": 150, "simulated engine": 20}


def main() -> None:
    chat = CASES[0]
    head = [
        "engine", "req/s", "TTFT p50 / p95 ms", "TPOT p50 / p95 ms",
        "spread of a window's p95: TTFT",
        "TPOT", "variance over that of quarters: TTFT", "TPOT",
    ]  # fmt: skip
    lines = []
    for rate in QUEUE_RATES:
        span = Span(WARMUP_SECONDS, WINDOW_SECONDS, WARMUP_SECONDS + WINDOW_SECONDS + 10.0)
        runs = RUNS["queue"]
        seen = chat.queue().run(
            chat.workload, [rate] * runs, [span] * runs, np.random.default_rng(3)
        )
        lines.append(
            ["queue", f"{rate:g}", *_figures([Recorded(run).known_at(np.inf) for run in seen])]
        )
    for rate in SIMULATED_RATES:
        rows = [_simulated(rate, seed) for seed in range(RUNS["simulated engine"])]
        lines.append(["simulated engine", f"{rate:g}", *_figures(rows)])
    print(markdown.table(head, lines), end="")


def _simulated(rate: float, seed: int) -> RequestSamples:
    parameters = PRESETS["h200-8b"]
    one_card = replace(parameters, noise=replace(parameters.noise, card=0.0))
    server = SimulatedServer(one_card, seed=seed)
    server.start(Start("s", Purpose.VERIFY, LIMITS, hook=False))
    probe = Probe(
        "p", Purpose.VERIFY, LIMITS, OpenLoad(rate), 100 + seed, window_seconds=WINDOW_SECONDS,
        windows=1, warmup_seconds=WARMUP_SECONDS, stop_on_fail=False,
    )  # fmt: skip
    virtual = server.begin(probe, CASES[0].problem())
    virtual.run()
    return virtual.load.samples()


def _figures(rows: list[RequestSamples]) -> list[str]:
    span = (WARMUP_SECONDS, WARMUP_SECONDS + WINDOW_SECONDS)
    inside = [
        row.select((row.scheduled_at >= span[0]) & (row.scheduled_at < span[1])) for row in rows
    ]
    told, spreads, ratios = [], [], []
    for name in ("ttft_ms", "tpot_ms"):
        values: list[Floats] = [getattr(row, name) for row in inside]
        together = np.concatenate(values)
        told.append(f"{np.nanpercentile(together, 50):.3g} / {np.nanpercentile(together, 95):.3g}")
        windows = np.log([float(np.nanpercentile(value, 95)) for value in values])
        quarters = np.log(
            [
                quarter_percentiles(
                    row.scheduled_at[~np.isnan(value)],
                    value[~np.isnan(value)],
                    [span],
                    percentile=95,
                )
                for row, value in zip(inside, values, strict=True)
            ]
        )
        expected = float(quarters.var(axis=1, ddof=1).mean()) / QUARTERS
        spreads.append(f"{windows.std(ddof=1):.1%}")
        ratios.append(f"{windows.var(ddof=1) / expected:.1f}")
    return [*told, *spreads, *ratios]


if __name__ == "__main__":
    main()
