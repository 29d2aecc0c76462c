"""The loaded part of a probe: warm-up, windows with looks for an early FAIL, and the tail.

Load does not stop when the last window ends: its last requests would finish on an emptying engine
and look better than they are. It goes on, unmeasured, until they have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

from vllm_tuning.bench.load.driver import LoadDriver
from vllm_tuning.bench.progress import EngineProgress
from vllm_tuning.bench.validity import Invalid
from vllm_tuning.bench.workload import ProbeWorkload
from vllm_tuning.tuning.model import SLO, OpenLoad, Probe
from vllm_tuning.tuning.samples import Window
from vllm_tuning.tuning.verdict import Judgement, judge

Phase: TypeAlias = Literal["warmup", "measure", "drain"]

TICK_SECONDS = 0.1
"""How often the number of requests in flight is noted and the end of a phase looked for."""

LOOKS_PER_WINDOW = 5
"""Looks for an early FAIL; the level of each is chosen for some ten looks a probe."""

WARMUP_E2E = 1.2
"""The warm-up lasts so many times the longest request seen in it: then the engine carries as much
as it will."""

WARMUP_LEAST = (0.25, 10.0)
"""Least warm-up: this share of a window, at most so many seconds."""

RAMP = (0.1, 2.0)
"""An open load rises over this share of a window, at most so many seconds."""

STAGGER = 0.2
"""The clients of a closed loop begin over this share of a window, about a latency. Begun at once,
requests of one length stay in waves, and a window's throughput depends on how many it cuts.
"""


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a measurement stands, for whoever shows it."""

    phase: Phase
    at: float


def ramp_seconds(probe: Probe) -> float:
    """Over how long the load of a probe rises."""
    if isinstance(probe.load, OpenLoad):
        return min(RAMP[0] * probe.window_seconds, RAMP[1])
    return STAGGER * probe.window_seconds


class Measurement:
    """Runs the load of one probe through ``driver``."""

    def __init__(
        self,
        probe: Probe,
        slos: tuple[SLO, ...],
        workload: ProbeWorkload,
        driver: LoadDriver,
        progress: EngineProgress,
        *,
        tail_seconds: float,
        on_tick: Callable[[Moment], None],
        on_edge: Callable[[], Awaitable[object]],
        preemptions: Callable[[float, float], int | None],
    ) -> None:
        """``on_edge`` is awaited where the windows begin and where they end (to read counters).

        ``preemptions`` gives the engine's count between two times; ``None`` = not known.
        """
        self.windows: list[Window] = []
        """Measured spans, complete or cut by an early FAIL."""
        self.in_flight: list[tuple[float, int]] = []
        self.invalid: Invalid | None = None
        """Why it was broken off, if it was."""
        self._probe = probe
        self._slos = slos
        self._workload = workload
        self._driver = driver
        self._progress = progress
        self._tail = tail_seconds
        self._on_tick = on_tick
        self._on_edge = on_edge
        self._preemptions = preemptions
        self._phase: Phase = "warmup"
        self._began = 0.0
        self._ended_by: Judgement | None = None

    async def run(self) -> None:
        """Measure until there is a verdict, or no more time or point in one."""
        self._start()
        if not await self._until(self._warm):
            return
        self._phase = "measure"
        await self._on_edge()
        start = self._driver.clock()
        while await self._window(start, start + self._probe.window_seconds):
            start += self._probe.window_seconds

    async def drain(self) -> None:
        """Stop the load and end what is in flight: nothing of it belongs to a window any more."""
        self._phase = "drain"
        self._driver.stop()
        self._driver.cancel()
        await self._driver.drained()
        self._tick()

    async def judgement(self) -> Judgement:
        """Return the verdict: that of the look that ended the measurement, else of all it saw."""
        return self._ended_by or await self._judge(final=True)

    async def _judge(self, *, final: bool) -> Judgement:
        now = self._driver.clock()
        windows = [
            window if window.complete else Window(window.start, now, complete=False)
            for window in self.windows
        ]
        # The snapshot is taken here, the verdict in a thread: over many requests it would make
        # the loop late.
        return await asyncio.to_thread(
            judge,
            self._driver.recorder.snapshot(),
            self._slos,
            self._probe,
            windows=windows,
            in_flight=list(self.in_flight),
            now=None if final else now,
            preemptions=self._preemptions(windows[0].start, windows[-1].end) if windows else None,
        )

    def _start(self) -> None:
        probe = self._probe
        self._began = self._driver.clock()
        ramp = ramp_seconds(probe)
        if isinstance(probe.load, OpenLoad):
            self._driver.start_open(self._workload.arrivals(probe.load, ramp_seconds=ramp))
        else:
            self._driver.start_closed(probe.load.concurrency, ramp_seconds=ramp)

    def _warm(self) -> bool:
        probe, recorder = self._probe, self._driver.recorder
        now = self._driver.clock() - self._began
        if probe.warmup_seconds is not None:
            return now >= probe.warmup_seconds
        if now >= probe.window_seconds:
            return True
        if now < min(WARMUP_LEAST[0] * probe.window_seconds, WARMUP_LEAST[1]):
            return False
        enough = 1 if isinstance(probe.load, OpenLoad) else probe.load.concurrency
        return recorder.completed >= enough and now >= WARMUP_E2E * recorder.longest_seconds

    async def _window(self, start: float, end: float) -> bool:
        """Measure one window; whether another is wanted."""
        probe = self._probe
        self.windows.append(Window(start, end, complete=False))
        look = probe.window_seconds / LOOKS_PER_WINDOW
        for number in range(1, LOOKS_PER_WINDOW + 1):
            if not await self._until(partial(self._reached, start + number * look)):
                self._cut(start)
                return False
            if number == LOOKS_PER_WINDOW:
                self.windows[-1] = Window(start, end)
            if probe.stop_on_fail and await self._ends():
                self._cut(start)
                return False
        if len(self.windows) < probe.windows:
            return True
        await self._on_edge()
        await self._settle(end)
        return False

    def _cut(self, start: float) -> None:
        if not self.windows[-1].complete:
            # A look that came late ends the window no later than it was to end.
            end = min(self._driver.clock(), start + self._probe.window_seconds)
            self.windows[-1] = Window(start, end, complete=False)

    async def _ends(self) -> bool:
        judgement = await self._judge(final=False)
        if judgement.ends_probe:
            self._ended_by = judgement
        return self._ended_by is not None

    async def _settle(self, end: float) -> None:
        """Wait under load until the requests of the windows ended, or have had their time."""

        def settled() -> bool:
            pending = any(item.scheduled_at < end for item in self._driver.active.values())
            return not pending or self._driver.clock() >= end + self._tail

        await self._until(settled)

    def _reached(self, at: float) -> bool:
        return self._driver.clock() >= at

    async def _until(self, over: Callable[[], bool]) -> bool:
        """Tick until ``over``; False = broken off for the reason in ``invalid``."""
        while not over():
            await asyncio.sleep(TICK_SECONDS)
            self._tick()
            self.invalid = self._progress.standstill(
                self._driver.clock(),
                in_flight=len(self._driver.active),
                chunks=self._driver.recorder.chunks_seen,
            )
            if self.invalid is not None:
                return False
        return True

    def _tick(self) -> None:
        now = self._driver.clock()
        self.in_flight.append((now, len(self._driver.active)))
        self._on_tick(Moment(self._phase, now))
