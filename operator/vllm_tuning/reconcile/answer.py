"""``status.answer``: the whole story in a sentence or two, for a person who looks once."""

from __future__ import annotations

from vllm_tuning.api.meta import Condition
from vllm_tuning.api.reasons import ConditionType, Reason
from vllm_tuning.reconcile.conditions import Conditions


def answer_of(conditions: Conditions) -> str:
    """Say what a person has to do; else what is under way; else what was found.

    ``conditions`` are complete but for ``Succeeded``.
    """
    stalled = conditions.get(ConditionType.STALLED)
    ready = conditions.get(ConditionType.READY)
    progressing = conditions.get(ConditionType.PROGRESSING)
    provided = conditions.get(ConditionType.RECOMMENDATION_PROVIDED)
    if stalled is not None and stalled.status == "True":
        return _told(stalled)
    if ready is not None and ready.status != "True":
        return _told(ready)
    if progressing is not None and progressing.status == "True":
        return _told(progressing)
    if provided is None or provided.reason in (Reason.NOT_YET, Reason.STALE):
        return _told(progressing or provided)
    applied = conditions.get(ConditionType.APPLIED)
    if applied is None or applied.reason == Reason.NOT_APPLIED:
        return _told(provided)
    return f"{_told(provided)} {_told(applied)}"


def _told(condition: Condition | None) -> str:
    return "" if condition is None else f"{condition.reason}: {condition.message}"
