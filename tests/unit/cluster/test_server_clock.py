"""The API server's time from its answers, on clocks of the test's own."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from math import floor

import pytest

from vllm_tuning.cluster.clock import ServerClock

SERVER = datetime(2026, 1, 1, 12, 0, 0, 700_000, tzinfo=UTC)


class Times:
    """A server, and us: our monotonic clock and our wall clock, which may be wrong."""

    def __init__(self, wrong_by: float) -> None:
        self.ticks = 5000.0
        self.server = SERVER.timestamp()
        self._wrong_by = wrong_by
        self.clock = ServerClock(lambda: self.ticks, lambda: self.server + self._wrong_by)

    def pass_(self, seconds: float) -> None:
        self.ticks += seconds
        self.server += seconds

    def ask(self, there: float = 0.01, back: float = 0.01) -> None:
        """One request: the answer is dated when the server writes it."""
        sent = self.clock.ticks()
        self.pass_(there)
        date = format_datetime(datetime.fromtimestamp(floor(self.server), tz=UTC), usegmt=True)
        self.pass_(back)
        self.clock.heard(date, sent)

    @property
    def early(self) -> float:
        """Seconds that our idea of the server's time is behind it."""
        return self.server - self.clock.now().timestamp()


@pytest.mark.parametrize("wrong_by", [-3600, 0, 3600])
def test_our_own_clock_does_not_matter(wrong_by: float) -> None:
    times = Times(wrong_by)
    times.ask()
    assert 0 <= times.early <= 1.02

    for _ in range(20):
        times.pass_(0.13)
        times.ask()
    assert 0 <= times.early <= 0.1  # the answers around a full second tell it closely

    times.pass_(3600)
    assert 0 <= times.early <= 0.1


def test_until_the_first_answer_our_own_clock_is_all_there_is() -> None:
    times = Times(-30)
    assert times.early == pytest.approx(30)
    times.clock.heard(None, times.clock.ticks())
    times.clock.heard("yesterday", times.clock.ticks())
    assert times.early == pytest.approx(30)


@pytest.mark.parametrize("step", [-600, 600])
def test_a_server_whose_clock_is_set_is_followed(step: float) -> None:
    times = Times(0)
    times.ask()
    times.server += step

    times.ask()

    assert 0 <= times.early <= 1.02


def test_a_slow_answer_is_never_taken_for_a_late_time() -> None:
    times = Times(0)
    times.ask(there=20, back=9)

    assert 0 <= times.early <= 10.0
    assert times.clock.now() <= SERVER + timedelta(seconds=29)
