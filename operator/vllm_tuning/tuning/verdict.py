"""The verdict of one probe: FAIL may come early, PASS never does.

A window that has just begun looks good, and requests near the knee are strongly correlated. So
FAIL needs only an upper confidence bound of the share below the target. PASS needs a probe that may
decide, complete windows, no growing queue, and two bounds with every unknown request counted as a
miss: that of the share above the target, and that of the percentile, which knows that windows
differ, within the SLO's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vllm_tuning.tuning.evidence import (
    QUARTERS,
    UNBOUNDED,
    Interval,
    design_effect,
    growth,
    percentile_upper,
    quarter_percentiles,
    wilson,
)
from vllm_tuning.tuning.model import SLO, Metric, OpenLoad, Probe, Purpose, SLOResult, Verdict
from vllm_tuning.tuning.outcomes import Outcomes, outcomes_of
from vllm_tuning.tuning.samples import RequestSamples, Window

EARLY_FAIL_ALPHA = 0.002
"""Level of each look for an early FAIL. A driver looks some ten times a probe, so a sound point is
dropped by chance in about 2 % of probes."""

MOST_SEEDS = 3
"""Probes of one load, each with its own arrivals, that are judged together at most: one more than
a PASS needs, where two leave it open.
"""

OUT_OF_REACH = "OutOfReach"
"""Reason of a confirming probe that ended with a window, because no PASS could come of it."""

MINIMUM_KNOWN = 20
"""Outcomes below which no verdict is given at all."""

GROWTH_FAIL = (0.7, 3.5)
"""Growth of the requests in flight (share of the mean, standard errors) from which a queue is
unstable: FAIL.
"""

GROWTH_DOUBT = (0.15, 2.5)
"""Growth from which a PASS is withheld. One steady probe in twenty shows as much by chance
(``benchmarks/verdicts``)."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its reason, in the words of ``ProbeResult``."""

    verdict: Verdict
    reason: str
    message: str
    slos: tuple[SLOResult, ...] = ()

    @property
    def ends_probe(self) -> bool:
        """Whether there is no point in measuring on."""
        return self.verdict is Verdict.FAIL or self.reason == OUT_OF_REACH


def judge(
    samples: RequestSamples,
    slos: Sequence[SLO],
    probe: Probe,
    *,
    windows: Sequence[Window],
    in_flight: Sequence[tuple[float, int]],
    now: float | None = None,
    preemptions: int | None = None,
) -> Judgement:
    """Judge what is known of a probe, at any moment of it.

    ``windows`` are the measured spans so far (the running one is not ``complete``), ``in_flight``
    the number of requests in flight at times of the same clock, ``now`` the time of the snapshot
    (``None`` = after the drain) and ``preemptions`` the engine's count over the windows (``None``
    = not known; then no preemption SLO is decided).
    """
    inside = np.zeros(len(samples), dtype=np.bool_)
    for window in windows:
        inside |= samples.window_mask(window)
    rows = samples.select(inside)
    over = now is None
    results = tuple(
        _preemption_result(slo, rows, preemptions, over=over)
        if slo.metric is Metric.PREEMPTION_RATE
        else _result(slo, rows, probe, windows, now=now)
        for slo in slos
    )
    if failing := [result for result in results if result.verdict is Verdict.FAIL]:
        return Judgement(Verdict.FAIL, "SLOViolated", _tell(failing, len(rows)), results)
    share, errors = _growth(probe, windows, in_flight)
    complete = sum(window.complete for window in windows)
    whole = over or complete >= probe.windows
    if whole and share > GROWTH_FAIL[0] and errors > GROWTH_FAIL[1]:
        message = (
            f"requests in flight grew by {share:.0%} of their mean within the windows: "
            "the load is above what the engine serves"
        )
        return Judgement(Verdict.FAIL, "QueueGrowing", message, results)
    verdict, reason, message = _not_failed(probe, results, complete, len(rows))
    # A confirmation is asked for a PASS alone: to give it up claims nothing (ADR 0007).
    at_end_of_window = reason == "WindowsIncomplete" and windows and windows[-1].complete
    if at_end_of_window and probe.purpose is Purpose.CONFIRM and out_of_reach(results, probe):
        reason = OUT_OF_REACH
    # What is too close to call alone may pass with other probes: it must be as steady.
    might_pass = verdict is Verdict.PASS or reason == "TooCloseToCall"
    if might_pass and share > GROWTH_DOUBT[0] and errors > GROWTH_DOUBT[1]:
        message = f"requests in flight still grow ({share:.0%} of their mean); {message}"
        return Judgement(Verdict.UNDECIDED, "QueueGrowing", message, results)
    return Judgement(verdict, reason, message, results)


