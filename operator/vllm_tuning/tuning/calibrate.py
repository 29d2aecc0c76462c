"""The first minutes on the envelope server: what a request costs alone, and among others."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_tuning.tuning.experiment import ClientBoundError, Experiment, Steps
from vllm_tuning.tuning.model import ClosedLoad, Limits, Metric, ProbeResult, Purpose
from vllm_tuning.tuning.priors import kv_concurrency
from vllm_tuning.tuning.standing import Standing, standing
from vllm_tuning.tuning.stepmodel import StepModel, fit

LEAST_REQUESTS = 5
"""A canary with fewer finished requests is repeated with a window that suits their latency."""

TELLING_REQUESTS = 25
"""Requests that a repeated canary sees: enough for a verdict, where even a single client looks
beyond the SLA.
"""

LOADED_CONCURRENCY = (4, 32)
"""Clients of the loaded probe: enough to feel each other, few enough to be cheap."""

DRIFT = 0.05
"""Change of the canary's TPOT from which the machine is said to have drifted."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What the first probes told."""

    alone: ProbeResult
    loaded: ProbeResult | None
    model: StepModel | None
    first_guess_seqs: int | None
    """The engineer's start value: time-to-first-token bound over that of a single request."""


def calibrate(experiment: Experiment, limits: Limits) -> Steps[Calibration]:
    """Run the canary and one loaded closed loop at ``limits``."""
    alone = yield from canary(experiment, limits, "what does a request take alone?")
    guess = _first_guess(experiment, alone)
    clients = min(max(guess or 16, LOADED_CONCURRENCY[0]), LOADED_CONCURRENCY[1])
    held = kv_concurrency(experiment.facts, experiment.problem.workload)
    clients = max(1, min(clients, limits.max_num_seqs, held[0] if held else clients))
    loaded = None
    if clients > 1:
        try:
            loaded = yield from experiment.probe(
                limits,
                ClosedLoad(clients),
                Purpose.CALIBRATE,
                why=f"what does it take among {clients}?",
            )
        except ClientBoundError:
            loaded = None  # the race begins low, and finds what the client can offer
    return Calibration(alone, loaded, fit(experiment.problem, alone, loaded), guess)


def canary(experiment: Experiment, limits: Limits, why: str) -> Steps[ProbeResult]:
    """One client, one request at a time: the same probe at any time of the run."""
    window = experiment.pace.canary
    result = yield from experiment.probe(
        limits, ClosedLoad(1), Purpose.CALIBRATE, why=why, window_seconds=window
    )
    beyond = standing(result) is Standing.NEAR
    if result.completed < (TELLING_REQUESTS if beyond else LEAST_REQUESTS):
        wanted = TELLING_REQUESTS if beyond else LEAST_REQUESTS + 1
        least = 3 if result.completed else 8  # of an engine so slow, nothing is known yet
        longer = max(least * window, wanted * experiment.latency_seconds)
        result = yield from experiment.probe(
            limits,
            ClosedLoad(1),
            Purpose.CALIBRATE,
            why=f"{result.completed} requests are too few; a longer look",
            window_seconds=longer,
        )
    return result


def drift(before: ProbeResult, after: ProbeResult) -> float | None:
    """Relative change of the canary's pace, ``None`` if either did not show one."""
    old = before.tpot.p50 or before.e2e.p50
    new = after.tpot.p50 or after.e2e.p50
    return new / old - 1.0 if old and new else None


def _first_guess(experiment: Experiment, alone: ProbeResult) -> int | None:
    bounds = [
        slo.max_milliseconds
        for slo in experiment.problem.slos
        if slo.metric is Metric.TTFT and slo.max_milliseconds
    ]
    single = alone.ttft.p50 or alone.ttft.mean
    return max(1, int(min(bounds) / single)) if bounds and single else None
