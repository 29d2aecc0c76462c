"""The bench's answers of a run: read back from its trials, and completed from the log at hand.

Pods and their logs may go at any moment; what stands in the trials is replayed by a later attempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from pydantic import ValidationError

from vllm_tuning.tuning.model import Answer
from vllm_tuning.tuning.run import EVENT, Event, ProbeEnded, StartEnded

Record: TypeAlias = StartEnded | ProbeEnded
"""An event that holds an answer."""


def stored_records(trials: Iterable[Mapping[str, Any]], run_id: str) -> tuple[Record, ...]:
    """Read the bench's records back from the trials of a run, in order of time."""
    found: dict[tuple[str, str], Record] = {}
    for body in trials:
        if body["spec"].get("runID") != run_id:
            continue
        status = body.get("status") or {}
        texts = [(status.get("start") or {}).get("answer")]
        texts += [point.get("answer") for point in status.get("points") or ()]
        for text in texts:
            if record := _record(text):
                found[identity_of(record)] = record
    return tuple(sorted(found.values(), key=lambda record: (record.time, record.seq)))


def merge_records(stored: Iterable[Record], events: Iterable[Event]) -> tuple[Record, ...]:
    """Add what a log says to what is stored; what is stored already stays as it is."""
    found = {identity_of(record): record for record in stored}
    for event in events:
        if isinstance(event, StartEnded | ProbeEnded):
            found.setdefault(identity_of(event), event)
    return tuple(sorted(found.values(), key=lambda record: (record.time, record.seq)))


def answers(records: Iterable[Record]) -> tuple[Answer, ...]:
    """Return what the search is told again by a later attempt."""
    return tuple(record.result for record in records)


def _record(text: str | None) -> Record | None:
    if not text:
        return None
    try:
        event = EVENT.validate_json(text)
    except ValidationError:
        return None  # stored by another version: measured anew rather than misread
    return event if isinstance(event, StartEnded | ProbeEnded) else None


def identity_of(record: Record) -> tuple[str, str]:
    """Name a record within its run: the same question is asked once."""
    match record:
        case StartEnded(result=result):
            return ("start", result.start.id)
        case ProbeEnded(result=result):
            return ("probe", result.probe.id)
