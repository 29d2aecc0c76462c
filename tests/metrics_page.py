"""vLLM's metrics page of the test's making, and an engine's server that shows it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

EDGES = (0.1, 0.25, 0.5, 1.0)
TOKEN_EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
"""vLLM's own for a model of 4,096 tokens."""
LABELS = ["model_name", "engine"]


def page(ttft: list[float], *, edges: tuple[float, ...] = EDGES) -> str:
    """A page after requests with these times to first token, in seconds."""
    registry = CollectorRegistry()
    family = Histogram(
        "vllm:time_to_first_token_seconds", "t", LABELS, buckets=edges, registry=registry
    )
    ended = Counter("vllm:request_success", "r", [*LABELS, "finished_reason"], registry=registry)
    for seconds in ttft:
        family.labels("m", "0").observe(seconds)
        ended.labels("m", "0", "stop").inc()
    return generate_latest(registry).decode()


def traffic_page(
    lengths: Iterable[tuple[int, int]], *, hit_fraction: float = 0.0, begun_at: float = 0.0
) -> str:
    """A page after requests of these prompt and output lengths.

    ``begun_at``: Unix seconds at which the counters began; 0 = the page does not tell.
    """
    registry = CollectorRegistry()
    prompts, outputs = (
        Histogram(f"vllm:request_{side}_tokens", side, LABELS, buckets=TOKEN_EDGES,
                  registry=registry).labels("m", "0")
        for side in ("prompt", "generation")
    )  # fmt: skip
    queries, hits = (
        Counter(f"vllm:prefix_cache_{name}", name, LABELS, registry=registry).labels("m", "0")
        for name in ("queries", "hits")
    )
    if begun_at:
        Gauge("vllm:num_preemptions_created", "c", LABELS, registry=registry).labels("m", "0").set(
            begun_at
        )
    for prompt, output in lengths:
        prompts.observe(prompt)
        outputs.observe(output)
        queries.inc(prompt)
        hits.inc(prompt * hit_fraction)
    return generate_latest(registry).decode()


class PlayedEngine:
    """One pod's metrics page, served on 127.0.0.1."""

    def __init__(self) -> None:
        self.ttft: list[float] = []
        self.asked = 0
        self.port = 0
        self.text: str | None = None
        """The page, instead of the one that follows from ``ttft``."""
        self.answer: web.Response | None = None
        """Sent instead of the page."""
        served = web.Application()
        served.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(served)

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        self.asked += 1
        if self.answer is not None:
            return self.answer
        return web.Response(text=page(self.ttft) if self.text is None else self.text)
