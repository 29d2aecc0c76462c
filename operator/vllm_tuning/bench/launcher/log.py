"""What the engine printed.

The beginning (start facts) and the end (why it died), and everything passed through.
"""

from __future__ import annotations

import contextlib
import os
import threading

HEAD_BYTES = 1 << 20
"""The start log of a large model with its progress bars is a few hundred KiB."""
TAIL_BYTES = 1 << 18


class LogBuffer:
    """The head and the tail of a byte stream, addressed by the offset in the whole stream.

    Kept in memory: an image with a read-only root file system needs no place for it, and the
    complete log is in the container's own log anyway.
    """

    def __init__(self, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self._head_bytes = head_bytes
        self._tail_bytes = tail_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._lock = threading.Lock()

    def append(self, data: bytes) -> None:
        """Add what was just read."""
        with self._lock:
            self._total += len(data)
            room = self._head_bytes - len(self._head)
            if room > 0:
                self._head += data[:room]
                data = data[room:]
            self._tail += data
            if len(self._tail) > 2 * self._tail_bytes:
                del self._tail[: len(self._tail) - self._tail_bytes]

    def read(self, start: int, limit: int) -> tuple[int, bytes]:
        """Up to ``limit`` bytes from ``start`` on, with the offset where they begin.

        Later than ``start`` after a gap.
        """
        with self._lock:
            if start < len(self._head):
                return start, bytes(self._head[start : start + limit])
            first_kept = self._total - len(self._tail)
            start = min(max(start, first_kept), self._total)
            begin = start - first_kept
            return start, bytes(self._tail[begin : begin + limit])

    def tail(self, limit: int) -> str:
        """The last ``limit`` bytes as text."""
        with self._lock:
            data = bytes(self._tail[-limit:])
            if len(data) < limit:
                data = bytes(self._head[-(limit - len(data)) :]) + data
        return data.decode("utf-8", "replace")


def pump(source: int, log: LogBuffer, sink: int) -> None:
    """Copy the pipe ``source`` into ``log`` and ``sink`` until every writer has closed it."""
    try:
        while True:
            data = os.read(source, 1 << 16)
            if not data:
                return
            log.append(data)
            _write_all(sink, data)
    finally:
        os.close(source)


def _write_all(sink: int, data: bytes) -> None:
    view = memoryview(data)
    with contextlib.suppress(OSError):  # a closed stdout must not stop the engine
        while view:
            view = view[os.write(sink, view) :]
