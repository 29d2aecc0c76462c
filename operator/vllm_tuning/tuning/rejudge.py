"""A stored result judged by another SLA, from what was stored of it and nothing else.

The requests of a probe are not kept; kept are, per SLO of its time, the share of requests within
the bound with its confidence bounds, and per latency metric a few percentiles. Each of these says
something about another bound as well, because the share within a bound only grows with the bound:

=====================  ==================================================================
stored                 tells of a bound ``B``
=====================  ==================================================================
share within ``b``     at least that share is within ``B ≥ b``; at most that within ``B ≤ b``
percentile ``q`` = v   at least ``q`` % are within ``B ≥ v``; fewer than ``q`` % within ``B < v``
maximum = v            all are within ``B ≥ v``
=====================  ==================================================================

What follows from none of them is not known: the probe must then be measured again. A probe that
was stopped at its early FAIL, or where a PASS was out of reach, showed a part of its windows only:
it can fail another SLA, or be as far from a PASS, and never look within one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil

from vllm_tuning.tuning.evidence import DESIGN_EFFECT_FLOOR, QUARTERS, wilson
from vllm_tuning.tuning.model import SLO, Metric, Percentiles, ProbeResult, SLOResult, Verdict
from vllm_tuning.tuning.verdict import (
    MINIMUM_KNOWN,
    OUT_OF_REACH,
    out_of_reach,
    percentile_ceiling,
    proves,
    target,
)

_COLUMNS = {
    Metric.TTFT: "ttft",
    Metric.TPOT: "tpot",
    Metric.ITL: "itl",
    Metric.MAX_GAP: "max_gap",
    Metric.E2E_LATENCY: "e2e",
}
BEYOND_DOUBT = 3.0
"""Where even the slowest request stays so many times below a bound, windows do not differ by
enough for a percentile to reach it.
"""
_WHOLE = ("LooksWithinSLO", "NearLimit", "WithinSLO", "TooCloseToCall", "QueueGrowing")
"""Reasons of results whose windows are complete and whose SLOs were all measured."""


def rejudge(result: ProbeResult, slos: Sequence[SLO]) -> ProbeResult | None:
    """Return the result as the verdict by ``slos`` would have it; ``None`` = it must be measured.

    An INVALID result stays one: no SLA makes data of it.
    """
    if result.verdict is Verdict.INVALID:
        return result
    if {part.slo for part in result.slos} == set(slos):
        stored = {part.slo: part for part in result.slos}
        return replace(result, slos=tuple(stored[slo] for slo in slos))
    parts = tuple(_part(slo, result) for slo in slos)
    if any(part.verdict is Verdict.FAIL for part in parts):
        return _judged(result, parts, Verdict.FAIL, "SLOViolated")
    if result.verdict is Verdict.FAIL:  # of a cause that is not the SLA's, else it is not known
        lost = result.reason == "SLOViolated"
        return None if lost else _judged(result, parts, Verdict.FAIL, result.reason)
    return _not_failed(result, parts)


def _not_failed(result: ProbeResult, parts: tuple[SLOResult, ...]) -> ProbeResult | None:
    if result.reason == OUT_OF_REACH and out_of_reach(parts, result.probe):
        return _judged(result, parts, Verdict.UNDECIDED, OUT_OF_REACH)
    if result.reason not in _WHOLE or any(part.attainment is None for part in parts):
        return None
    return (_decided if result.probe.decide else _ordered)(result, parts)


def holding(result: ProbeResult, slos: Sequence[SLO]) -> ProbeResult | None:
    """Return a confirming seed under ``slos`` if it holds them all, ready to be pooled.

    ``None`` = it does not, or that is not known. The pool gives the verdict.
    """
    if result.verdict not in {Verdict.PASS, Verdict.UNDECIDED} or result.reason == "QueueGrowing":
        return None
    parts = tuple(_part(slo, result) for slo in slos)
    held = all(p.attainment is not None and p.attainment >= target(p.slo) for p in parts)
    return _judged(result, parts, Verdict.UNDECIDED, "TooCloseToCall") if held else None


def _ordered(result: ProbeResult, parts: tuple[SLOResult, ...]) -> ProbeResult:
    met = all((part.attainment or 0.0) >= target(part.slo) for part in parts)
    reason = "LooksWithinSLO" if met else "NearLimit"
    return _judged(result, parts, Verdict.UNDECIDED, reason)


def _decided(result: ProbeResult, parts: tuple[SLOResult, ...]) -> ProbeResult:
    if result.reason == "QueueGrowing":
        return _judged(result, parts, Verdict.UNDECIDED, "QueueGrowing")
    if all(part.verdict is Verdict.PASS for part in parts):
        return _judged(result, parts, Verdict.PASS, "WithinSLO")
    return _judged(result, parts, Verdict.UNDECIDED, "TooCloseToCall")


def _judged(
    result: ProbeResult, parts: tuple[SLOResult, ...], verdict: Verdict, reason: str
) -> ProbeResult:
    told = f"judged anew from its stored figures: {'; '.join(map(_tell, parts))}"
    return replace(
        result,
        verdict=verdict,
        reason=reason,
        message=result.message if reason == result.reason == "QueueGrowing" else told,
        slos=parts,
        goodput_fraction=None,  # of another set of SLOs; it does not follow from the shares
    )


def _tell(part: SLOResult) -> str:
    if part.attainment is None:
        return f"{part.slo}: not known"
    seen = "" if part.observed_milliseconds is None else f"{part.observed_milliseconds:.4g} ms, "
    side = "at least" if part.attainment >= target(part.slo) else "at most"
    return f"{part.slo}: {seen}{side} {part.attainment:.1%} within"


def _part(slo: SLO, result: ProbeResult) -> SLOResult:
    """Judge one SLO by what the result holds of its metric."""
    same = next((part for part in result.slos if part.slo == slo), None)
    if same is not None:
        return same
    if slo.metric is Metric.PREEMPTION_RATE:
        return _preemptions(slo, result)
    facts = tuple(_facts(slo, result))
    within = [fact for fact in facts if fact.at_least and fact.share >= target(slo)]
    missed = [fact for fact in facts if not fact.at_least and fact.share < target(slo)]
    observed, quarters = _observed(slo, result), _quarters(slo, result)
    ceiling = percentile_ceiling([(observed, quarters)], alpha=result.probe.alpha)
    if within:
        best = max(within, key=lambda fact: fact.lower)
        proven = proves(slo, best.lower, ceiling) and _requests(slo, result) >= MINIMUM_KNOWN
        verdict = Verdict.PASS if proven else Verdict.UNDECIDED
    elif missed:
        best = min(missed, key=lambda fact: fact.upper)
        proven = best.upper < target(slo) and _requests(slo, result) >= MINIMUM_KNOWN
        verdict = Verdict.FAIL if proven else Verdict.UNDECIDED
    else:
        return SLOResult(slo, None)
    return SLOResult(
        slo,
        attainment=best.share,
        lower=best.lower,
        upper=best.upper,
        verdict=verdict,
        observed_milliseconds=observed,
        effective_count=best.effective,
        upper_milliseconds=ceiling,
        quarter_milliseconds=quarters,
    )


@dataclass(frozen=True, slots=True)
class _Fact:
    """A share of requests within the asked bound, with what is sure of it."""

    at_least: bool
    """Else at most."""
    share: float
    lower: float = 0.0
    upper: float = 1.0
    effective: float | None = None


def _facts(slo: SLO, result: ProbeResult) -> Iterator[_Fact]:
    """What is stored of the metric, as shares within the bound of ``slo``."""
    bound = slo.max_milliseconds
    for part in result.slos:
        if part.slo.metric is not slo.metric or part.attainment is None:
            continue
        stored = part.slo.max_milliseconds
        if bound is None or stored is None or stored <= bound:
            yield _Fact(True, part.attainment, part.lower or 0.0, effective=part.effective_count)
        if bound is None or stored is None or stored >= bound:
            upper = 1.0 if part.upper is None else part.upper
            yield _Fact(False, part.attainment, upper=upper, effective=part.effective_count)
    if not _all_ended(result):
        return  # percentiles leave out what failed or never ended, a share of requests counts it
    if bound is None:
        yield _at_least(1.0, slo, result)
        return
    column = _column(slo.metric, result)
    for percent, value in _points(column):
        if value <= bound:
            yield _at_least(percent / 100.0, slo, result)
        else:
            fewer = ceil(percent / 100.0 * column.count - 1e-6) - 1
            yield _Fact(False, fewer / column.count)


def _all_ended(result: ProbeResult) -> bool:
    """Whether no request failed, and every one that began to answer in the windows also ended.

    A request that waited for its first token until the drain, ten seconds and more, is in no
    column; a queue like that grows, which is a verdict of its own.
    """
    return not result.failed and 0 < result.e2e.count == result.ttft.count


def _at_least(share: float, slo: SLO, result: ProbeResult) -> _Fact:
    """At least this share is within; the rest counts as missed, all of it in one bad moment.

    How the misses were spread is not stored. The variance of block sums (``design_effect``) is
    largest when all misses fall into one block: then the effect is their number over the share.
    """
    requests = _requests(slo, result)
    misses = (1.0 - share) * requests
    effect = max(DESIGN_EFFECT_FLOOR, misses / share)
    bounds = wilson(requests - misses, requests, alpha=result.probe.alpha, effect=effect)
    return _Fact(True, share, bounds.lower, effective=bounds.effective_trials)


def _requests(slo: SLO, result: ProbeResult) -> float:
    """Requests behind the metric's figures; one counts once, however many gaps it has."""
    column = _column(slo.metric, result)
    if slo.metric is Metric.ITL:
        return float(min(column.count, result.tpot.count or result.e2e.count))
    return float(column.count or result.e2e.count)


