"""When a target is measured again without a change of the question."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from vllm_tuning.api.base import APIModel, Seconds


class DriftReaction(StrEnum):
    """What follows when somebody changes the limits that were applied."""

    REPORT = "Report"
    MEASURE = "Measure"


class RetunePolicy(APIModel):
    """When the target is measured again without a change of the question."""

    after_days: Annotated[int, Field(ge=1, le=366)] | None = None
    """Measure again so many days after a run has ended. Absent: never for its age."""
    cooldown_seconds: Seconds | None = None
    """Least time between the end of a run and the start of the next, whatever its cause. Absent:
    none."""
    on_drift: DriftReaction | None = None
    """Report (the default): tell that somebody changed the applied limits. Measure: take theirs as
    the new baseline and measure against it."""
