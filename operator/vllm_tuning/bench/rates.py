"""Rates and shares of a probe, from its samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vllm_tuning.tuning.model import SLO, Metric
from vllm_tuning.tuning.outcomes import outcomes_of
from vllm_tuning.tuning.samples import RequestSamples, Window


def rows_in(samples: RequestSamples, windows: Sequence[Window]) -> RequestSamples:
    """Take the requests that were scheduled in any of the windows."""
    mask = np.zeros(len(samples), dtype=np.bool_)
    for window in windows:
        mask |= samples.window_mask(window)
    return samples.select(mask)


def completion_rate(samples: RequestSamples, start: float, end: float) -> float | None:
    """Return requests completed per second within the span, whenever they were sent."""
    if end <= start:
        return None
    done = samples.ok & (samples.ended_at >= start) & (samples.ended_at < end)
    return float(done.sum()) / (end - start)


def input_token_rate(samples: RequestSamples, start: float, end: float) -> float | None:
    """Return prompt tokens answered (first token seen) per second within the span."""
    if end <= start:
        return None
    with np.errstate(invalid="ignore"):
        answered = (samples.first_token_at >= start) & (samples.first_token_at < end)
    return float(samples.input_tokens[answered].sum()) / (end - start)


def output_token_rate(samples: RequestSamples, start: float, end: float) -> float | None:
    """Return output tokens per second within the span.

    A request's tokens count by the share of its streaming time that lies in the span: counting
    whole requests would be off by half a request per stream at both ends.
    """
    if end <= start:
        return None
    rows = samples.output_tokens > 0
    first, last = samples.first_token_at[rows], samples.last_token_at[rows]
    tokens = samples.output_tokens[rows]
    with np.errstate(invalid="ignore", divide="ignore"):
        overlap = np.clip(np.minimum(last, end) - np.maximum(first, start), 0.0, None)
        share = np.where(last > first, overlap / (last - first), (first >= start) & (first < end))
    return float(np.nansum(tokens * share)) / (end - start)


def goodput_fraction(slos: Sequence[SLO], measured: RequestSamples) -> float | None:
    """Return the share of decided requests that meet every latency SLO jointly.

    An ITL SLO is met by a request whose own share of gaps within the bound reaches the percentile.
    """
    latency = [slo for slo in slos if slo.max_milliseconds is not None]
    if not latency or not len(measured):
        return None
    good = measured.ok.copy()
    decided = measured.ok | measured.failed
    for slo in latency:
        outcomes = outcomes_of(slo, measured)
        needed = (slo.percentile or 100) / 100 if slo.metric is Metric.ITL else 1.0
        good &= (outcomes.hits >= needed * outcomes.trials) | (outcomes.trials == 0)
        decided |= (outcomes.trials > 0) & (outcomes.hits < needed * outcomes.trials)
    return float(good.sum()) / float(decided.sum()) if decided.any() else None
