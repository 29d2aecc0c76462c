"""The load at which a case leaves its SLA, from thousands of windows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from batchqueue import Span
from cases import Case
from replay import Recorded

from vllm_tuning.tuning.model import SLO
from vllm_tuning.tuning.outcomes import outcomes_of
from vllm_tuning.tuning.samples import RequestSamples
from vllm_tuning.tuning.verdict import target

STORE = Path(__file__).parents[1] / "data" / "verdict-truth.json"
COARSE = (tuple(1.04**step for step in range(-5, 6)), 30)
"""Loads over the guess, and runs a load."""
FINE = ((0.97, 1.0, 1.03), 300)
WINDOWS = 4
WARMUP_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true of a case."""

    limit: float
    """Requests per second at which the first SLO's share of requests, averaged over windows, is at
    its target.
    """
    latency_seconds: float
    """E2E latency there, p95."""


def truth_of(case: Case) -> Truth:
    """Return what is stored, or measure and store it (minutes)."""
    store: dict[str, dict[str, float]] = json.loads(STORE.read_text()) if STORE.exists() else {}
    if case.name not in store:
        found = case.guess
        for loads, runs in (COARSE, FINE):
            found = _crossing(case, [found * load for load in loads], runs)
        rows = _rows(case, [found] * 20, np.random.default_rng(2026))
        latency = float(np.percentile(np.concatenate([row.e2e_ms for row in rows]), 95)) / 1e3
        store = json.loads(STORE.read_text()) if STORE.exists() else {}
        store[case.name] = {
            "limit": float(f"{found:.5g}"),
            "latency_seconds": float(f"{latency:.3g}"),
        }
        STORE.write_text(json.dumps(store, indent=1, sort_keys=True) + "\n")
    return Truth(**store[case.name])


def _crossing(case: Case, loads: list[float], runs: int) -> float:
    rng = np.random.default_rng([2026, len(loads)])
    rows = _rows(case, [load for load in loads for _ in range(runs)], rng)
    margins = [
        min(_log_margin(slo, rows[start : start + runs]) for slo in case.slos)
        for start in range(0, len(rows), runs)
    ]
    for low, high in zip(range(len(loads) - 1), range(1, len(loads)), strict=True):
        if margins[low] >= 0.0 > margins[high]:
            share = margins[low] / (margins[low] - margins[high])
            return loads[low] + share * (loads[high] - loads[low])
    msg = f"{case.name}: no crossing within {loads[0]:.4g} to {loads[-1]:.4g}: {margins}"
    raise ValueError(msg)


def _rows(case: Case, loads: list[float], rng: np.random.Generator) -> list[RequestSamples]:
    """Requests of the windows of a run at each of ``loads``, all with their time to end."""
    window = max(30.0, 200.0 / min(loads))
    warm = max(WARMUP_SECONDS, window / 2)
    end = warm + WINDOWS * window
    spans = [Span(warm, window, end + window)] * len(loads)
    seen = case.queue().run(case.workload, loads, spans, rng)
    return [Recorded(run).sent_between(warm, end) for run in seen]


def _log_margin(slo: SLO, rows: list[RequestSamples]) -> float:
    """By how much the SLO's share is above its target: log of (misses allowed / misses).

    Nearly straight in the load, unlike the share.
    """
    outcomes = [outcomes_of(slo, row).pessimistic() for row in rows]
    hits = sum(float(outcome.hits.sum()) for outcome in outcomes)
    trials = sum(outcome.known for outcome in outcomes)
    return float(np.log((1 - target(slo)) / max(1 - hits / trials, 1e-4)))
