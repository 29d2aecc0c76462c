"""How long a running engine's requests are, by its own histograms; no prompt is read.

``vllm:request_prompt_tokens`` and ``vllm:request_generation_tokens`` have buckets 1-2-5 up to the
model's length and count finished requests since the engine's start (0.8 to 0.33). Sum and count are
exact, so the mean is; of the lengths inside a bucket nothing is known but the mean over all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeAlias

from vllm_tuning.engine.exposition import parse_samples

Side = Literal["prompt", "generation"]
Weighted: TypeAlias = tuple[tuple[int, float], ...]
"""Upper edge of each bucket in tokens (inclusive, rising), and the requests in it."""
_FAMILY = "vllm:request_{}_tokens"
_MOST = 1e15
"""Beyond it a floating point number does not count tokens one by one; no engine comes there."""
_LONGEST = 1e8
"""No model takes so many tokens; a page may say what it likes."""


@dataclass(frozen=True, slots=True)
class LengthHistogram:
    """Token counts of finished requests."""

    cumulative: Mapping[float, float] = field(default_factory=dict)
    """Requests of at most so many tokens, by upper edge; the last edge is infinite."""
    total_tokens: float = 0.0

    @property
    def count(self) -> float:
        """Requests."""
        return self.cumulative.get(math.inf, 0.0)

    @property
    def mean(self) -> float | None:
        """Tokens per request; exact, unlike the buckets. ``None`` without requests."""
        return self.total_tokens / self.count if self.count else None

    def since(self, earlier: LengthHistogram) -> LengthHistogram:
        """Return what came after ``earlier``; everything, if the engine restarted in between."""
        if earlier.count > self.count:
            return self
        return LengthHistogram(
            {
                edge: count - earlier.cumulative.get(edge, 0.0)
                for edge, count in self.cumulative.items()
            },
            self.total_tokens - earlier.total_tokens,
        )

    def buckets(self, longest: int | None = None) -> Weighted:
        """Return every bucket up to the longest request.

        The last finite edge is the last of 1-2-5 within the model's length, so there are requests
        beyond it: up to ``longest``, the model's length, or else to below the edge that would come
        next.
        """
        finite = sorted(edge for edge in self.cumulative if math.isfinite(edge) and edge >= 1)
        if not finite or not self.count:
            return ()
        last = int(finite[-1])
        end = longest if longest is not None and longest > last else _next_edge(last) - 1
        reached = 0.0
        found: list[tuple[int, float]] = []
        for edge, cumulative in (
            *((int(e), self.cumulative[e]) for e in finite),
            (end, self.count),
        ):
            found.append((edge, max(0.0, cumulative - reached)))
            reached = max(reached, cumulative)
        return _rising(found)

    def within(self, share: float, longest: int | None = None) -> tuple[int, int]:
        """Return the least and greatest length that the quantile ``share`` (0-1) may have.

        Raises ``ValueError`` without requests.
        """
        below, reached, wanted = 0, 0.0, share * self.count
        for edge, count in self.buckets(longest):
            reached += count
            if count and reached >= wanted:
                return below + 1, edge
            below = edge
        msg = "no requests"
        raise ValueError(msg)


def add_lengths(histograms: Iterable[LengthHistogram]) -> LengthHistogram:
    """Sum what several engines have served, at the edges that all have: releases may differ."""
    parts = [histogram for histogram in histograms if histogram.count]
    if not parts:
        return LengthHistogram()
    common = set.intersection(*(set(part.cumulative) for part in parts))
    return LengthHistogram(
        {edge: sum(part.cumulative[edge] for part in parts) for edge in common},
        sum(part.total_tokens for part in parts),
    )


def with_mean(buckets: Weighted, mean: float) -> Weighted:
    """Narrow buckets so that lengths drawn evenly from each have this mean.

    Every bucket keeps its share; from all of them the same part at one end is left out, as a bucket
    of weight zero. (Drawn from whole buckets, lognormal lengths come out 5 to 20 % too long in the
    mean.) A ``mean`` that the buckets exclude gives the nearest that they allow.

    >>> with_mean(((10, 2.0), (20, 2.0)), 8.0)
    ((5, 2.0), (10, 0.0), (15, 2.0))
    """
    total = sum(count for _, count in buckets)
    spans = [(low, high) for low, high in pairwise((0, *(edge for edge, _ in buckets)))]
    low, high = (
        sum(count * span[end] for (_, count), span in zip(buckets, spans, strict=True)) / total
        for end in (0, 1)
    )
    low += 1
    part = min(1.0, max(0.0, (mean - low) / (high - low))) if high > low else 0.5
    found: list[tuple[int, float]] = []
    for (first, last), (_, count) in zip(spans, buckets, strict=True):
        room = last - first - 1
        begin = first + max(0, round((2 * part - 1) * room))
        end = min(last, first + 1 + round(2 * part * room))
        found += [(edge, n) for edge, n in ((begin, 0.0), (end, count), (last, 0.0))]
    return _rising(found)


def spread(buckets: Weighted) -> float:
    """Return the coefficient of variation of lengths drawn evenly from each bucket."""
    total = sum(count for _, count in buckets)
    first = second = 0.0
    for (low, high), (_, count) in zip(
        pairwise((0, *(edge for edge, _ in buckets))), buckets, strict=True
    ):
        middle, width = (low + 1 + high) / 2, high - low
        first += count * middle
        second += count * (middle * middle + (width * width - 1) / 12)
    mean = first / total
    return math.sqrt(max(0.0, second / total - mean * mean)) / mean


def read_lengths(text: str, side: Side, *, model: str | None = None) -> LengthHistogram:
    """Read one histogram of a ``/metrics`` page, summed over data-parallel engines."""
    family = _FAMILY.format(side)
    cumulative: dict[float, float] = {}
    total = 0.0
    for sample in parse_samples(text, (f"{family}_bucket", f"{family}_sum")):
        if not 0 <= sample.value < _MOST:  # no count, or not a number
            continue
        if model is not None and sample.labels.get("model_name", model) != model:
            continue
        if sample.name.endswith("_sum"):
            total += sample.value
        elif (edge := _edge(sample.labels.get("le", ""))) is not None and (
            edge <= _LONGEST or edge == math.inf
        ):
            cumulative[edge] = cumulative.get(edge, 0.0) + sample.value
    return LengthHistogram(cumulative, total)


def _rising(edges: Iterable[tuple[int, float]]) -> Weighted:
    """Join buckets without room to the one before; drop those at the end without requests."""
    found: list[tuple[int, float]] = []
    for edge, count in edges:
        if found and edge <= found[-1][0]:
            found[-1] = (found[-1][0], found[-1][1] + count)
        elif edge > 0:
            found.append((edge, count))
    while len(found) > 1 and not found[-1][1]:
        found.pop()
    return tuple(found)


def _next_edge(edge: int) -> int:
    """Return what follows in 1, 2, 5, 10, ... (or is as far from an edge of another making)."""
    return edge * 5 // 2 if str(edge).startswith("2") else edge * 2


def _edge(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
