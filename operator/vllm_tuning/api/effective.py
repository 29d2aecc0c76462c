"""``status.effective``: the wish after everybody who may fill or narrow it, with the sources."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from vllm_tuning.api.base import APIModel, Name, schema_extra
from vllm_tuning.api.benchmark import BenchmarkJob
from vllm_tuning.api.retune import RetunePolicy
from vllm_tuning.api.spec import (
    Budget,
    ObjectiveName,
    Parameter,
    Profile,
    UpdatePolicy,
)
from vllm_tuning.api.traffic import LearntTraffic, TraceFacts
from vllm_tuning.api.values import SLO
from vllm_tuning.api.windows import Windows
from vllm_tuning.api.workload import Workload


class SourceKind(StrEnum):
    """Where an effective value comes from."""

    SPEC = "Spec"
    PROFILE = "Profile"
    POLICY = "Policy"
    TARGET = "Target"
    DEFAULT = "Default"


class FieldSource(APIModel):
    """Where one effective value comes from."""

    field: Annotated[str, Field(min_length=1, max_length=128)]
    """Path below spec, e.g. workload.inputTokens."""
    source: SourceKind
    """Who said it."""
    name: Name | None = None
    """The object or profile that said it, where that is not the spec itself."""


class WindowsOf(APIModel):
    """Windows of which one must be open."""

    policy: Name | None = None
    """The VLLMSLAPolicy that says so; absent: the tuning or a default."""
    windows: Windows
    """Open while one of them is."""


class Effective(APIModel):
    """The wish after profile, policies, target and defaults have filled it."""

    profile: Profile | None = None
    """The profile used."""
    slos: Annotated[tuple[SLO, ...], Field(max_length=32)] = ()
    """The SLA in force."""
    workload: Workload | None = None
    """The traffic measured under."""
    learnt: LearntTraffic | None = None
    """What of it was learnt from the target's own metrics, or why nothing was. Absent: nothing was
    to be learnt."""
    trace: TraceFacts | None = None
    """The trace that workload.traceRef names, and the lengths that it brings."""
    objective: ObjectiveName | None = None
    """What is made best."""
    parameters: Annotated[tuple[Parameter, ...], Field(max_length=16)] = ()
    """What may be tuned, and how far."""
    budget: Budget | None = None
    """The caps in force."""
    update_policy: UpdatePolicy | None = None
    """What happens with a recommendation."""
    retune_policy: RetunePolicy | None = None
    """When the target is measured again without a change of the question."""
    benchmark: BenchmarkJob | None = None
    """Queue and priority of the benchmark Job, where somebody names them."""
    windows: Annotated[tuple[WindowsOf, ...], Field(max_length=16)] = ()
    """When runs may start and the target may be changed: while each of these is open."""
    sources: Annotated[
        tuple[FieldSource, ...],
        Field(
            max_length=64, json_schema_extra=schema_extra(list_type="map", list_map_keys=["field"])
        ),
    ] = ()
    """Where each of these comes from."""
