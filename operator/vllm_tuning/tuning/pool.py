"""Several probes of one load point, taken together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vllm_tuning.tuning.evidence import wilson
from vllm_tuning.tuning.model import ProbeResult, SLOResult, Verdict
from vllm_tuning.tuning.standing import pressure
from vllm_tuning.tuning.verdict import percentile_ceiling, proves


def pool(results: Sequence[ProbeResult], *, alpha: float) -> ProbeResult:
    """Judge the same limits and load over all arrival seeds; none of ``results`` may be a FAIL.

    Attainments are averaged by effective counts, so that correlated requests weigh what they are
    worth. Counts add up; percentiles, which cannot be pooled without the requests, are those of
    the probe nearest to its bounds.
    """
    if not results:
        raise ValueError("nothing to pool")
    worst = max(results, key=pressure)
    slos = tuple(
        _pooled([result.slos[index] for result in results], alpha=alpha)
        for index in range(len(worst.slos))
    )
    passed = all(slo.verdict is Verdict.PASS for slo in slos)
    told = "; ".join(
        f"{slo.slo}: {slo.attainment:.1%} within, at least {slo.lower:.1%}"
        + (
            f", p{slo.slo.percentile} at most {slo.upper_milliseconds:.4g} ms"
            if slo.upper_milliseconds
            else ""
        )
        for slo in slos
        if slo.attainment is not None and slo.lower is not None
    )
    message = f"over {len(results)} arrival seeds, {told or 'no SLO to meet'}"
    return replace(
        worst,
        verdict=Verdict.PASS if passed else Verdict.UNDECIDED,
        reason="WithinSLO" if passed else "TooCloseToCall",
        message=message,
        slos=slos,
        seconds=sum(result.seconds for result in results),
        measured_seconds=sum(result.measured_seconds for result in results),
        sent=sum(result.sent for result in results),
        completed=sum(result.completed for result in results),
        failed=sum(result.failed for result in results),
        cancelled=sum(result.cancelled for result in results),
    )


def _pooled(parts: Sequence[SLOResult], *, alpha: float) -> SLOResult:
    slo = parts[0].slo
    worst = max(parts, key=lambda part: part.observed_milliseconds or 0.0)
    shares = [part.attainment for part in parts if part.attainment is not None]
    counts = [part.effective_count for part in parts if part.effective_count]
    if len(shares) < len(parts):
        return replace(worst, attainment=None, verdict=Verdict.UNDECIDED)
    if len(counts) < len(parts):  # a rate that the engine counts: no sample to bound
        passed = all(part.verdict is Verdict.PASS for part in parts)
        return replace(
            worst, attainment=min(shares), verdict=Verdict.PASS if passed else Verdict.UNDECIDED
        )
    total = sum(counts)
    hits = sum(share * count for share, count in zip(shares, counts, strict=True))
    bounds = wilson(hits, total, alpha=alpha)
    ceiling = percentile_ceiling(
        [(part.observed_milliseconds, part.quarter_milliseconds) for part in parts], alpha=alpha
    )
    return replace(
        worst,
        attainment=hits / total,
        lower=bounds.lower,
        upper=bounds.upper,
        verdict=Verdict.PASS if proves(slo, bounds.lower, ceiling) else Verdict.UNDECIDED,
        effective_count=total,
        upper_milliseconds=ceiling,
        quarter_milliseconds=(),
    )
