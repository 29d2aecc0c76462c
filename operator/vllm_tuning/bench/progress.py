"""Whether the engine still moves while requests run: ``/health`` alone does not tell.

A hung engine answers ``/health`` with 200 (vllm#36451), so steps and tokens are the heartbeat.
"""

from __future__ import annotations

from vllm_tuning.bench.metrics.scraper import MetricsScraper
from vllm_tuning.bench.validity import Invalid


class EngineProgress:
    """Watches one probe for standstill."""

    def __init__(self, scraper: MetricsScraper, *, hang_seconds: float) -> None:
        """``hang_seconds`` without a step or a token, with requests in flight, are a standstill."""
        self._scraper = scraper
        self._hang_seconds = hang_seconds
        self._seen: tuple[object, ...] = ()
        self._moved_at = 0.0

    def standstill(self, now: float, *, in_flight: int, chunks: int) -> Invalid | None:
        """Say what is wrong at ``now``, given our requests in flight and all chunks so far."""
        last = self._scraper.last
        page = last.page if last else None
        seen = (
            chunks,
            page.steps if page else None,
            page.generation_tokens if page else None,
        )
        if seen != self._seen or not in_flight:
            self._seen = seen
            self._moved_at = now
            return None
        still = now - self._moved_at
        if still < self._hang_seconds:
            return None
        if self._scraper.failures:
            return Invalid(
                "EngineUnreachable",
                f"no token for {still:.0f} s with {in_flight} requests in flight, and the metrics "
                "page cannot be read",
            )
        return Invalid(
            "EngineHung",
            f"{in_flight} requests in flight, and for {still:.0f} s neither a step nor a token",
        )
