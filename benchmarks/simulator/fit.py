"""Fit the coefficients of ``h200-8b`` to the measured windows, and print them.

    python benchmarks/simulator/fit.py [--rounds N] [--seeds N]

Two stages. Decode-only steps have a time of their own in the data: least squares. Everything else
shows only in what clients saw, because device, host and API server overlap: there the twin runs the
training windows and a pattern search moves one coefficient at a time, as long as the error gets
smaller. The windows that are not in ``TRAINING`` are never looked at.
"""

from __future__ import annotations

import argparse
import csv
import math
from dataclasses import replace

import numpy as np
from measured import DATA, METRICS, MeasuredWindow, load_windows, predict

from vllm_tuning.bench.sim.parameters import PRESETS, EngineParameters

TRAINING = frozenset({3, 5, 7, 9, 10, 12, 15, 17, 20, 22, 25, 27, 30, 34, 36, 37, 39, 1002, 1005})
"""Every kind of load, but of the open loop only 30 and 42 requests per second."""

WEIGHTS = {"ttft_p50": 1.0, "ttft_p95": 0.7, "tpot_p50": 1.5, "tpot_p95": 1.0, "out_tok_s": 2.0}
SMOOTH = 0.03
"""Errors below it count quadratically, larger ones linearly: no single window rules the fit."""

FREE = {
    "cost.mixed_fixed": 0.2,
    "cost.mixed_request": 0.3,
    "cost.mixed_context": 0.2,
    "cost.per_token": 0.06,
    "cost.per_attention": 0.3,
    "cost.throttle": 0.2,
    "cost.launch_mixed": 0.3,
    "cost.launch_mixed_per_token": 0.2,
    "cost.launch_eager": 0.1,
    "cost.launch_eager_per_request": 0.5,
    "noise.slow_share": 0.25,
    "noise.slow_share_per_request": 0.5,
    "noise.slow_factor": 0.1,
    "frontend.latency": 0.4,
    "frontend.request": 0.3,
    "frontend.token": 0.4,
}
"""Coefficients to move, with the first relative step."""


def fit_decode(parameters: EngineParameters) -> EngineParameters:
    """Least absolute relative error over the decode-only steps."""
    with (DATA / "decode-steps.csv").open(encoding="utf-8") as file:
        rows = np.array([[float(v) for v in row.values()] for row in csv.DictReader(file)])
    _, requests, context, milliseconds, count = rows.T
    terms = np.c_[np.ones(len(rows)), requests, requests**2 / 1e3, context / 1e3]
    weight = np.sqrt(count)
    for _ in range(20):
        scaled = weight / milliseconds
        solution, *_ = np.linalg.lstsq(terms * scaled[:, None], weight, rcond=None)
        error = np.abs(terms @ solution / milliseconds - 1)
        weight = np.sqrt(count / np.maximum(0.01, error))
    print(f"decode-only: {len(rows)} groups of {count.sum():.0f} steps, mean error "
          f"{np.average(error, weights=count):.2%}")  # fmt: skip
    fixed, linear, square, per_context = (round(float(value), 5) for value in solution)
    cost = replace(
        parameters.cost,
        fixed=fixed,
        per_request=linear,
        per_request_squared=square,
        per_context=per_context,
    )
    return replace(parameters, cost=cost)


def error(parameters: EngineParameters, windows: list[MeasuredWindow], seeds: range) -> float:
    """Weighted mean of the smoothed |log error| over windows and metrics."""
    total = weights = 0.0
    for window in windows:
        runs = [predict(parameters, window, seed) for seed in seeds]
        for metric in METRICS:
            measured = window.measured.get(metric)
            values = [run[metric] for run in runs if run[metric]]
            if not measured or not values:
                continue
            miss = math.log(sum(values) / len(values) / measured)
            total += WEIGHTS[metric] * (math.hypot(miss, SMOOTH) - SMOOTH)
            weights += WEIGHTS[metric]
    return total / weights


def read(parameters: EngineParameters, name: str) -> float:
    """Value of ``cost.x``, ``noise.x`` or ``frontend.x``."""
    part, field = name.split(".")
    return float(getattr(getattr(parameters, part), field))


def write(parameters: EngineParameters, name: str, value: float) -> EngineParameters:
    """Return the parameters with that value changed."""
    part, field = name.split(".")
    return replace(parameters, **{part: replace(getattr(parameters, part), **{field: value})})


def search(
    parameters: EngineParameters, windows: list[MeasuredWindow], seeds: range, rounds: int
) -> EngineParameters:
    """Move one coefficient after the other up or down; halve the step of one that does not move."""
    best = error(parameters, windows, seeds)
    steps = dict(FREE)
    print(f"start {best:.4f}", flush=True)
    for number in range(rounds):
        for name in FREE:
            value = read(parameters, name)
            for factor in (1 + steps[name], 1 / (1 + steps[name])):
                tried = write(parameters, name, float(f"{value * factor:.4g}"))
                found = error(tried, windows, seeds)
                if found < best:
                    parameters, best = tried, found
                    print(f"  {best:.4f} {name} = {read(parameters, name):.4g}", flush=True)
                    break
            else:
                steps[name] /= 2
        print(f"round {number + 1}: {best:.4f}", flush=True)
    return parameters


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=6)
    arguments.add_argument("--seeds", type=int, default=3)
    given = arguments.parse_args()
    windows = [window for window in load_windows() if window.window in TRAINING]
    parameters = fit_decode(PRESETS["h200-8b"])
    parameters = search(parameters, windows, range(given.seeds), given.rounds)
    for part in ("cost", "noise", "frontend"):
        print(part, getattr(parameters, part))


if __name__ == "__main__":
    main()
