"""From the counters of serving pods to a workload, with how well each number is known."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, sqrt
from typing import Final

from vllm_tuning.api.base import decimal
from vllm_tuning.api.traffic import MAX_BUCKETS, LearntLengths, LengthBucket
from vllm_tuning.api.workload import MAX_TOKENS, TokenLengths
from vllm_tuning.engine.lengths import LengthHistogram, Weighted, spread, with_mean
from vllm_tuning.engine.traffic import Traffic

LEAST_REQUESTS: Final = 300
"""Of fewer, one in twenty is too few to tell how long they are: the 95th percentile rests on 15."""
MAX_RATE: Final = 6_000_000
"""Requests a minute that the API takes."""


@dataclass(frozen=True, slots=True)
class Served:
    """What a Deployment has served."""

    deployment: str
    traffic: Traffic
    """Of the pods that were read."""
    read: int
    serving: int
    """Pods that serve; some may not be readable."""
    longest: int | None
    """Tokens that the model takes, where known."""

    @property
    def prompts(self) -> LearntLengths:
        """Prompt lengths."""
        return _lengths(self.traffic.prompts, self.longest)

    @property
    def outputs(self) -> LearntLengths:
        """Answer lengths."""
        return _lengths(self.traffic.outputs, self.longest)

    @property
    def prefix_percent(self) -> int | None:
        """Share of prompt tokens that came from the prefix cache; ``None`` = it is not counted."""
        share = self.traffic.prefix_hit_fraction
        return None if share is None else round(100 * share)

    @property
    def requests_per_minute(self) -> int | None:
        """In the mean, of all pods that serve, as if those not read were like the others."""
        rate = self.traffic.requests_per_second
        if not rate:
            return None
        return min(MAX_RATE, max(1, round(60 * rate * self.serving / self.read)))

    def describe(self) -> str:
        """Say what was learnt and how well it is known, in one sentence for people."""
        begun = self.traffic.begun_at
        since = "they began"
        if begun is not None:
            since = f"{datetime.fromtimestamp(begun, UTC):%Y-%m-%dT%H:%MZ}"
        told = (
            f"learnt from {self.traffic.requests:,} requests that {self.read} of {self.serving} "
            f"pods of {self.deployment} have served since {since}: prompts "
            f"{_describe(self.traffic.prompts, self.longest)}, outputs "
            f"{_describe(self.traffic.outputs, self.longest)}"
        )
        if (share := self.prefix_percent) is not None:
            told += f", {share} % of prompt tokens from the prefix cache"
        if (rate := self.requests_per_minute) is not None:
            told += f", {rate:,} requests a minute in the mean (peaks are higher)"
        return told


def weighted(learnt: LearntLengths) -> Weighted:
    """Return the buckets that lengths are drawn from, so that the mean comes out right."""
    buckets = tuple((bucket.max_tokens, float(bucket.requests)) for bucket in learnt.buckets)
    return with_mean(buckets, float(learnt.mean))


def summary(learnt: LearntLengths) -> TokenLengths:
    """Say learnt lengths in the words of declared ones."""
    buckets = weighted(learnt)
    mean = min(MAX_TOKENS, max(1, round(float(learnt.mean))))
    return TokenLengths(
        mean=mean,
        cv_percent=min(1000, round(100 * spread(buckets))),
        max=max(mean, min(MAX_TOKENS, buckets[-1][0])),
    )


def _lengths(histogram: LengthHistogram, longest: int | None) -> LearntLengths:
    buckets = _coarse(histogram.buckets(longest))
    # a page may say a mean that its own buckets exclude
    mean = min(max(histogram.mean or 1.0, 1.0), float(buckets[-1][0]))
    return LearntLengths(
        mean=decimal(mean) or "1",
        buckets=tuple(LengthBucket(max_tokens=edge, requests=int(n)) for edge, n in buckets),
    )


def _coarse(buckets: Weighted) -> Weighted:
    """Join neighbours until there are few enough to store: an engine may have any buckets."""
    step = ceil(len(buckets) / MAX_BUCKETS)
    joined = [buckets[at : at + step] for at in range(0, len(buckets), step)]
    return tuple((group[-1][0], sum(count for _, count in group)) for group in joined)


def _describe(histogram: LengthHistogram, longest: int | None) -> str:
    """Say the mean with its error, and percentiles as the ranges that they are known as.

    The error is that of as many independent requests: twice the standard deviation of their mean.
    """
    mean = histogram.mean or 0.0
    cv = spread(with_mean(histogram.buckets(longest), mean))
    error = 200 * cv / sqrt(histogram.count)
    low, high = histogram.within(0.5, longest)
    least, most = histogram.within(0.95, longest)
    return f"{mean:.0f} tokens ± {error:.0f} % (p50 {low} to {high}, p95 {least} to {most})"
