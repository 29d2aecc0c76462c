"""Whether a serving Deployment meets its SLA at the moment, by its pods' own counters.

Facts of a time window, no inference: the share of requests within the bound, which a histogram
gives exactly only where the bound is one of its edges. What the counters cannot tell is ``Unknown``
and says why; it is never "met".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from vllm_tuning.api.policy import LiveState
from vllm_tuning.api.values import SLO, SLOMetric
from vllm_tuning.engine.latency import FAMILIES, LatencyPage
from vllm_tuning.reconcile.bounds import describe

LEAST_REQUESTS: Final = 20
"""Of a window with fewer, a share says nothing."""


@dataclass(frozen=True, slots=True)
class LiveSLO:
    """One SLO in a window."""

    slo: SLO
    state: LiveState
    message: str


@dataclass(frozen=True, slots=True)
class LiveVerdict:
    """A Deployment in a window."""

    state: LiveState
    slos: tuple[LiveSLO, ...] = ()
    message: str = ""
    """The SLOs that are missed, else those that are not known."""


def unknown(why: str) -> LiveVerdict:
    """Return the verdict of a Deployment that nothing is known of."""
    return LiveVerdict(LiveState.UNKNOWN, message=why)


def judge_live(slos: Iterable[SLO], window: LatencyPage) -> LiveVerdict:
    """Judge all SLOs by what happened in a window: one that is missed is enough to miss."""
    found = tuple(judge_slo(slo, window) for slo in slos)
    if not found:
        return unknown("it has no SLA: no tuning, profile or policy gives one")
    for state in (LiveState.MISSING, LiveState.UNKNOWN):
        if told := [slo.message for slo in found if slo.state is state]:
            return LiveVerdict(state, found, "; ".join(told))
    return LiveVerdict(LiveState.MEETING, found)


def judge_slo(slo: SLO, window: LatencyPage) -> LiveSLO:
    """Judge one SLO."""
    if slo.metric is SLOMetric.ERROR_RATE:
        return _errors(slo, window)
    if slo.metric is SLOMetric.PREEMPTION_RATE:
        return _preemptions(slo, window)
    return _latency(slo, window)


def _latency(slo: SLO, window: LatencyPage) -> LiveSLO:
    histogram = window.histograms.get(slo.metric)
    if histogram is None:
        why = "this engine has none" if slo.metric in FAMILIES else "engines count no such thing"
        return _tell(slo, LiveState.UNKNOWN, f"no histogram: {why}")
    bound = (slo.max_milliseconds or 0) / 1e3
    shares = histogram.share_within(bound)
    if shares is None or histogram.count < LEAST_REQUESTS:
        return _few(slo, histogram.count)
    low, high = shares
    target = (slo.percentile or 0) / 100
    if low >= target:
        return _tell(slo, LiveState.MEETING, f"{low:.0%} within")
    if high < target:
        return _tell(slo, LiveState.MISSING, f"{_range(low, high)} within")
    below, above = histogram.around(bound)
    return _tell(
        slo,
        LiveState.UNKNOWN,
        f"{_range(low, high)} within: the engine counts at {1e3 * below:g} and {1e3 * above:g} ms "
        "only",
    )


def _errors(slo: SLO, window: LatencyPage) -> LiveSLO:
    """Errors for sure, aborts perhaps: a client may have left because it waited too long, or not.

    Requests that never reached the engine are in none of its counters.
    """
    ended = window.ended + window.rejections
    if ended < LEAST_REQUESTS:
        return _few(slo, ended)
    sure = window.finished.get("error", 0.0) + window.rejections
    most = sure + window.finished.get("abort", 0.0)
    allowed = (slo.max_percent or 0) / 100
    if sure / ended > allowed:
        return _tell(slo, LiveState.MISSING, f"{sure / ended:.1%} failed")
    if most / ended <= allowed:
        return _tell(slo, LiveState.MEETING, f"{most / ended:.1%} failed or were aborted")
    return _tell(
        slo,
        LiveState.UNKNOWN,
        f"{sure / ended:.1%} failed, {most / ended:.1%} with those that clients aborted",
    )


def _preemptions(slo: SLO, window: LatencyPage) -> LiveSLO:
    if window.preemptions is None:
        return _tell(slo, LiveState.UNKNOWN, "this engine does not count preemptions")
    if window.ended < LEAST_REQUESTS:
        return _few(slo, window.ended)
    rate = window.preemptions / window.ended
    met = rate <= (slo.max_percent or 0) / 100
    state = LiveState.MEETING if met else LiveState.MISSING
    return _tell(slo, state, f"{rate:.0%} of requests")


def _few(slo: SLO, count: float) -> LiveSLO:
    words = "no traffic" if count <= 0 else f"fewer than {LEAST_REQUESTS} requests in the window"
    return _tell(slo, LiveState.UNKNOWN, words)


def _tell(slo: SLO, state: LiveState, seen: str) -> LiveSLO:
    return LiveSLO(slo, state, f"{describe(slo)}: {seen}")


def _range(low: float, high: float) -> str:
    first, last = f"{low:.0%}", f"{high:.0%}"
    return first if first == last else f"{first} to {last}"
