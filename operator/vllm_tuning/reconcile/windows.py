"""Windows: whether one is open, when the next one opens, and whether one lies within another.

Several rules (the tuning's own, those of policies) must all be open at once; each of them is open
while one of its windows is. A time zone that is not known never opens: told, not guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from vllm_tuning.api.status import WindowsOf
from vllm_tuning.api.windows import Weekday, Window

HORIZON: Final = timedelta(days=28)
"""Rules that are not open together within four weeks never are, but for a change of summer time."""
_DAYS: Final = tuple(Weekday)
_WEEK_MINUTES: Final = 7 * 24 * 60
_SAMPLE_WEEKS: Final = (datetime(2026, 1, 5, tzinfo=UTC), datetime(2026, 7, 6, tzinfo=UTC))
"""One in winter and one in summer, whatever the hemisphere."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Not now."""

    message: str
    opens: datetime | None
    """``None`` = never, as the rules are."""


def closed(rules: Iterable[WindowsOf], now: datetime) -> Closed | None:
    """Return ``None`` if every rule is open now, else until when not and by whom."""
    rules = tuple(rules)
    shut = [rule for rule in rules if not is_open(rule.windows, now)]
    if not shut:
        return None
    by = ", ".join(_name(rule) for rule in shut)
    if unknown := [zone for rule in rules for zone in unknown_zones(rule.windows)]:
        return Closed(f"outside of {by}; time zone {unknown[0]} is not known: correct it", None)
    opens = next_open(rules, now)
    if opens is None:
        return Closed(f"outside of {by}; these are never open together: change one", None)
    moment = opens.astimezone(UTC).strftime("%A %Y-%m-%dT%H:%MZ")
    return Closed(f"outside of {by}; opens on {moment}", opens)


def next_open(rules: Sequence[WindowsOf], now: datetime) -> datetime | None:
    """Return the first moment from ``now`` on at which every rule is open."""
    moment, end = now, now + HORIZON
    while moment <= end:
        shut = next((rule for rule in rules if not is_open(rule.windows, moment)), None)
        if shut is None:
            return moment
        later = [opens for w in shut.windows if (opens := _opens_after(w, moment)) is not None]
        if not later:
            return None
        moment = min(later)
    return None


def is_open(windows: Iterable[Window], now: datetime) -> bool:
    """Tell whether one of the windows is open."""
    return any(start <= now < start + _length(w) for w in windows for start in _starts(w, now))


def covers(outer: Sequence[Window], inner: Sequence[Window]) -> bool:
    """Tell whether ``outer`` is open whenever ``inner`` is; by the minutes of a week."""
    return all(_minutes(inner, week) <= _minutes(outer, week) for week in _SAMPLE_WEEKS)


def unknown_zones(windows: Iterable[Window]) -> tuple[str, ...]:
    """Return the names of time zones that the database does not have."""
    return tuple(window.zone_name for window in windows if zone_of(window.zone_name) is None)


@lru_cache(maxsize=64)
def zone_of(name: str) -> tzinfo | None:
    """Look up a time zone."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown, malformed, or the name of a folder
        return None


def describe_windows(windows: Iterable[Window]) -> str:
    """Say windows in words, e.g. ``Saturday Sunday 02:00 for 240 min Europe/Berlin``."""
    return "; ".join(
        f"{' '.join(w.days or ('daily',))} {w.start} for {w.duration_minutes} min {w.zone_name}"
        for w in windows
    )


def _name(rule: WindowsOf) -> str:
    whose = "the windows" if rule.policy is None else f"the windows of VLLMSLAPolicy {rule.policy}"
    return f"{whose} ({describe_windows(rule.windows)})"


def _length(window: Window) -> timedelta:
    return timedelta(minutes=window.duration_minutes)


def _starts(window: Window, now: datetime) -> Iterable[datetime]:
    """Yield the openings of a window that may still last at ``now``."""
    back = window.duration_minutes // (24 * 60) + 2
    yield from _starts_on_days(window, now, -back, 1)


def _opens_after(window: Window, now: datetime) -> datetime | None:
    return next((start for start in _starts_on_days(window, now, -1, 9) if start > now), None)


def _starts_on_days(window: Window, now: datetime, first: int, last: int) -> Iterable[datetime]:
    zone = zone_of(window.zone_name)
    if zone is None:
        return
    today = now.astimezone(zone).date()
    hour, minute = map(int, window.start.split(":"))
    for days in range(first, last):
        date = today + timedelta(days=days)
        if window.days is None or _DAYS[date.weekday()] in window.days:
            yield datetime.combine(date, time(hour, minute), zone).astimezone(UTC)


@lru_cache(maxsize=256)
def _minutes_of(window: Window, week: datetime) -> frozenset[int]:
    """Return the minutes of a week in UTC at which a window is open; it goes round."""
    found: set[int] = set()
    for start in _starts_on_days(window, week, 0, 7):
        first = int((start - week).total_seconds() // 60)
        found.update(m % _WEEK_MINUTES for m in range(first, first + window.duration_minutes))
    return frozenset(found)


def _minutes(windows: Iterable[Window], week: datetime) -> frozenset[int]:
    return frozenset().union(*(_minutes_of(window, week) for window in windows))
