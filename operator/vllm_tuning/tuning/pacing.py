"""How long a probe must be, and what it may cost."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_tuning.tuning.model import ClosedLoad, Load, Metric, Problem
from vllm_tuning.tuning.verdict import target


@dataclass(frozen=True, slots=True)
class Pace:
    """The rules of one class of engine; all in seconds unless said."""

    search_window: tuple[float, float]
    """Least and most length of a window of the race."""
    search_requests: int
    """Requests that such a window should see: order, not proof."""
    search_latencies: float
    """A window spans at least so many request latencies, else it ends before the queue has its
    say.
    """
    confirm_window: tuple[float, float]
    confirm_latencies: float
    canary: float
    """Window of the first probe, when nothing is known of the engine."""
    resolution: float
    """A bracket (lowest load beyond / highest load within) this narrow is narrow enough."""
    back_off: float
    """Each attempt of a confirmation has this share of the last one's load."""
    assumed_start: float
    """Cost of a start before one was seen; only for refusing a hopeless budget."""


STANDARD = Pace(
    search_window=(12.0, 45.0),
    search_requests=200,
    search_latencies=5.0,
    confirm_window=(30.0, 180.0),
    confirm_latencies=10.0,
    canary=15.0,
    resolution=1.08,
    back_off=0.95,
    assumed_start=60.0,
)
"""Data-centre engines: starts of minutes, requests of seconds."""

QUICK = Pace(
    search_window=(1.5, 6.0),
    search_requests=45,
    search_latencies=3.0,
    confirm_window=(3.0, 10.0),
    confirm_latencies=6.0,
    canary=2.5,
    resolution=1.25,
    back_off=0.75,  # near the limit, windows of seconds on a busy small machine prove little
    assumed_start=2.0,
)
"""Tiny engines in tests and the demo: the same rules on less evidence; the result says so."""


SLOW_WINDOW_SECONDS = 60.0
"""A window of the race that would be longer spans ``SLOW_LATENCIES`` only: time is short then."""

SLOW_LATENCIES = 3.0

LEAST_REQUESTS = 20
"""Requests below which a window says nothing: the verdict has none then either."""


def pace_of(problem: Problem) -> Pace:
    """The rules for this problem."""
    return QUICK if problem.quick else STANDARD


def search_window(pace: Pace, load: Load, latency_seconds: float) -> float:
    """Window of a race probe at ``load``, given how long a request takes."""
    shortest, longest = pace.search_window
    for_count = pace.search_requests / _rate(load, latency_seconds)
    slow = max(SLOW_WINDOW_SECONDS, SLOW_LATENCIES * latency_seconds)
    span = min(pace.search_latencies * latency_seconds, slow)
    wanted = max(shortest, span, for_count)
    # A load of one request a minute cannot show so many of them; some latencies must then do, with
    # the few requests without which there is nothing to order by.
    least = LEAST_REQUESTS / _rate(load, latency_seconds)
    return min(wanted, max(longest, span, least))


def confirm_window(pace: Pace, problem: Problem, load: Load, latency_seconds: float) -> float:
    """Window of a confirmation: long against the latency, enough requests for a percentile."""
    if problem.window_seconds is not None:
        return problem.window_seconds
    shortest, longest = pace.confirm_window
    # Preemptions are counted by the engine, all others are shares of requests.
    shares = [target(slo) for slo in problem.slos if slo.metric is not Metric.PREEMPTION_RATE]
    misses = 8.0 if not problem.quick else 4.0  # those that the SLO allows in a window
    for_count = misses / max(1.0 - max(shares, default=0.0), 0.01) / _rate(load, latency_seconds)
    # Rates of errors and preemptions have no tail that a queue could still grow into.
    bounded = any(slo.max_milliseconds for slo in problem.slos)
    latencies = pace.confirm_latencies if bounded else pace.search_latencies
    wanted = max(shortest, latencies * latency_seconds, for_count)
    if not problem.quick:
        longest = max(longest, latencies * latency_seconds)
    return min(wanted, longest)


def probe_seconds(window: float, windows: int, latency_seconds: float) -> float:
    """What a probe takes: warm-up, windows, drain."""
    return windows * window + 3.0 * latency_seconds + 1.0


def _rate(load: Load, latency_seconds: float) -> float:
    if isinstance(load, ClosedLoad):
        return load.concurrency / max(latency_seconds, 1e-3)
    return max(load.rate_per_second, 1e-6)
