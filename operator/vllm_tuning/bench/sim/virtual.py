"""Load on the engine core in virtual time: arrivals, clients, and what they saw."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from vllm_tuning.bench.sim.columns import columns
from vllm_tuning.bench.sim.engine import EngineCore, StepOutput
from vllm_tuning.bench.sim.frontend import NEVER, PASSES, Frontend, FrontendCost
from vllm_tuning.bench.sim.scheduler import Batch, Request
from vllm_tuning.tuning.samples import RequestSamples


@dataclass(slots=True)
class StepLog:
    """Columns with one entry per finished step; times are virtual seconds."""

    ended_at: list[float] = field(default_factory=list)
    seen_at: list[float] = field(default_factory=list)
    """When the clients had its tokens."""
    running: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    output_tokens: list[int] = field(default_factory=list)
    kv_blocks: list[int] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)


class VirtualLoad:
    """Drives one engine core through the load of one probe.

    Time starts at 0 with the probe; the core goes on from where it was (``origin``).
    """

    def __init__(
        self,
        core: EngineCore,
        lengths: Iterator[tuple[int, int]],
        *,
        frontend: FrontendCost,
        origin: float,
        shared_prefix_tokens: int = 0,
        first_id: int = 0,
        request_limit: int | None = None,
    ) -> None:
        """``request_limit``: send no more than so many requests (a closed loop's fixed number)."""
        self.log = StepLog()
        self.now = 0.0
        self.sent = 0
        self.answered = 0
        self.longest_seconds = 0.0
        """Latency of the slowest request answered so far."""
        self._core = core
        self._lengths = lengths
        self._cost = frontend
        self._half = frontend.latency / 2
        self._frontend: Frontend[Request | Batch] = Frontend()
        self._origin = origin
        self._first_id = first_id
        self._request_limit = request_limit
        blocks = shared_prefix_tokens // core.scheduler.block_size
        self._prefix = [("prefix", first_id, index) for index in range(blocks)]
        self._requests: list[Request] = []
        self._scheduled: list[float] = []
        self._finished: list[float] = []
        self._arrivals: Iterator[float] | None = None
        self._next_arrival = float("inf")
        self._queue: deque[tuple[float, Request]] = deque()
        """Requests on the way from the API server to the engine, with the time of arrival there."""
        self._clients: list[float] = []
        """When the waiting clients of a closed loop send next; a heap."""
        self._closed = False
        self._cancelled_at: float | None = None
        self._oldest = 0
        """Row of the oldest request that may be unanswered."""
        self._first_step = core.scheduler.steps

    def start_open(self, arrivals: Iterator[float]) -> None:
        """Send at the times that ``arrivals`` yields."""
        self._arrivals = arrivals
        self._next_arrival = next(arrivals)

    def start_closed(self, concurrency: int, *, ramp_seconds: float = 0.0) -> None:
        """Let ``concurrency`` clients send, each again when its answer is there."""
        self._closed = True
        begins = [ramp_seconds * client / concurrency for client in range(concurrency)]
        self._clients.extend(begins)
        self._next_arrival = self._clients[0]

    def stop(self) -> None:
        """Send no more."""
        self._arrivals = None
        self._closed = False
        self._clients.clear()
        self._next_arrival = float("inf")

    def run_until(self, at: float) -> None:
        """Advance to ``at`` seconds."""
        core, origin, queue, frontend = self._core, self._origin, self._queue, self._frontend
        while True:
            due = core.next_event_at
            engine_at = NEVER if due is None else due - origin
            queue_at = queue[0][0] if queue else NEVER
            event = min(engine_at, queue_at, frontend.next_at, self._next_arrival)
            if event > at:
                self.now = at
                return
            self.now = max(self.now, event)
            if self._next_arrival <= event:
                self._send()
            elif frontend.next_at <= event:
                self._serve(frontend.work())
            elif queue_at <= event:
                # What is in the queue now can be part of the step that is scheduled now.
                core.submit(queue.popleft()[1], origin + self.now)
            else:
                # Clocks round: a hair too early, and nothing would ever be due.
                output = core.advance(max(origin + self.now, due or 0.0))
                if output is not None:
                    self._collect(output)

    def _serve(self, item: Request | Batch | None) -> None:
        """Do what follows when the API server has done its work on a request or a step's tokens."""
        if isinstance(item, Request):
            self._queue.append((self.now + self._half, item))
        elif item is not None:
            seen = self.now + self._half
            self.log.seen_at.append(seen)
            for request in item.last_tokens:
                if request.cancelled:
                    continue
                row: int = request.payload  # type: ignore[assignment]  # set in _send
                self._finished[row] = seen
                self.answered += 1
                self.longest_seconds = max(self.longest_seconds, seen - self._scheduled[row])
                if self._closed:
                    heappush(self._clients, seen)
                    self._next_arrival = self._clients[0]

    def run_until_answered(self, end: float, *, limit: float) -> None:
        """Go on under load until what was sent before ``end`` ended, or had ``limit`` seconds."""
        last = end + limit
        while self.now < last and self._open_before(end):
            self.run_until(min(last, self.now + 0.1))

    def _open_before(self, end: float) -> bool:
        # The last token is on its way to the client for a moment; NaN = not even that.
        while self._oldest < self.sent and self._finished[self._oldest] <= self.now:
            self._oldest += 1
        return self._oldest < self.sent and self._scheduled[self._oldest] < end

    def cancel_rest(self) -> None:
        """Send no more and drop what has not finished."""
        self.stop()
        self._cancelled_at = self.now
        for request, finished in zip(self._requests, self._finished, strict=True):
            if finished != finished:  # noqa: PLR0124 - NaN
                self._core.scheduler.cancel(request)
        self._queue.clear()
        self._frontend.clear()
        while not self._core.idle:
            self.run_until(self.now + 1.0)

    def _send(self) -> None:
        at = self._next_arrival
        prompt, output = next(self._lengths)
        shared = min(len(self._prefix), (prompt - 1) // self._core.scheduler.block_size)
        request = Request(
            self._first_id + self.sent,
            prompt,
            output,
            arrived_at=self._origin + at,
            hashes=self._prefix[:shared],
            payload=self.sent,
        )
        self._frontend.post(at, self._cost.request / PASSES, PASSES, request)
        self._requests.append(request)
        self._scheduled.append(at)
        self._finished.append(float("nan"))
        self.sent += 1
        if self.sent == self._request_limit:
            self._next_arrival = float("inf")
            self._closed = False
        elif self._arrivals is not None:
            self._next_arrival = next(self._arrivals, float("inf"))
        else:
            heappop(self._clients)
            self._next_arrival = self._clients[0] if self._clients else float("inf")

    def _collect(self, output: StepOutput) -> None:
        batch = output.batch
        tokens = batch.decode_requests + len(batch.first_tokens)
        self._frontend.post(self.now, tokens * self._cost.token, 1, batch)
        log = self.log
        log.ended_at.append(self.now)
        log.running.append(batch.running)
        log.waiting.append(batch.waiting)
        log.tokens.append(batch.tokens)
        log.output_tokens.append(tokens)
        log.kv_blocks.append(batch.kv_blocks)
        log.preempted.append(len(batch.preempted))

    def samples(self) -> RequestSamples:
        """Columns of all requests as the clients know them now."""
        return columns(
            self._requests,
            scheduled=self._scheduled,
            finished=self._finished,
            seen=self.log.seen_at,
            first_step=self._first_step,
            now=self.now,
            cancelled_at=self._cancelled_at,
        )

    def in_flight_series(self, step_seconds: float = 0.25) -> list[tuple[float, int]]:
        """Requests in flight at regular times."""
        times = np.arange(0.0, self.now, step_seconds)
        sent = np.searchsorted(np.asarray(self._scheduled), times, side="right")
        ended = np.sort(np.asarray(self._finished))
        ended = ended[~np.isnan(ended)]
        done = np.searchsorted(ended, times, side="right")
        return list(zip(times.tolist(), (sent - done).tolist(), strict=True))