def _column(metric: Metric, result: ProbeResult) -> Percentiles:
    name = _COLUMNS.get(metric, "e2e")
    column: Percentiles = getattr(result, name)
    return column


def _points(column: Percentiles) -> Iterator[tuple[float, float]]:
    for percent, value in (
        (50.0, column.p50),
        (90.0, column.p90),
        (95.0, column.p95),
        (99.0, column.p99),
        (100.0, column.maximum),
    ):
        if value is not None:
            yield percent, value


def _of_percentile(slo: SLO, result: ProbeResult) -> SLOResult | None:
    """What is stored of the same percentile, whatever its bound."""
    wanted = slo.metric, slo.percentile
    return next((p for p in result.slos if (p.slo.metric, p.slo.percentile) == wanted), None)


def _observed(slo: SLO, result: ProbeResult) -> float | None:
    """The SLO's percentile, where one of the stored ones is just that."""
    if (part := _of_percentile(slo, result)) is not None:
        return part.observed_milliseconds
    if slo.percentile is None or not _all_ended(result):
        return None
    return dict(_points(_column(slo.metric, result))).get(float(slo.percentile))


def _quarters(slo: SLO, result: ProbeResult) -> tuple[float, ...]:
    """The percentile in the quarters of the windows: as stored, or no larger than the maximum."""
    if (part := _of_percentile(slo, result)) is not None:
        return part.quarter_milliseconds
    slowest = _column(slo.metric, result).maximum
    if slowest is None or slo.max_milliseconds is None or not _all_ended(result):
        return ()
    if not result.probe.decide or BEYOND_DOUBT * slowest > slo.max_milliseconds:
        return ()
    return (slowest,) * (QUARTERS * result.probe.windows)


def _preemptions(slo: SLO, result: ProbeResult) -> SLOResult:
    """The engine's own count over the windows, which is stored whole."""
    counted, allowed = result.engine.preemptions, (slo.max_percent or 0) / 100.0
    stored = next((p for p in result.slos if p.slo.metric is Metric.PREEMPTION_RATE), None)
    if stored is not None and stored.attainment is not None:
        share = stored.attainment
    elif counted is not None and result.e2e.count and not result.failed:
        share = 1.0 - min(counted / result.e2e.count, 1.0)
    else:
        return SLOResult(slo, None)
    if result.e2e.count < MINIMUM_KNOWN:
        return SLOResult(slo, share)
    return SLOResult(slo, share, verdict=Verdict.PASS if share >= 1.0 - allowed else Verdict.FAIL)
