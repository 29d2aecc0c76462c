"""The API server's time, whatever our own clock says.

Deadlines are counted from timestamps of the control plane: when a Job began, when a pod got its
node. A clock of ours that goes an hour fast would give up every run at once, one that goes slow
would never give up. So the time is taken from the ``Date`` of the API server's answers and carried
on by our monotonic clock, which nobody sets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RESOLUTION_SECONDS = 1.0
"""``Date`` is cut to the second (RFC 9110, 5.6.7)."""


class ServerClock:
    """An estimate of the API server's time that is never ahead of it by more than its drift.

    Each answer bounds the distance of the two clocks: its ``Date`` was written between our sending
    and our receiving. All answers together bound it to some milliseconds. Bounds that exclude the
    earlier ones tell that a clock was set, or that another API server answers: they begin anew.
    """

    def __init__(
        self,
        ticks: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``ticks`` never jumps; ``wall`` is believed until the first answer. Both in seconds."""
        self._ticks = ticks
        self._low = self._high = wall() - ticks()
        self._heard = False

    def ticks(self) -> float:
        """Return the moment to pass to ``heard``."""
        return self._ticks()

    def heard(self, date: str | None, sent: float) -> None:
        """Take in the ``Date`` of an answer, just received, to what was ``sent`` at these ticks."""
        if date is None:
            return
        try:
            told = parsedate_to_datetime(date).timestamp()
        except ValueError:
            return  # a proxy's own idea of a date
        low, high = told - self._ticks(), told + RESOLUTION_SECONDS - sent
        if self._heard and low <= self._high and self._low <= high:
            low, high = max(low, self._low), min(high, self._high)
        self._low, self._high, self._heard = low, high, True

    def now(self) -> datetime:
        """Return the earliest time that it can be there: no deadline passes too early."""
        return datetime.fromtimestamp(self._ticks() + self._low, tz=UTC)
