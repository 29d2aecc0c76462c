"""``VLLMTuning.status.recommendation``: what a run found.

A summary: all figures of each load point stand in the VLLMTrials.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from vllm_tuning.api.base import APIModel, Message, ShortText, Timestamp, schema_extra
from vllm_tuning.api.values import BatchLimits, LoadPoint, Measurement, SLOOutcome

Hash = Annotated[str, Field(max_length=64, pattern=r"^[a-z0-9]*$")]


class GainRange(APIModel):
    """What a gain may be in truth."""

    least: int
    """In percent, rounded."""
    greatest: int
    """In percent, rounded."""


class ParameterRecommendation(APIModel):
    """One recommended flag."""

    name: Annotated[str, Field(max_length=64)]
    """vLLM's name of the flag."""
    current: Annotated[str, Field(max_length=64)] | None = None
    """What the target has."""
    recommended: Annotated[str, Field(max_length=64)]
    """What it should have."""
    lower_bound: Annotated[str, Field(max_length=64)] | None = None
    """Smallest value that does about as well."""
    upper_bound: Annotated[str, Field(max_length=64)] | None = None
    """Largest value that does about as well."""
    uncapped: Annotated[str, Field(max_length=64)] | None = None
    """What it would be without the bounds of parameters or policies."""


class DecisionNote(APIModel):
    """One decision on the way, in the order an engineer makes them."""

    topic: Annotated[str, Field(max_length=64)]
    """What was decided."""
    decision: ShortText
    """How."""
    why: ShortText
    """For what reason, with numbers."""


class Recommendation(APIModel):
    """What a run found; limits only if a fresh start with exactly these flags met the SLA."""

    hash: Hash
    """Names this recommendation; annotation vllmtuning.io/approve takes it."""
    run_id: Annotated[str, Field(max_length=63)] | None = None
    """The run that found it."""
    ending: Annotated[str, Field(max_length=64)]
    """Recommended, NoImprovement, SLAUnsatisfiable, Inconclusive, BudgetExhausted or
    EngineFailed."""
    message: Message = ""
    """The finding in a sentence."""
    limits: BatchLimits | None = None
    """The recommended limits."""
    parameters: Annotated[
        tuple[ParameterRecommendation, ...],
        Field(
            max_length=16, json_schema_extra=schema_extra(list_type="map", list_map_keys=["name"])
        ),
    ] = ()
    """The same, flag by flag."""
    load: LoadPoint | None = None
    """Largest load confirmed within the SLA."""
    gain_percent: int | None = None
    """Capacity over the current limits; absent when those carry nothing within the SLA."""
    gain_range_percent: GainRange | None = None
    """Least and greatest gain that the measurements allow; absent without a gain."""
    replicas: Annotated[int, Field(ge=1)] | None = None
    """Pods that workload.requestsPerMinute needs at this capacity; absent without such a
    demand."""
    margins: Annotated[tuple[SLOOutcome, ...], Field(max_length=16)] = ()
    """Room left to each SLO."""
    binding_limit: ShortText | None = None
    """What stops more load."""
    confirmed: Measurement | None = None
    """The confirmation."""
    baseline: Measurement | None = None
    """The current limits, by the same rule."""
    nearest_miss: Measurement | None = None
    """Where nothing meets the SLA: what came closest."""
    decisions: Annotated[tuple[DecisionNote, ...], Field(max_length=16)] = ()
    """How it was found."""
    diff: Annotated[str, Field(max_length=16384)] | None = None
    """The change of the target's launch arguments, to read."""
    patch: Annotated[str, Field(max_length=32768)] | None = None
    """The same as a JSON Patch, for kubectl patch --type=json."""
    time: Timestamp | None = None
    """When it was made."""
