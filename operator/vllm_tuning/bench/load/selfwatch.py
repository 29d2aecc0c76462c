"""The driver watches itself: how late its event loop is, and how much CPU it takes."""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from time import perf_counter

INTERVAL_SECONDS = 0.02
"""How often the loop is asked whether it is on time."""


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """How the client itself fared over a span."""

    lag_p99_ms: float
    """99 % of moments saw the loop at most so late."""
    lag_max_ms: float
    cpu_fraction: float
    """CPU seconds of this process per second; 1 = one core."""
    seconds: float


class LoopWatch:
    """Measures the lateness of the running event loop from ``start`` on.

    A stall of ``L`` delays everything that came due inside it, not one tick: it enters as the
    lateness of every tick that it swallowed (``L``, ``L - interval``, ...).
    """

    def __init__(self) -> None:
        self._lags: list[float] = []
        self._marks: list[float] = []
        self._task: asyncio.Task[None] | None = None
        self._cpu: list[tuple[float, float]] = []

    def start(self) -> None:
        """Begin."""
        self._cpu.append((perf_counter(), time.process_time()))
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """End."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def health(self, since: float, until: float) -> ClientHealth:
        """Sum up between two ``perf_counter`` times."""
        lags = sorted(
            lag for lag, at in zip(self._lags, self._marks, strict=True) if since <= at <= until
        )
        if not lags:
            return ClientHealth(0.0, 0.0, 0.0, 0.0)
        inside = [(at, cpu) for at, cpu in self._cpu if since <= at <= until]
        wall = inside[-1][0] - inside[0][0] if inside else 0.0
        return ClientHealth(
            lag_p99_ms=lags[math.ceil(0.99 * len(lags)) - 1] * 1e3,
            lag_max_ms=lags[-1] * 1e3,
            cpu_fraction=(inside[-1][1] - inside[0][1]) / wall if wall > 0 else 0.0,
            seconds=until - since,
        )

    async def _watch(self) -> None:
        while True:
            due = perf_counter() + INTERVAL_SECONDS
            await asyncio.sleep(INTERVAL_SECONDS)
            now = perf_counter()
            lag = max(0.0, now - due)
            self._cpu.append((now, time.process_time()))
            while True:
                self._lags.append(lag)
                self._marks.append(now)
                lag -= INTERVAL_SECONDS
                if lag <= 0:
                    break
