"""Conditions as a value that a decision fills; transition times follow from the ones before."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pydantic import ValidationError

from vllm_tuning.api.meta import Condition
from vllm_tuning.api.reasons import ConditionType, Reason

MAX_MESSAGE = 32_000


def invalid_words(error: ValidationError) -> str:
    """Say what of a spec is not understood, and what to do."""
    words = "; ".join(
        f"spec.{'.'.join(str(part) for part in entry['loc'])}: {entry['msg']}"
        for entry in error.errors()[:5]
    )
    return f"{words}: correct it, or upgrade the operator if a newer CRD allows it"


class Conditions:
    """The conditions of one object while they are being computed."""

    def __init__(self, before: Iterable[Condition], now: datetime, generation: int | None) -> None:
        self._before = {condition.type: condition for condition in before}
        self._found: dict[str, Condition] = {}
        self._now = now.replace(microsecond=0)
        self._generation = generation

    def set(
        self,
        type_: ConditionType,
        status: bool | None,
        reason: Reason | str,
        message: str,
    ) -> None:
        """Set a condition; ``None`` = Unknown. The last word on a type counts."""
        word = "Unknown" if status is None else str(bool(status))
        old = self._before.get(type_)
        self._found[type_] = Condition(
            type=str(type_),
            status=word,
            reason=str(reason),
            message=message[:MAX_MESSAGE],
            last_transition_time=(
                old.last_transition_time if old and old.status == word else self._now
            ),
            observed_generation=self._generation,
        )

    def get(self, type_: ConditionType) -> Condition | None:
        """Return what was set in this pass."""
        return self._found.get(type_)

    def before(self, type_: ConditionType) -> Condition | None:
        """Return what the last pass left."""
        return self._before.get(type_)

    def keep(self, type_: ConditionType) -> None:
        """Carry a condition over as it was, if it was there and is not set yet."""
        if type_ in self._before and type_ not in self._found:
            self._found[type_] = self._before[type_]

    def done(self) -> tuple[Condition, ...]:
        """Return all in the order of the registry, foreign ones last, as they were."""
        ours = [str(member) for member in ConditionType]
        foreign = [name for name in self._before if name not in ours]
        found = [self._found[name] for name in ours if name in self._found]
        return (*found, *(self._before[name] for name in foreign))
