"""Sends the load of one probe: open loop by a schedule, closed loop by its clients.

No task per request: arrivals, answers and deadlines are callbacks of the event loop, so that
thousands of streams cost what their bytes cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from time import perf_counter

from vllm_tuning.bench.load.connection import ConnectionPool, StreamConnection
from vllm_tuning.bench.load.exchange import Exchange
from vllm_tuning.bench.load.prompts import RequestSource
from vllm_tuning.bench.load.recorder import Recorder
from vllm_tuning.bench.load.server import ServerAddress
from vllm_tuning.tuning.samples import RequestStatus

CONNECT_SECONDS = 10.0
"""A server that accepts no connection for so long has failed the request."""

FAILURE_PAUSE_SECONDS = 0.1
"""A closed loop's client waits so long after a failure: a server that refuses at once would
otherwise be asked in a spin."""

PREPARE_SECONDS = 0.001
"""Longest stretch of rendering prompts ahead."""


class LoadDriver:
    """Sends requests to one server and records what comes back.

    Make it inside a running event loop. ``clock`` is seconds since its making: the time of every
    column that the recorder gets.
    """

    def __init__(
        self,
        server: ServerAddress,
        source: RequestSource,
        *,
        deadline_seconds: float,
        path: str = "/v1/completions",
    ) -> None:
        """``deadline_seconds`` bounds every request, from its scheduled time."""
        self.recorder = Recorder()
        self.active: dict[int, Exchange] = {}
        """Requests in flight by row."""
        self._loop = asyncio.get_running_loop()
        self._server = server
        self._source = source
        self._deadline = deadline_seconds
        self._head = server.post_head(path)
        self._ssl = server.ssl_context()
        self._pool = ConnectionPool(self._open_connection)
        self._origin = perf_counter()
        self._sending = False
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._pump_timer: asyncio.TimerHandle | None = None
        self._connecting: set[asyncio.Task[None]] = set()
        self._on_answer: Callable[[RequestStatus], None] = _nothing
        self._idle = asyncio.Event()
        self._idle.set()

    def clock(self) -> float:
        """Seconds since this driver was made."""
        return perf_counter() - self._origin

    def start_open(self, arrivals: Iterator[float]) -> None:
        """Send at the times that ``arrivals`` yields, counted from now, until ``stop``."""
        base = self.clock()
        self._sending = True
        upcoming = base + next(arrivals)

        def pump() -> None:
            nonlocal upcoming
            while self._sending:
                if (wait := upcoming - self.clock()) > 0:
                    if wait > PREPARE_SECONDS:
                        self._prepare()
                        wait = max(0.0, upcoming - self.clock())
                    self._pump_timer = self._loop.call_later(wait, pump)
                    return
                self._dispatch(upcoming)
                upcoming = base + next(arrivals)

        pump()

    def start_closed(self, concurrency: int, *, ramp_seconds: float = 0.0) -> None:
        """Keep ``concurrency`` requests in flight, begun evenly over the ramp, until ``stop``."""
        self._sending = True

        def answered(status: RequestStatus) -> None:
            if not self._sending:
                return
            if status is RequestStatus.OK:
                self._dispatch(self.clock())
                self._loop.call_soon(self._prepare)
            else:
                self._loop.call_later(FAILURE_PAUSE_SECONDS, again)

        def again() -> None:
            if self._sending:
                self._dispatch(self.clock())

        self._on_answer = answered
        for client in range(concurrency):
            self._loop.call_later(ramp_seconds * client / concurrency, again)

    def stop(self) -> None:
        """Send no more; what is in flight goes on."""
        self._sending = False
        if self._pump_timer is not None:
            self._pump_timer.cancel()

    def cancel(self, keep: Callable[[Exchange], bool] = lambda _: False) -> None:
        """Close every request in flight but those to ``keep``; they end as ``CANCELLED``."""
        for exchange in list(self.active.values()):
            if not keep(exchange):
                self._finish(exchange, RequestStatus.CANCELLED)

    async def drained(self) -> None:
        """Wait until nothing is in flight; deadlines see to it that this ends."""
        await self._idle.wait()

    async def close(self) -> None:
        """End everything that is left."""
        self.stop()
        self.cancel()
        for task in list(self._connecting):
            task.cancel()
        await asyncio.gather(*self._connecting, return_exceptions=True)
        self._pool.close()

    def _prepare(self) -> None:
        """Render prompts between sends, but never for long: bytes wait to be stamped."""
        end = perf_counter() + PREPARE_SECONDS
        while perf_counter() < end and self._source.prepare():
            pass

    def _dispatch(self, scheduled_at: float) -> None:
        exchange = Exchange(
            self._source.next(),
            scheduled_at,
            recorder=self.recorder,
            origin=self._origin,
            on_done=self._done,
        )
        self.active[exchange.row] = exchange
        self._idle.clear()
        now = self.clock()
        self.recorder.sent(exchange.row, now)
        left = max(0.0, scheduled_at + self._deadline - now)
        self._timers[exchange.row] = self._loop.call_later(left, self._expired, exchange)
        self._send(exchange, self._pool.take_free())

    def _send(self, exchange: Exchange, connection: StreamConnection | None) -> None:
        if connection is None:
            task = self._loop.create_task(self._connect_and_send(exchange))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)
            return
        exchange.connection = connection
        body = exchange.planned.body
        connection.send(b"%s%d\r\n\r\n%s" % (self._head, len(body), body), exchange)

    async def _connect_and_send(self, exchange: Exchange) -> None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                connection = await self._pool.connect()
        except OSError as error:  # TimeoutError and ssl.SSLError are OSErrors
            if not exchange.ended:
                detail = str(error) or f"no connection within {CONNECT_SECONDS:.0f} s"
                self._finish(exchange, RequestStatus.CONNECT_FAILED, detail)
            return
        if exchange.ended:
            connection.abort()
        else:
            self._send(exchange, connection)

    async def _open_connection(self, connection: StreamConnection) -> None:
        await self._loop.create_connection(
            lambda: connection,
            self._server.host,
            self._server.port,
            ssl=self._ssl,
        )

    def _done(self, exchange: Exchange, complete: bool, detail: str) -> None:
        connection = exchange.connection
        if (
            connection is not None
            and connection.used_before
            and not connection.answered
            and not exchange.retried
        ):
            # The server closed an idle connection while the request was on its way. It was not
            # served, so it is sent once more; the wait counts against the server's TTFT.
            exchange.retried = True
            self._send(exchange, None)
            return
        status, said = exchange.outcome(complete=complete, detail=detail)
        self._finish(exchange, status, said)

    def _expired(self, exchange: Exchange) -> None:
        self._finish(exchange, RequestStatus.TIMEOUT, f"not done after {self._deadline:.0f} s")

    def _finish(self, exchange: Exchange, status: RequestStatus, detail: str = "") -> None:
        exchange.finish(status, self.clock(), detail)
        self._timers.pop(exchange.row).cancel()
        del self.active[exchange.row]
        if status in {RequestStatus.CANCELLED, RequestStatus.TIMEOUT} and exchange.connection:
            exchange.connection.abort()
        if not self.active:
            self._idle.set()
        self._on_answer(status)


def _nothing(_: RequestStatus) -> None:
    return
