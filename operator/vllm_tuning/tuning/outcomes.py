"""Did each request meet an SLO: hit, miss, or not known yet.

One rule for every caller: a failed request is a miss, a request that has already taken longer than
the bound is a miss even while it runs, and what cannot be known yet is *not known*, never a hit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vllm_tuning.tuning.model import SLO, Metric
from vllm_tuning.tuning.samples import FAILURES, Floats, Mask, RequestSamples, RequestStatus

_FAILED = np.array([int(status) for status in FAILURES], dtype=np.int8)


@dataclass(frozen=True, slots=True, eq=False)
class Outcomes:
    """Per request: ``hits`` of ``trials`` met the SLO and ``unknown`` more may or may not.

    A latency SLO has one trial per request; ITL has one per gap, so that intervals can be
    clustered by request.
    """

    at_seconds: Floats
    """When each request was scheduled."""
    hits: Floats
    trials: Floats
    unknown: Floats
    observed_milliseconds: Floats
    """The metric's values where known; infinite for failed requests."""
    observed_at: Floats
    """When the request of each of these values was scheduled, in seconds."""

    @property
    def known(self) -> float:
        """Trials that have an outcome."""
        return float(self.trials.sum())

    @property
    def attainment(self) -> float | None:
        """Share of known trials within the bound; ``None`` without any."""
        return float(self.hits.sum()) / self.known if self.known else None

    def pessimistic(self) -> Outcomes:
        """Count every unknown trial as a miss: the only reading that may support a PASS."""
        return Outcomes(
            at_seconds=self.at_seconds,
            hits=self.hits,
            trials=self.trials + self.unknown,
            unknown=np.zeros_like(self.unknown),
            observed_milliseconds=self._with_unknown_infinite(),
            observed_at=self.observed_at,
        )

    def _with_unknown_infinite(self) -> Floats:
        values = self.observed_milliseconds
        if len(values) != len(self.unknown):  # one value per gap: those that were seen
            return values
        return np.where(np.isnan(values) & (self.unknown > 0), np.inf, values)


def outcomes_of(slo: SLO, samples: RequestSamples, *, now: float | None = None) -> Outcomes:
    """Judge every row of ``samples`` by ``slo``.

    ``now`` is the snapshot's time on the samples' clock; it lets a request that still runs be a
    miss already.
    """
    failed = np.isin(samples.status, _FAILED)
    if slo.metric is Metric.ERROR_RATE:
        ended = failed | samples.ok
        return _one_trial(samples, hit=samples.ok, miss=failed, applies=ended, values=None)
    if slo.max_milliseconds is None:
        raise ValueError(f"{slo} is not judged by requests; it is a rate that the engine counts")
    bound = float(slo.max_milliseconds)
    if slo.metric is Metric.ITL:
        return _gap_trials(samples, bound, failed)
    values = _values(slo.metric, samples)
    so_far = _elapsed_ms(slo.metric, samples, now)
    open_rows = (samples.status == RequestStatus.PENDING) | (
        samples.status == RequestStatus.CANCELLED
    )
    with np.errstate(invalid="ignore"):
        hit = ~failed & (values <= bound)
        miss = failed | (values > bound) | (open_rows & (so_far > bound))
    if slo.metric is Metric.MAX_GAP:
        hit &= ~open_rows  # a longer gap may still come
    applies = hit | miss | open_rows
    return _one_trial(samples, hit=hit, miss=miss, applies=applies, values=values)


def _values(metric: Metric, samples: RequestSamples) -> Floats:
    match metric:
        case Metric.TTFT:
            return samples.ttft_ms
        case Metric.TPOT:
            return samples.tpot_ms
        case Metric.MAX_GAP:
            return samples.max_gap_ms
        case Metric.E2E_LATENCY:
            return samples.e2e_ms
        case _:
            raise ValueError(f"{metric} has no value per request")


def _elapsed_ms(metric: Metric, samples: RequestSamples, now: float | None) -> Floats:
    """What an unfinished request has taken so far; NaN where that says nothing of the metric."""
    until = samples.ended_at if now is None else np.fmin(samples.ended_at, now)
    match metric:
        case Metric.TTFT:
            waiting = np.isnan(samples.first_token_at)
            return np.where(waiting, (until - samples.scheduled_at) * 1e3, np.nan)
        case Metric.E2E_LATENCY:
            return (until - samples.scheduled_at) * 1e3
        case _:
            return np.full(len(samples), np.nan)


def _one_trial(
    samples: RequestSamples, *, hit: Mask, miss: Mask, applies: Mask, values: Floats | None
) -> Outcomes:
    known = hit | miss
    observed = np.full(len(samples), np.nan) if values is None else values.copy()
    if values is not None:
        observed[miss & np.isnan(observed)] = np.inf
    return Outcomes(
        at_seconds=samples.scheduled_at,
        hits=hit.astype(np.float64),
        trials=known.astype(np.float64),
        unknown=(applies & ~known).astype(np.float64),
        observed_milliseconds=observed,
        observed_at=samples.scheduled_at,
    )


def _gap_trials(samples: RequestSamples, bound: float, failed: Mask) -> Outcomes:
    rows = len(samples)
    trials = np.bincount(samples.gap_row, minlength=rows).astype(np.float64)
    hits = np.bincount(
        samples.gap_row, weights=(samples.gap_ms <= bound).astype(np.float64), minlength=rows
    ).astype(np.float64)
    missing = failed & (trials == 0)
    trials[missing] = 1.0  # a request that failed before its second token is one miss
    return Outcomes(
        at_seconds=samples.scheduled_at,
        hits=hits,
        trials=trials,
        unknown=np.zeros(rows),
        observed_milliseconds=samples.gap_ms.astype(np.float64),
        observed_at=samples.scheduled_at[samples.gap_row],
    )
