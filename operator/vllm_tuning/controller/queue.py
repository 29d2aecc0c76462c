"""A work queue of keys: each key once, serial per key, delayed keys, jittered back-off.

The same three promises as client-go's: a key that is added while it waits is done once; a key that
is added while it is worked on is done again afterwards; no key is worked on twice at the same time.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

FIRST_BACKOFF_SECONDS: Final = 0.5
MAX_BACKOFF_SECONDS: Final = 60.0
JITTER: Final = 0.2
"""Part of a delay that is random: many keys that failed together do not come back together."""


class WorkQueue(Generic[K]):
    """Holds keys until a worker gets them. For one event loop; not thread-safe."""

    def __init__(self, dice: random.Random | None = None) -> None:
        self._dice = dice or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._ready: asyncio.Queue[K] = asyncio.Queue()
        self._waiting: set[K] = set()
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._delayed: list[tuple[float, int, K]] = []
        self._due: dict[K, float] = {}
        self._count = 0
        self._failures: dict[K, int] = {}
        self._sooner = asyncio.Event()

    def __len__(self) -> int:
        """Keys that could be worked on now."""
        return len(self._waiting)

    def add(self, key: K) -> None:
        """Ask for a key to be worked on as soon as possible."""
        self._due.pop(key, None)
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: K, seconds: float) -> None:
        """Ask for a key in so many seconds; an earlier wish for the same key stands."""
        when = asyncio.get_running_loop().time() + max(0.0, seconds)
        if self._due.get(key, when + 1) <= when:
            return
        self._due[key] = when
        self._count += 1
        heapq.heappush(self._delayed, (when, self._count, key))
        self._sooner.set()

    def retry(self, key: K, at_least: float | None = None) -> float:
        """Ask for a key again after its back-off. Returns the seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        seconds = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 10))
        seconds = max(seconds, at_least or 0.0) * (1 + JITTER * self._dice.random())
        self.add_after(key, seconds)
        return seconds

    def forget_failures(self, key: K) -> None:
        """Begin the back-off of a key anew: it succeeded."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """Wait for a key and mark it as being worked on; ``done`` must follow."""
        key = await self._ready.get()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """Give a key back."""
        self._working.discard(key)
        if key in self._again:
            self._again.discard(key)
            self.add(key)

    async def run_clock(self) -> None:
        """Move delayed keys to the ready ones when their time has come. Runs for ever."""
        loop = asyncio.get_running_loop()
        while True:
            self._sooner.clear()
            now = loop.time()
            while self._delayed and self._delayed[0][0] <= now:
                when, _, key = heapq.heappop(self._delayed)
                if self._due.get(key) == when:  # else superseded
                    self.add(key)
            wait = self._delayed[0][0] - now if self._delayed else None
            try:
                await asyncio.wait_for(self._sooner.wait(), wait)
            except TimeoutError:
                continue
