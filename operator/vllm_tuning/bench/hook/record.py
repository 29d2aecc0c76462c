"""What an engine core did, in a file that the launcher reads; see the launcher's ``hookfiles``."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

WRITE_INTERVAL_SECONDS = 0.25
KEPT_WINDOWS = 8


class Totals:
    """Counts over steps that scheduled at least one token."""

    def __init__(self) -> None:
        self.steps = 0
        self.running_max = 0
        self.scheduled_tokens_max = 0
        self.preemptions: int | None = 0
        """``None`` where the engine does not tell (before 0.12)."""

    def count(self, running: int, tokens: int, preempted: int | None) -> None:
        """Add one step."""
        self.steps += 1
        self.running_max = max(self.running_max, running)
        self.scheduled_tokens_max = max(self.scheduled_tokens_max, tokens)
        if preempted is None or self.preemptions is None:
            self.preemptions = None
        else:
            self.preemptions += preempted

    def as_dict(self) -> dict[str, Any]:
        """In the words of the file."""
        return dict(vars(self))


class Record:
    """The file ``record-<rank>.json``."""

    def __init__(self, directory: Path, rank: int, scheduler: str) -> None:
        self._path = directory / f"record-{rank}.json"
        self._partial = directory / f".record-{rank}.partial"
        self._written = 0.0
        self._dirty = True
        self.rank = rank
        self.scheduler = scheduler
        self.error: str | None = None
        self.window = -1
        self.started: dict[str, Any] = {}
        self.applied: dict[str, Any] = {}
        self.pending: list[str] = []
        self.total = Totals()
        self.windows: dict[int, Totals] = {}

    def enter_window(self, window: int) -> None:
        """Count the coming steps for ``window`` too."""
        self.window = window
        self.windows.setdefault(window, Totals())
        while len(self.windows) > KEPT_WINDOWS:
            del self.windows[next(iter(self.windows))]

    def count(self, running: int, tokens: int, preempted: int | None) -> None:
        """Add one step and write the file if the last writing is long enough ago."""
        self.total.count(running, tokens, preempted)
        if self.window in self.windows:
            self.windows[self.window].count(running, tokens, preempted)
        self._dirty = True
        if time.monotonic() - self._written > WRITE_INTERVAL_SECONDS:
            self.write()

    def flush(self) -> None:
        """Write what is not yet written."""
        if self._dirty:
            self.write()

    def write(self) -> None:
        """Replace the file. No fsync: it only has to outlive the step, not the machine."""
        self._partial.write_text(json.dumps(self._content()))
        self._partial.replace(self._path)
        self._written = time.monotonic()
        self._dirty = False

    def _content(self) -> dict[str, Any]:
        return {
            "rank": self.rank,
            "pid": os.getpid(),
            "scheduler": self.scheduler,
            "heartbeat": time.time(),
            "window": self.window,
            "started": self.started,
            "applied": self.applied,
            "pending": self.pending,
            **self.total.as_dict(),
            "error": self.error,
            "windows": {str(number): totals.as_dict() for number, totals in self.windows.items()},
        }
