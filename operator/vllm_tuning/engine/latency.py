"""What a serving engine's own counters say of an SLA: latency histograms, endings, preemptions.

A histogram knows how many requests were within each of its edges and nothing between two of them,
so a share within a bound is an interval, and a single number only where the bound is an edge.
Times are the engine's: from the arrival at its process, without the way to it.

Names of 0.8 to 0.33 (``vllm/v1/metrics/loggers.py``); the newest present is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from types import MappingProxyType
from typing import Final

from vllm_tuning.engine.exposition import Sample, parse_samples
from vllm_tuning.engine.metrics import BOOT_CLOCK_SECONDS, SERIES

FAMILIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "TTFT": ("vllm:time_to_first_token_seconds",),
        "TPOT": ("vllm:request_time_per_output_token_seconds",),  # from 0.11
        # Until 0.15 under the second name, which counts each token and so is no TPOT.
        "ITL": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        "E2ELatency": ("vllm:e2e_request_latency_seconds",),
    }
)
"""Histogram families by SLO metric; a metric that is not here has none."""
_FINISHED, _PREEMPTIONS, _REJECTIONS, _STARTED = (
    SERIES[value][0].name for value in ("finished", "preemptions", "rejections", "started_at")
)
_WANTED: Final = frozenset(
    {
        *(f"{family}_bucket" for names in FAMILIES.values() for family in names),
        *(_FINISHED, _PREEMPTIONS, _REJECTIONS, _STARTED),
    }
)
_EDGE_TOLERANCE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Histogram:
    """Requests (for ITL: tokens) of at most so many seconds, by upper edge; the last is infinite.

    ``share_within`` is the only reading of it that promises nothing.
    """

    cumulative: Mapping[float, float]

    @property
    def count(self) -> float:
        """All observations."""
        return self.cumulative.get(math.inf, 0.0)

    def share_within(self, seconds: float) -> tuple[float, float] | None:
        """Return the least and the greatest share (0-1) within a bound; ``None`` = no requests."""
        if self.count <= 0:
            return None
        slack = _EDGE_TOLERANCE * seconds
        low = max((n for edge, n in self.cumulative.items() if edge <= seconds + slack), default=0)
        high = min(n for edge, n in self.cumulative.items() if edge >= seconds - slack)
        return low / self.count, high / self.count

    def around(self, seconds: float) -> tuple[float, float]:
        """Return the edges on either side of a bound, in seconds."""
        below = max((edge for edge in self.cumulative if edge <= seconds), default=0.0)
        return below, min((edge for edge in self.cumulative if edge >= seconds), default=math.inf)


@dataclass(frozen=True, slots=True)
class LatencyPage:
    """One reading of ``/metrics``, or what happened between two."""

    histograms: Mapping[str, Histogram] = field(default_factory=dict)
    """By SLO metric; absent = the engine does not show it."""
    finished: Mapping[str, float] = field(default_factory=dict)
    """Requests that ended, by ``finished_reason``."""
    preemptions: float | None = None
    rejections: float = 0.0
    """Requests refused at the door (0.32 and newer)."""
    started_at: float | None = None
    """Unix seconds at which the process began."""

    @property
    def ended(self) -> float:
        """Requests that ended for any reason."""
        return sum(self.finished.values())

    def since(self, earlier: LatencyPage) -> LatencyPage:
        """Return what came after ``earlier``; everything, if the process began after it."""
        if self._is_another_process(earlier):
            return self
        return LatencyPage(
            histograms={
                metric: _minus(now, earlier.histograms.get(metric))
                for metric, now in self.histograms.items()
            },
            finished={
                reason: count - earlier.finished.get(reason, 0.0)
                for reason, count in self.finished.items()
            },
            preemptions=(
                None if self.preemptions is None else self.preemptions - (earlier.preemptions or 0)
            ),
            rejections=self.rejections - earlier.rejections,
            started_at=self.started_at,
        )

    def _is_another_process(self, earlier: LatencyPage) -> bool:
        begun = (self.started_at, earlier.started_at)
        if None not in begun and abs((begun[0] or 0.0) - (begun[1] or 0.0)) > BOOT_CLOCK_SECONDS:
            return True
        pairs = [
            (self.ended, earlier.ended),
            (self.preemptions or 0.0, earlier.preemptions or 0.0),
            *((now.count, earlier.histograms[m].count) for m, now in self.histograms.items()
              if m in earlier.histograms),
        ]  # fmt: skip
        return any(now < before for now, before in pairs)


def read_latencies(text: str) -> LatencyPage:
    """Read a page, summed over models and data-parallel engines."""
    buckets: dict[str, dict[float, float]] = {}
    finished: dict[str, float] = {}
    single: dict[str, float] = {}
    for sample in parse_samples(text, _WANTED):
        if sample.name == _FINISHED:
            reason = sample.labels.get("finished_reason", "")
            finished[reason] = finished.get(reason, 0.0) + sample.value
        elif (edge := _edge(sample)) is not None:
            counts = buckets.setdefault(sample.name.removesuffix("_bucket"), {})
            counts[edge] = counts.get(edge, 0.0) + sample.value
        else:
            single[sample.name] = single.get(sample.name, 0.0) + sample.value
    return LatencyPage(
        histograms={
            metric: Histogram(buckets[newest])
            for metric, names in FAMILIES.items()
            if (newest := next((name for name in names if name in buckets), None)) is not None
        },
        finished=finished,
        preemptions=single.get(_PREEMPTIONS),
        rejections=single.get(_REJECTIONS, 0.0),
        started_at=single.get(_STARTED),
    )


def add_pages(pages: Iterable[LatencyPage]) -> LatencyPage:
    """Sum what several engines did in the same time."""
    return reduce(_plus, pages, LatencyPage())


def _plus(left: LatencyPage, right: LatencyPage) -> LatencyPage:
    metrics = {**left.histograms, **right.histograms}
    reasons = {**left.finished, **right.finished}
    counted = [n for n in (left.preemptions, right.preemptions) if n is not None]
    return LatencyPage(
        histograms={
            metric: _sum([p.histograms[metric] for p in (left, right) if metric in p.histograms])
            for metric in metrics
        },
        finished={
            reason: left.finished.get(reason, 0.0) + right.finished.get(reason, 0.0)
            for reason in reasons
        },
        preemptions=sum(counted) if counted else None,
        rejections=left.rejections + right.rejections,
    )


def _sum(parts: list[Histogram]) -> Histogram:
    """Add histograms at the edges that all have: two releases may differ in theirs."""
    common = set.intersection(*(set(part.cumulative) for part in parts))
    return Histogram({edge: sum(part.cumulative[edge] for part in parts) for edge in common})


def _minus(now: Histogram, earlier: Histogram | None) -> Histogram:
    if earlier is None:
        return now
    return Histogram(
        {edge: count - earlier.cumulative.get(edge, 0.0) for edge, count in now.cumulative.items()}
    )


def _edge(sample: Sample) -> float | None:
    text = sample.labels.get("le")
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
