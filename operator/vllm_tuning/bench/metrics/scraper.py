"""Reads the engine's ``/metrics`` on a clock while the load runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from vllm_tuning.bench.load.server import ServerAddress
from vllm_tuning.engine.metrics import EnginePage, read_page

TIMEOUT_SECONDS = 5.0
"""A page that takes longer says more about the engine's API process than its numbers would."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A page, and when it was asked for on the probe's clock."""

    at: float
    page: EnginePage


class MetricsScraper:
    """Collects readings; a page that cannot be read leaves a gap, never a guess."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        server: ServerAddress,
        *,
        clock: Callable[[], float],
        interval_seconds: float,
    ) -> None:
        """``clock`` gives the time of readings; the series of ``server.model`` are read."""
        self.readings: list[Reading] = []
        self.failures = 0
        """Pages in a row that could not be read."""
        self._session = session
        self._server = server
        self._clock = clock
        self._interval = interval_seconds
        self._task: asyncio.Task[None] | None = None
        # One page at a time: of two that overlap, the older could come last, and its counters
        # would look like those of a restarted engine.
        self._reading = asyncio.Lock()

    @property
    def last(self) -> Reading | None:
        """The newest reading."""
        return self.readings[-1] if self.readings else None

    async def read(self) -> Reading | None:
        """Read the page now; ``None`` where it cannot be read."""
        async with self._reading:
            at = self._clock()
            try:
                text = await self._page()
            except (aiohttp.ClientError, TimeoutError):
                self.failures += 1
                return None
            self.failures = 0
            reading = Reading(at, read_page(text, model=self._server.model))
            self.readings.append(reading)
            return reading

    async def _page(self) -> str:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with self._session.get(self._server.url("/metrics"), timeout=timeout) as response:
            response.raise_for_status()
            return await response.text()

    def start(self) -> None:
        """Read every ``interval_seconds`` until ``stop``."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self.read()
