"""What a VLLMSLAPolicy says: defaults, which a tuning overrules, and overrides, which it can not.

There is no override for ``updatePolicy.channel``: with one channel, forbidding it is ``maxMode:
Recommend``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from vllm_tuning.api.base import APIModel, Rule, Seconds, schema_extra
from vllm_tuning.api.benchmark import BenchmarkJob, BenchmarkQueue
from vllm_tuning.api.retune import RetunePolicy
from vllm_tuning.api.spec import (
    Budget,
    ObjectiveName,
    Parameter,
    ParameterName,
    Profile,
    UpdateMode,
    UpdatePolicy,
)
from vllm_tuning.api.values import SLO
from vllm_tuning.api.windows import Windows
from vllm_tuning.api.workload import Workload

_ONE_PER_METRIC = Rule(
    "self.all(a, self.exists_one(b, a.metric == b.metric && "
    "(has(a.percentile) ? a.percentile : 0) == (has(b.percentile) ? b.percentile : 0)))",
    "two slos for the same metric and percentile: keep the stricter one",
)
SLOs = Annotated[
    tuple[SLO, ...],
    Field(
        min_length=1,
        max_length=16,
        json_schema_extra=schema_extra(_ONE_PER_METRIC, list_type="atomic"),
    ),
]
Parameters = Annotated[
    tuple[Parameter, ...],
    Field(
        min_length=1,
        max_length=16,
        json_schema_extra=schema_extra(list_type="map", list_map_keys=["name"]),
    ),
]


class PolicyDefaults(APIModel):
    """What a tuning gets where it says nothing."""

    model_config = ConfigDict(
        json_schema_extra=schema_extra(
            Rule(
                "!has(self.workload) || !has(self.workload.traceRef)",
                "a trace lies in a tuning's own namespace: name it in the VLLMTuning, or write "
                "inputTokens and outputTokens here",
                field_path=".workload",
            )
        )
    )

    profile: Profile | None = None
    """Used by a tuning that names neither profile nor slos."""
    slos: SLOs | None = None
    """The SLA of a tuning that names neither profile nor slos."""
    workload: Workload | None = None
    """Filled field by field, for tunings without a profile."""
    objective: ObjectiveName | None = None
    """For tunings without a profile."""
    parameters: Parameters | None = None
    """What may be tuned."""
    budget: Budget | None = None
    """Filled field by field."""
    update_policy: UpdatePolicy | None = None
    """Filled field by field."""
    retune_policy: RetunePolicy | None = None
    """Filled field by field."""
    windows: Windows | None = None
    """When runs may start and targets may be changed."""
    benchmark: BenchmarkQueue | None = None
    """The benchmark Job."""


class RetuneBounds(APIModel):
    """How seldom and how soon a target may be measured again."""

    after_days: Annotated[int, Field(ge=1, le=366)] | None = None
    """Results are measured again when they are older than this, or earlier if the tuning says
    so."""
    cooldown_seconds: Seconds | None = None
    """Least time between the end of a run and the start of the next; a tuning's longer one
    stays."""


class PolicyOverrides(APIModel):
    """What no tuning may exceed."""

    slos: SLOs | None = None
    """Ceilings: a tuning's SLA is tightened to these, and gets those that it lacks."""
    max_mode: UpdateMode | None = None
    """Highest mode: Recommend, Manual or Auto. A higher one is lowered to it."""
    deny_managed: Literal[True] | None = None
    """Never patch a target that something else manages, whatever allowManaged says."""
    minimum_improvement_percent: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Gains below this are never applied."""
    parameters: Parameters | None = None
    """Bounds of recommended values; a tuning's own bounds are narrowed to them."""
    frozen_parameters: Annotated[
        tuple[ParameterName, ...] | None,
        Field(min_length=1, max_length=16, json_schema_extra=schema_extra(list_type="set")),
    ] = None
    """Parameters that are not tuned at all."""
    budget: Budget | None = None
    """Caps; a tuning's larger ones are lowered to them."""
    retune_policy: RetuneBounds | None = None
    """Bounds of retunePolicy; the stricter one of tuning and policy holds."""
    benchmark: BenchmarkJob | None = None
    """Queue and priority of the benchmark Job, whatever the tuning says."""
    windows: Windows | None = None
    """Runs start and targets are changed only while one of these is open, and one of each other
    policy and of the tuning itself."""
