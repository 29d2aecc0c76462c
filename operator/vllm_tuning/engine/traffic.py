"""What traffic a serving engine has had since its start, by its own counters; no prompt is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from vllm_tuning.engine.lengths import LengthHistogram, add_lengths, read_lengths
from vllm_tuning.engine.metrics import read_page


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests that engines have finished. ``None`` = they do not tell."""

    prompts: LengthHistogram = field(default_factory=LengthHistogram)
    outputs: LengthHistogram = field(default_factory=LengthHistogram)
    prefix_queries: float | None = None
    """Prompt tokens looked up in the prefix cache."""
    prefix_hits: float | None = None
    """Of these, tokens that it held."""
    begun_at: float | None = None
    """Unix seconds at which the counters began; of several engines the first."""
    requests_per_second: float | None = None
    """Finished requests over the time since each engine's counters began, all engines together."""

    @property
    def requests(self) -> int:
        """Finished requests whose lengths are counted, in buckets that can be compared."""
        if not (self.prompts.buckets() and self.outputs.buckets()):
            return 0
        return int(min(self.prompts.count, self.outputs.count))

    @property
    def prefix_hit_fraction(self) -> float | None:
        """Share of prompt tokens that came from the cache (0-1)."""
        if not self.prefix_queries or self.prefix_hits is None:
            return None
        share = self.prefix_hits / self.prefix_queries
        return share if 0 <= share <= 1 else None  # a page of something else, or none


def read_traffic(text: str, *, now: float) -> Traffic:
    """Read a ``/metrics`` page, summed over models and data-parallel engines.

    ``now`` in Unix seconds; the rate is over the time since the counters were made, which is after
    the model was loaded, or, where the page does not tell, since the process began.
    """
    page = read_page(text)
    prompts = read_lengths(text, "prompt")
    begun = page.created_at or page.started_at
    if begun is not None and not 0 < begun < now:
        begun = None
    return Traffic(
        prompts=prompts,
        outputs=read_lengths(text, "generation"),
        prefix_queries=page.prefix_queries,
        prefix_hits=page.prefix_hits,
        begun_at=begun,
        requests_per_second=prompts.count / (now - begun) if begun else None,
    )


def add_traffic(parts: Iterable[Traffic]) -> Traffic:
    """Sum what several engines have served."""
    parts = tuple(parts)
    rates = [part.requests_per_second for part in parts]
    return Traffic(
        prompts=add_lengths(part.prompts for part in parts),
        outputs=add_lengths(part.outputs for part in parts),
        prefix_queries=_sum(part.prefix_queries for part in parts),
        prefix_hits=_sum(part.prefix_hits for part in parts),
        begun_at=min((part.begun_at for part in parts if part.begun_at), default=None),
        requests_per_second=None if None in rates else _sum(rates),
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