def _not_failed(
    probe: Probe, results: tuple[SLOResult, ...], complete: int, count: int
) -> tuple[Verdict, str, str]:
    told = _tell(results, count)
    if complete < max(probe.windows, 2 if probe.decide else 1):
        return Verdict.UNDECIDED, "WindowsIncomplete", told
    if any(result.attainment is None for result in results):
        return Verdict.UNDECIDED, "NotMeasured", told
    if not probe.decide:
        within = all((result.attainment or 0.0) >= target(result.slo) for result in results)
        return Verdict.UNDECIDED, "LooksWithinSLO" if within else "NearLimit", told
    if all(result.verdict is Verdict.PASS for result in results):
        return Verdict.PASS, "WithinSLO", told
    return Verdict.UNDECIDED, "TooCloseToCall", told


def out_of_reach(results: Sequence[SLOResult], probe: Probe) -> bool:
    """Whether not even the calmest windows to come would make a PASS of what was seen so far."""
    windows = MOST_SEEDS * probe.windows
    for result in results:
        if result.attainment is not None and result.attainment < target(result.slo):
            return True
        seen, bound = result.observed_milliseconds, result.slo.max_milliseconds
        if seen is None or bound is None:
            continue
        calmest = percentile_upper(
            [seen] * MOST_SEEDS, [seen] * (QUARTERS * windows), alpha=probe.alpha
        )
        if calmest is not None and calmest > bound:
            return True
    return False


def target(slo: SLO) -> float:
    """The share of requests (0-1) that must meet the SLO; for rates, one minus the rate allowed."""
    if slo.percentile is not None:
        return slo.percentile / 100.0
    return 1.0 - (slo.max_percent or 0) / 100.0


def _result(
    slo: SLO, rows: RequestSamples, probe: Probe, windows: Sequence[Window], *, now: float | None
) -> SLOResult:
    outcomes = outcomes_of(slo, rows, now=now)
    if outcomes.attainment is None:
        return SLOResult(slo, None)
    upper = _bound(outcomes, rows, EARLY_FAIL_ALPHA if now is not None else probe.alpha).upper
    sure = outcomes.pessimistic()
    bound = _bound(sure, rows, probe.alpha)
    quarters = _quarters(slo, sure, windows) if probe.decide and now is None else ()
    ceiling = percentile_ceiling([(_observed(slo, sure), quarters)], alpha=probe.alpha)
    verdict = Verdict.UNDECIDED
    if outcomes.known >= MINIMUM_KNOWN and upper < target(slo):
        verdict = Verdict.FAIL
    elif outcomes.known >= MINIMUM_KNOWN and proves(slo, bound.lower, ceiling):
        verdict = Verdict.PASS
    return SLOResult(
        slo,
        outcomes.attainment,
        lower=bound.lower,
        upper=upper,
        verdict=verdict,
        observed_milliseconds=_observed(slo, outcomes),
        effective_count=bound.effective_trials,
        upper_milliseconds=ceiling,
        quarter_milliseconds=quarters,
    )


def proves(slo: SLO, lower: float, upper_milliseconds: float | None) -> bool:
    """Whether bounds of the share and of the percentile show that an SLO is met.

    A rate has no percentile; a percentile without a bound of its own proves nothing.
    """
    if lower < target(slo):
        return False
    if slo.percentile is None or slo.max_milliseconds is None:
        return True
    return upper_milliseconds is not None and upper_milliseconds <= slo.max_milliseconds


