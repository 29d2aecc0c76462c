"""One HTTP/1.1 connection that carries one streamed request after the other.

llhttp (by httptools) parses HTTP; what is ours is the way from there to the recorder, free of
queues, tasks and copies: a chunk costs one callback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Protocol, cast

import httptools

ERROR_BODY_BYTES = 512
"""How much of an error response is kept."""


class Reader(Protocol):
    """What a connection tells about the response it carries."""

    def on_head(self, status: int) -> None:
        """Take the status."""

    def on_body(self, data: bytes, now: float) -> None:
        """Take a piece of the body and the ``perf_counter`` time at which it was read."""

    def on_end(self, *, complete: bool, detail: str) -> None:
        """End: ``complete`` if HTTP says so, else the connection broke for the reason ``detail``.

        Called exactly once per request, at the latest when the connection is lost.
        """


class StreamConnection(asyncio.Protocol):
    """A client connection; give it a request with ``send`` when it is ``free``."""

    def __init__(self, on_free: Callable[[StreamConnection], None]) -> None:
        self._on_free = on_free
        self._transport: asyncio.Transport | None = None
        self._reader: Reader | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._now = 0.0
        self._until_eof = False
        self._keep = False
        self.answered = False
        """Whether a byte of the present response has come."""
        self.used_before = False
        """Whether it carried another response before the present one."""
        self._requests = 0
        self.idle_since = 0.0

    @property
    def free(self) -> bool:
        """Whether it can take a request now."""
        return (
            self._reader is None
            and self._transport is not None
            and not self._transport.is_closing()
        )

    def send(self, request: bytes, reader: Reader) -> None:
        """Send a whole request and hand its response to ``reader``."""
        if self._transport is None or self._reader is not None:
            msg = "the connection is not free"
            raise RuntimeError(msg)
        self._reader = reader
        self._parser = httptools.HttpResponseParser(self)
        self._until_eof = True
        self._keep = False
        self.answered = False
        self.used_before = self._requests > 0
        self._requests += 1
        self._transport.write(request)

    def abort(self) -> None:
        """Close at once; the reader is told that the response is not complete."""
        if self._transport is not None:
            self._transport.abort()
        self._end(complete=False, detail="closed by us")

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse what came, under one time stamp."""
        self._now = perf_counter()
        if self._parser is None:
            # Bytes that no request asked for (a late 408, a TLS alert in clear): not to be reused.
            self.abort()
            return
        self.answered = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            raise  # our own fault, not the server's: the loop reports it
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._end(complete=False, detail=f"not HTTP: {error}")
            self.abort()

    def eof_received(self) -> bool:
        """Take the server's half-close as the end, as HTTP does for bodies without a length."""
        if self._reader is not None:
            whole = self.answered and self._until_eof
            self._end(complete=whole, detail="" if whole else "closed by the server")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End what was in progress."""
        self._transport = None
        self._end(complete=False, detail=f"connection lost: {exc or 'closed by the server'}")

    # httptools' callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        """Learn whether the body has an end of its own."""
        lower = name.lower()
        if lower == b"content-length" or (
            lower == b"transfer-encoding" and b"chunked" in value.lower()
        ):
            self._until_eof = False

    def on_headers_complete(self) -> None:
        """Pass the status on."""
        if self._reader is not None and self._parser is not None:
            self._reader.on_head(self._parser.get_status_code())

    def on_body(self, data: bytes) -> None:
        """Pass the body on."""
        if self._reader is not None:
            self._reader.on_body(data, self._now)

    def on_message_complete(self) -> None:
        """Free the connection if the server keeps it open."""
        if self._parser is None or self._parser.get_status_code() < 200:
            return
        self._keep = self._parser.should_keep_alive()
        self._end(complete=True, detail="")

    def _end(self, *, complete: bool, detail: str) -> None:
        reader, self._reader, self._parser = self._reader, None, None
        if reader is None:
            return
        if not (complete and self._keep and self.free):
            if self._transport is not None:
                self._transport.close()
        else:
            # Before the reader is told, so that its next request can use this connection.
            self.idle_since = perf_counter()
            self._on_free(self)
        reader.on_end(complete=complete, detail=detail)


class ConnectionPool:
    """Free connections, the most recently used first, and new ones on demand."""

    IDLE_SECONDS = 2.0
    """Older ones are closed: servers close idle ones (uvicorn after 5 s) while a request is on its
    way."""

    def __init__(self, open_connection: Callable[[StreamConnection], Awaitable[None]]) -> None:
        self._open = open_connection
        self._free: list[StreamConnection] = []

    def take_free(self) -> StreamConnection | None:
        """Return a free connection, ``None`` if a new one is needed."""
        oldest = perf_counter() - self.IDLE_SECONDS
        while self._free:
            connection = self._free.pop()
            if connection.free and connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    async def connect(self) -> StreamConnection:
        """Open a new connection; raises ``OSError`` (``ssl.SSLError`` is one)."""
        connection = StreamConnection(self._free.append)
        await self._open(connection)
        return connection

    def close(self) -> None:
        """Close the free connections; those in use close when their response ends."""
        for connection in self._free:
            connection.abort()
        self._free.clear()
