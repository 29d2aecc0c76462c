"""A decision while it is being made: what the status was, what it becomes, what is to be done."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from vllm_tuning.api.reasons import ConditionType, EventReason, Reason
from vllm_tuning.api.status import VLLMTuningStatus
from vllm_tuning.reconcile.conditions import Conditions
from vllm_tuning.reconcile.effects import (
    About,
    Announcement,
    Decision,
    Effect,
    TrafficWanted,
)
from vllm_tuning.reconcile.observed import Observed


class Draft:
    """Filled stage by stage; ``finish`` makes the decision of it."""

    def __init__(self, observed: Observed, now: datetime) -> None:
        self.observed = observed
        self.now = now
        self.metadata: Mapping[str, Any] = observed.tuning["metadata"]
        self.namespace: str = self.metadata["namespace"]
        self.name: str = self.metadata["name"]
        self.before = read_status(observed.tuning)
        self.conditions = Conditions(self.before.conditions, now, self.metadata.get("generation"))
        self.status: dict[str, Any] = {}
        """Fields of the status that differ from before."""
        self.traffic_wanted: TrafficWanted | None = None
        """What has to be read for a better decision."""
        self._effects: list[Effect] = []
        self._announcements: list[Announcement] = []
        self._look_again_at: datetime | None = None

    @property
    def annotations(self) -> Mapping[str, str]:
        """Annotations of the tuning."""
        return self.metadata.get("annotations") or {}

    def act(self, effect: Effect) -> None:
        """Add an effect, unless the API server has just refused its like."""
        refused = self.observed.refused
        if refused is None or refused.effect != type(effect).__name__:
            self._effects.append(effect)

    def announce(
        self,
        reason: EventReason,
        message: str,
        *,
        about: About = About.TUNING,
        warning: bool = False,
    ) -> None:
        """Tell it as a Kubernetes event."""
        self._announcements.append(Announcement(about, str(reason), message, warning))

    def look_again(self, when: datetime | float) -> None:
        """Decide again at that moment, or in so many seconds, at the latest."""
        moment = when if isinstance(when, datetime) else self.now + timedelta(seconds=when)
        if self._look_again_at is None or moment < self._look_again_at:
            self._look_again_at = moment

    def progress(self, reason: Reason, message: str) -> None:
        """Say that work is under way."""
        self.conditions.set(ConditionType.PROGRESSING, True, reason, message)

    def rest(self, reason: Reason, message: str) -> None:
        """Say that nothing is under way."""
        self.conditions.set(ConditionType.PROGRESSING, False, reason, message)

    def stall(self, reason: Reason, message: str) -> None:
        """Say that a person has to do something."""
        self.conditions.set(ConditionType.STALLED, True, reason, message)

    def finish(self) -> Decision:
        """Return the decision."""
        status = self.before.model_copy(
            update={
                **self.status,
                "observed_generation": self.metadata.get("generation"),
                "conditions": self.conditions.done(),
            }
        )
        return Decision(
            status=status,
            effects=tuple(self._effects),
            announcements=tuple(self._announcements),
            look_again_at=self._look_again_at,
            traffic_wanted=self.traffic_wanted,
        )


def read_status(tuning: Mapping[str, Any]) -> VLLMTuningStatus:
    """Read the stored status; one that this version does not understand counts as none."""
    try:
        return VLLMTuningStatus.from_object(dict(tuning.get("status") or {}))
    except ValidationError:
        return VLLMTuningStatus()
