"""Times of the week in which something may begin."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from vllm_tuning.api.base import APIModel, schema_extra


class Weekday(StrEnum):
    """A day of the week, in the order of ``datetime.weekday``."""

    MONDAY = "Monday"
    TUESDAY = "Tuesday"
    WEDNESDAY = "Wednesday"
    THURSDAY = "Thursday"
    FRIDAY = "Friday"
    SATURDAY = "Saturday"
    SUNDAY = "Sunday"


class Window(APIModel):
    """A span that opens at the same time on each of its days."""

    days: Annotated[
        tuple[Weekday, ...] | None,
        Field(min_length=1, max_length=7, json_schema_extra=schema_extra(list_type="set")),
    ] = None
    """Days on which it opens, e.g. [Saturday, Sunday]. Absent: every day."""
    start: Annotated[
        str,
        Field(
            min_length=5, max_length=5, pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$",
            examples=["22:00"],
        ),
    ]  # fmt: skip
    """Time of day at which it opens, hours and minutes, in quotes: "22:00"."""
    duration_minutes: Annotated[int, Field(ge=1, le=10_080)]
    """How long it stays open; may go past midnight. At most a week."""
    time_zone: (
        Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9_+/-]*$")]
        | None
    ) = None
    """Name in the IANA time zone database, e.g. Europe/Berlin; summer time is followed. Absent:
    UTC."""

    @property
    def zone_name(self) -> str:
        """The time zone, written or not."""
        return self.time_zone or "UTC"


Windows = Annotated[
    tuple[Window, ...],
    Field(min_length=1, max_length=16, json_schema_extra=schema_extra(list_type="atomic")),
]
"""Open while one of them is."""