def _quarters(slo: SLO, sure: Outcomes, windows: Sequence[Window]) -> tuple[float, ...]:
    if slo.percentile is None or slo.max_milliseconds is None:
        return ()
    most = UNBOUNDED * slo.max_milliseconds
    known = ~np.isnan(sure.observed_milliseconds)
    found = quarter_percentiles(
        sure.observed_at[known],
        sure.observed_milliseconds[known],
        [(window.start, window.end) for window in windows if window.complete],
        percentile=slo.percentile,
    )
    return tuple(float(f"{min(value, most):.4g}") for value in found)


def percentile_ceiling(
    probes: Sequence[tuple[float | None, Sequence[float]]], *, alpha: float
) -> float | None:
    """Upper bound of a percentile over probes: of each the percentile and those of its quarters.

    ``None`` if one of them did not show both.
    """
    seen = [value for value, quarters in probes if value is not None and quarters]
    if len(seen) < len(probes):
        return None
    return percentile_upper(seen, [value for _, part in probes for value in part], alpha=alpha)


def _bound(outcomes: Outcomes, rows: RequestSamples, alpha: float) -> Interval:
    latency = rows.e2e_ms
    block = float(np.nanmedian(latency)) / 1e3 if np.isfinite(latency).any() else 1.0
    effect = design_effect(outcomes.at_seconds, outcomes.hits, outcomes.trials, block_seconds=block)
    # ITL has many trials per request; a request is the unit that is sampled, so it never counts
    # for more than one.
    per_request = max(1.0, outcomes.known / max(1, int((outcomes.trials > 0).sum())))
    return wilson(
        float(outcomes.hits.sum()),
        float(outcomes.trials.sum()),
        alpha=alpha,
        effect=max(effect, per_request),
    )


def _preemption_result(
    slo: SLO, rows: RequestSamples, preemptions: int | None, *, over: bool
) -> SLOResult:
    finished = int(rows.ok.sum())
    if preemptions is None or not finished:
        return SLOResult(slo, None)
    rate = preemptions / finished
    allowed = (slo.max_percent or 0) / 100.0
    verdict = Verdict.UNDECIDED
    if over and finished >= MINIMUM_KNOWN:
        verdict = Verdict.PASS if rate <= allowed else Verdict.FAIL
    return SLOResult(slo, 1.0 - min(rate, 1.0), verdict=verdict)


def _observed(slo: SLO, outcomes: Outcomes) -> float | None:
    values = outcomes.observed_milliseconds
    values = values[~np.isnan(values)]
    if slo.percentile is None or not len(values):
        return None
    value = float(np.percentile(values, slo.percentile, method="inverted_cdf"))
    return value if np.isfinite(value) else None


def _growth(
    probe: Probe, windows: Sequence[Window], in_flight: Sequence[tuple[float, int]]
) -> tuple[float, float]:
    """Growth within the windows; zero for a closed loop, where its clients are in flight."""
    if not isinstance(probe.load, OpenLoad) or not windows:
        return 0.0, 0.0
    start, end = windows[0].start, windows[-1].end
    series = np.array([count for at, count in in_flight if start <= at < end], dtype=np.float64)
    return growth(series)


def _tell(results: Sequence[SLOResult], count: int) -> str:
    return "; ".join(_tell_one(result, count) for result in results) or f"{count} requests"


def _tell_one(result: SLOResult, count: int) -> str:
    slo, share = result.slo, result.attainment
    if share is None:
        return f"{slo.metric} was not measured"
    if slo.max_milliseconds is None:
        sign = "≤" if 1.0 - share <= (slo.max_percent or 0) / 100.0 else ">"
        return f"{slo.metric} {1.0 - share:.1%} {sign} {slo.max_percent} % of {count} requests"
    observed = result.observed_milliseconds
    seen = "" if observed is None else f"{observed:.4g} ms "  # none: those requests still waited
    sign = "≤" if share >= target(slo) else ">"
    return (
        f"p{slo.percentile} {slo.metric} {seen}{sign} {slo.max_milliseconds} ms "
        f"({share:.1%} of {count} requests within)"
    )
