"""The engine core on a clock: one host thread and one device.

The host schedules, launches, and takes outputs in. With asynchronous scheduling (vLLM's default
since 0.14) it schedules the next step while the device works on one, so two are in flight. What
follows from that, and is seen on real engines: a request that arrives during a step waits for the
end of it *and* of the step behind it; a finished request's place is free one step later; and the
output of a step is handed out only when the host has launched the next one, which takes long if
that one fits no CUDA graph.

The core knows no wall clock. A driver calls ``advance`` when ``next_event_at`` has come, in virtual
(``inprocess``) or in real time (``server``).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from vllm_tuning.bench.sim.cost import StepClock
from vllm_tuning.bench.sim.scheduler import Batch, Request, Scheduler


@dataclass(frozen=True, slots=True)
class StepOutput:
    """One finished step, in engine seconds."""

    batch: Batch
    scheduled_at: float
    ended_at: float
    """When its tokens were handed out."""


@dataclass(slots=True)
class _InFlight:
    batch: Batch
    scheduled_at: float
    device_end: float


class EngineCore:
    """Scheduler, step clock and the queue of steps in flight."""

    def __init__(
        self,
        scheduler: Scheduler,
        clock: StepClock,
        *,
        async_scheduling: bool = True,
        host_seconds: float = 0.0,
    ) -> None:
        """``host_seconds`` pass between the start of a launch and the device's first kernel."""
        self.scheduler = scheduler
        self.clock = clock
        self.step_ends: list[float] = []
        """When each step's tokens were handed out; ``forget`` empties it."""
        self.launched: Batch | None = None
        """The step that the last ``advance`` launched, if it launched one."""
        self._depth = 2 if async_scheduling else 1
        self._host_seconds = host_seconds
        self._in_flight: deque[_InFlight] = deque()
        self._host_free_at = 0.0
        self._device_free_at = 0.0
        self._nothing_to_schedule = True
        self._forgotten = 0

    @property
    def forgotten(self) -> int:
        """Steps whose times were dropped: index of the first one in ``step_ends``."""
        return self._forgotten

    @property
    def idle(self) -> bool:
        """Nothing in flight, running or waiting."""
        return not self._in_flight and self.scheduler.idle

    @property
    def next_event_at(self) -> float | None:
        """When the host acts next; ``None`` while there is nothing to do until a request comes."""
        if len(self._in_flight) < self._depth and not self._nothing_to_schedule:
            return self._host_free_at
        if not self._in_flight:
            return None
        return max(self._in_flight[0].device_end, self._host_free_at)

    def submit(self, request: Request, now: float) -> None:
        """Queue a request at ``now``; it can be part of the next step that is scheduled."""
        self.scheduler.add(request)
        if self._nothing_to_schedule:
            self._nothing_to_schedule = False
            self._host_free_at = max(self._host_free_at, now)

    def advance(self, now: float) -> StepOutput | None:
        """Do what is due at ``now``: launch a step, or take the oldest one's output in."""
        self.launched = None
        if len(self._in_flight) < self._depth and not self._nothing_to_schedule:
            batch = self.scheduler.schedule(now)
            if batch is not None:
                self._launch(batch, now)
                return None
            self._nothing_to_schedule = True
        if not self._in_flight or self._in_flight[0].device_end > now:
            return None
        step = self._in_flight.popleft()
        self.scheduler.complete(step.batch)
        self.step_ends.append(now)
        self._host_free_at = now
        self._nothing_to_schedule = self.scheduler.idle
        return StepOutput(step.batch, step.scheduled_at, now)

    def _launch(self, batch: Batch, now: float) -> None:
        time = self.clock.times(batch, now)
        start = max(now + self._host_seconds, self._device_free_at)
        launched = now + time.launch
        end = max(start + time.device, launched + self._host_seconds)
        self._device_free_at = end
        self._host_free_at = launched
        self._in_flight.append(_InFlight(batch, now, end))
        self.launched = batch

    def end_of(self, index: int) -> float:
        """When the tokens of step ``index`` were handed out. Only for steps that have ended."""
        return self.step_ends[index - self._forgotten]

    def token_times(self, request: Request) -> list[float]:
        """When the request's tokens were handed out, in order. Only for one that has finished."""
        offset = self._forgotten
        times: list[float] = []
        for first, last in request.spans:
            times += self.step_ends[first - offset : last + 1 - offset]
        return times

    def forget(self) -> None:
        """Drop the history of step times. Only while idle."""
        self._forgotten += len(self.step_ends)
        self.step_ends.clear()
