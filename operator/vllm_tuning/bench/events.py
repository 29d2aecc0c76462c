"""A run's lines on stdout: one JSON event each, and together never more than the log API serves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from io import TextIOBase
from typing import TextIO, TypeAlias

from vllm_tuning.tuning.run import EVENT, Event, Progress

TOTAL_BYTES = 5 << 20
"""The log API serves no rotated files: a kubelet rotates at 10 MiB by default, some at 5."""
PROGRESS_BYTES = 2 << 20
PROGRESS_SECONDS = 5.0

Sink: TypeAlias = TextIO | TextIOBase
"""Where text goes: a file, or what is written as one (typeshed keeps the two apart)."""


class EventLog:
    """Numbers, times and writes events.

    Progress is thinned when there is much of it; answers never are.
    """

    def __init__(self, stream: Sink, clock: Callable[[], float] = time.time) -> None:
        self._stream = stream
        self._clock = clock
        self._seq = 0
        self._progress_bytes = 0
        self._last_progress = float("-inf")
        self.total_bytes = 0

    def write(self, make: Callable[[int, float], Event]) -> None:
        """Write the event that ``make`` builds from its number and time."""
        event = make(self._seq + 1, self._clock())
        if isinstance(event, Progress) and not self._wanted(event):
            return
        line = EVENT.dump_json(event).decode() + "\n"
        if isinstance(event, Progress):
            if self._progress_bytes + len(line) > PROGRESS_BYTES:
                return
            self._progress_bytes += len(line)
            self._last_progress = event.time
        self._seq += 1
        self.total_bytes += len(line)
        self._stream.write(line)
        self._stream.flush()

    def _wanted(self, event: Progress) -> bool:
        """At most one in 5 s; four times as far apart each time that half of the rest is used."""
        left = max(1.0 - self._progress_bytes / PROGRESS_BYTES, 1e-6)
        interval = PROGRESS_SECONDS * 4.0 ** math.floor(-math.log2(left))
        return bool(event.time - self._last_progress >= interval)
