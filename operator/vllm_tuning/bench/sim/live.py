"""The engine core in real time.

Steps end at times on an absolute clock, so a late wake-up delays one delivery and not all that
follow. All tokens of a step are handed out in one go.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from vllm_tuning.bench.sim.engine import EngineCore, StepOutput
from vllm_tuning.bench.sim.environment import Faults
from vllm_tuning.bench.sim.exposition import EngineMetrics
from vllm_tuning.bench.sim.hook import Hook
from vllm_tuning.bench.sim.scheduler import Request

MAX_LAG_SECONDS = 0.5
"""Behind the wall clock by more than this (the machine is overloaded), the engine stops catching
up.
"""

FORGET_STEPS = 200_000
"""Step times kept before an idle engine drops them."""


class EngineDeadError(RuntimeError):
    """The simulated engine core has died."""


@dataclass(slots=True)
class Stream:
    """Tokens of one request on their way to its client."""

    request: Request
    stop_reason: str
    """How it ends when all its tokens are there: ``length`` or ``stop``."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    tokens: int = 0
    """Generated and not yet taken."""
    done: bool = False
    first_at: float = 0.0
    last_at: float = 0.0

    async def take(self) -> int:
        """Wait for tokens; several if the client's side was slower than the engine.

        Raises:
            EngineDeadError: the engine died.
        """
        await self.ready.wait()
        self.ready.clear()
        if self.request.cancelled and not self.done:
            msg = "EngineCore encountered an issue. See stack trace (above) for the root cause."
            raise EngineDeadError(msg)
        tokens, self.tokens = self.tokens, 0
        return tokens


class LiveEngine:
    """Runs an ``EngineCore`` against the wall clock."""

    def __init__(
        self, core: EngineCore, metrics: EngineMetrics, faults: Faults, hook: Hook | None
    ) -> None:
        self._core = core
        self._metrics = metrics
        self._faults = faults
        self._hook = hook
        self._work = asyncio.Event()
        self._streams: dict[Request, Stream] = {}
        self._received = 0
        self._finished = 0
        self._previous_end = 0.0
        self.dead = False

    @staticmethod
    def now() -> float:
        """The engine's clock, seconds."""
        return time.monotonic()

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return len(self._streams)

    def submit(self, request: Request, stop_reason: str) -> Stream:
        """Queue a request; its tokens come through the stream."""
        if self.dead:
            msg = "EngineCore encountered an issue. See stack trace (above) for the root cause."
            raise EngineDeadError(msg)
        request.arrived_at = self.now()
        stream = Stream(request, stop_reason)
        self._streams[request] = stream
        self._received += 1
        self._core.submit(request, request.arrived_at)
        self._metrics.waiting = len(self._core.scheduler.waiting)
        self._work.set()
        return stream

    def abort(self, stream: Stream) -> None:
        """Drop a request whose client has gone. Harmless if it has ended."""
        if self._streams.pop(stream.request, None) is None:
            return
        self._core.scheduler.cancel(stream.request)
        self._show()  # like vLLM, which counts no request that its client dropped

    async def run(self) -> None:
        """Step until cancelled.

        Raises:
            EngineDeadError: a fault was to be simulated.
        """
        try:
            while True:
                await self._once()
        except EngineDeadError:
            self.dead = True
            for stream in self._streams.values():
                stream.request.cancelled = True
                stream.ready.set()
            raise

    async def _once(self) -> None:
        now = self.now()
        at = self._core.next_event_at
        if at is None:
            self._work.clear()
            await self._work.wait()
            return
        if at > now:
            await asyncio.sleep(at - now)
        if self._faults.hangs(self._received):
            await asyncio.Event().wait()
        # Catch up on all that was due meanwhile, each at its own time.
        late = self.now() - MAX_LAG_SECONDS
        while (at := self._core.next_event_at) is not None and at <= self.now():
            if self._hook is not None:
                self._hook.before_step()
            output = self._core.advance(max(at, late))
            if output is not None:
                self._deliver(output)
            elif self._hook is not None and self._core.launched is not None:
                self._hook.after_step(self._core.launched)
        self._show()

    def _deliver(self, output: StepOutput) -> None:
        batch = output.batch
        self._metrics.step(output, self._previous_end, self._core.end_of)
        self._previous_end = output.ended_at
        streams = self._streams
        last = set(batch.last_tokens)
        for group in (batch.decoding, batch.first_tokens):
            for request in group:
                stream = streams.get(request)
                if stream is None:
                    continue  # its client has gone
                if not stream.first_at:
                    stream.first_at = output.ended_at
                stream.tokens += 1
                stream.ready.set()  # before its end, which may be the engine's
                if request in last:
                    stream.done = True
                    stream.last_at = output.ended_at
                    del streams[request]
                    self._end(stream)
        if self._core.scheduler.idle and self._hook is not None:
            self._hook.went_idle()

    def _end(self, stream: Stream) -> None:
        self._metrics.finish(stream.request, stream.stop_reason, stream.first_at, stream.last_at)
        self._finished += 1
        if self._faults.crashes(self._finished):
            msg = "simulated crash"
            raise EngineDeadError(msg)

    def _show(self) -> None:
        scheduler = self._core.scheduler
        metrics = self._metrics
        metrics.running = len(scheduler.running)
        metrics.waiting = len(scheduler.waiting)
        metrics.kv_usage = scheduler.pool.usage
        metrics.counters["vllm:prefix_cache_queries"] = scheduler.prefix_queries
        metrics.counters["vllm:prefix_cache_hits"] = scheduler.prefix_hits
        if self._core.idle and len(self._core.step_ends) > FORGET_STEPS:
            self._core.forget()
