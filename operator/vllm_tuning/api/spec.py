"""``VLLMTuning.spec``: what a user wishes.

Fields that a profile, a policy or the target may supply have no schema default: the API server
would store it, and a default could no longer be told from a wish. The resolved values and their
sources stand in ``status.effective``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from vllm_tuning.api.base import APIModel, Rule, Seconds, schema_extra
from vllm_tuning.api.benchmark import Benchmark
from vllm_tuning.api.retune import RetunePolicy
from vllm_tuning.api.values import SLO
from vllm_tuning.api.windows import Windows
from vllm_tuning.api.workload import Workload


class TargetRef(APIModel):
    """The Deployment whose vLLM server is tuned; always in the VLLMTuning's own namespace."""

    model_config = ConfigDict(
        json_schema_extra=schema_extra(
            Rule(
                "self.apiVersion == oldSelf.apiVersion && self.kind == oldSelf.kind && self.name "
                "== oldSelf.name",
                "targetRef is immutable: create another VLLMTuning for the other Deployment and "
                "delete this one",
                field_path=".name",
            )
        )
    )

    api_version: Literal["apps/v1"] = "apps/v1"
    """API version of the target."""
    kind: Literal["Deployment"] = "Deployment"
    """Kind of the target."""
    name: Annotated[
        str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    ]
    """Name of the Deployment."""
    container_name: (
        Annotated[
            str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
        ]
        | None
    ) = None
    """The container that runs vLLM. Absent: found by its command, flags and image; needed only
    if several match."""


class Profile(StrEnum):
    """A kind of traffic, as a starting point."""

    CHAT = "Chat"
    BATCH = "Batch"
    MIXED = "Mixed"
    CUSTOM = "Custom"


class ObjectiveName(StrEnum):
    """What is made best among the settings that meet every SLO."""

    MAX_RATE = "MaxRateUnderSLO"
    MIN_LATENCY = "MinLatencyAtRate"
    MAX_THROUGHPUT = "MaxThroughputAtConcurrency"


class ParameterName(StrEnum):
    """vLLM's own names of what may be tuned."""

    MAX_NUM_SEQS = "max_num_seqs"
    MAX_NUM_BATCHED_TOKENS = "max_num_batched_tokens"
    GPU_MEMORY_UTILIZATION = "gpu_memory_utilization"
    ENABLE_CHUNKED_PREFILL = "enable_chunked_prefill"


class Parameter(APIModel):
    """One flag that may be tuned, and how far."""

    model_config = ConfigDict(
        json_schema_extra=schema_extra(
            Rule(
                "!has(self.min) || !has(self.max) || self.min <= self.max",
                "min is above max: swap them, or remove one to leave that side open",
                field_path=".min",
            ),
            Rule(
                "self.name != 'enable_chunked_prefill' || !(has(self.min) || has(self.max))",
                "enable_chunked_prefill is on or off: listing it lets both be measured; remove "
                "min and max",
            ),
            Rule(
                "self.name != 'gpu_memory_utilization' || ((!has(self.min) || self.min <= 99) && "
                "(!has(self.max) || self.max <= 99))",
                "gpu_memory_utilization is given in percent here: write max: 92 for 0.92; at "
                "most 99",
            ),
        )
    )

    name: ParameterName
    """vLLM's name of the flag, with underscores."""
    min: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """Smallest value that may be recommended; gpu_memory_utilization in percent. Absent: open."""
    max: Annotated[int, Field(ge=1, le=10_000_000)] | None = None
    """Largest value that may be recommended; gpu_memory_utilization in percent. Absent: open."""


class Budget(APIModel):
    """Hard caps of one run."""

    gpu_seconds: Annotated[int, Field(ge=1, le=31_536_000)] | None = None
    """GPUs times seconds, from the moment the benchmark pod holds them until it lets go. The run
    ends with the best proven answer so far."""
    deadline_seconds: Seconds | None = None
    """Longest time from the benchmark pod's start to the end of the run."""
    schedule_deadline_seconds: Seconds | None = None
    """Longest wait for a free GPU; then the run is given up with the scheduler's words."""
    startup_deadline_seconds: Seconds | None = None
    """Longest start of one engine."""


class UpdateMode(StrEnum):
    """Who applies a recommendation."""

    RECOMMEND = "Recommend"
    MANUAL = "Manual"
    AUTO = "Auto"


class UpdateChannel(StrEnum):
    """How a recommendation reaches the target."""

    ARGS = "Args"


class UpdatePolicy(APIModel):
    """What happens with a recommendation."""

    mode: UpdateMode | None = None
    """Recommend (the default): only tell. Manual: apply what annotation vllmtuning.io/approve
    names by its hash. Auto: apply as soon as it is confirmed."""
    channel: UpdateChannel | None = None
    """Args (the default): patch the launch arguments of the one container."""
    allow_managed: bool | None = None
    """Patch a target that another controller or a GitOps tool manages, although that may undo
    it. Default false."""
    minimum_improvement_percent: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Smaller gains are told but never applied. Default 5."""
    rollout_deadline_seconds: Seconds | None = None
    """Longest wait for the changed target to serve; then its old arguments are put back.
    Default: learnt from the start time measured in the benchmark."""


class VLLMTuningSpec(APIModel):
    """Names a server and an SLA."""

    model_config = ConfigDict(
        json_schema_extra=schema_extra(
            Rule(
                "!has(self.objective) || self.objective != 'MinLatencyAtRate' || "
                "(has(self.workload) && has(self.workload.requestsPerMinute))",
                "objective MinLatencyAtRate needs the demand: add workload.requestsPerMinute",
                field_path=".objective",
            ),
            Rule(
                "!has(self.objective) || self.objective != 'MaxThroughputAtConcurrency' || "
                "(has(self.workload) && has(self.workload.concurrency))",
                "objective MaxThroughputAtConcurrency needs the demand: add workload.concurrency",
                field_path=".objective",
            ),
        )
    )

    target_ref: TargetRef
    """The Deployment whose vLLM server is tuned."""
    profile: Profile | None = None
    """Kind of traffic; fills slos, workload and objective where they are absent. Chat: low time
    to first token. Batch: throughput without preemption. Mixed: chat with widely varying
    lengths. Custom: fills nothing."""
    slos: Annotated[
        tuple[SLO, ...] | None,
        Field(
            min_length=1,
            max_length=16,
            json_schema_extra=schema_extra(
                Rule(
                    "self.all(a, self.exists_one(b, a.metric == b.metric && "
                    "(has(a.percentile) ? a.percentile : 0) == (has(b.percentile) ? b.percentile "
                    ": 0)))",
                    "two slos for the same metric and percentile: keep the stricter one",
                ),
                list_type="atomic",
            ),
        ),
    ] = None
    """The SLA: every one of these must hold. Absent: from the profile, or from a VLLMSLAPolicy."""
    workload: Workload | None = None
    """The traffic to measure under."""
    objective: ObjectiveName | None = None
    """What is made best among the settings that meet the SLA. MaxRateUnderSLO (the default):
    most requests per second. MinLatencyAtRate: lowest latency at workload.requestsPerMinute.
    MaxThroughputAtConcurrency: most tokens per second with workload.concurrency clients."""
    parameters: Annotated[
        tuple[Parameter, ...] | None,
        Field(
            min_length=1,
            max_length=16,
            json_schema_extra=schema_extra(list_type="map", list_map_keys=["name"]),
        ),
    ] = None
    """What may be tuned, and how far. Absent: max_num_seqs and max_num_batched_tokens without
    bounds."""
    budget: Budget | None = None
    """Hard caps of one run."""
    benchmark: Benchmark | None = None
    """The benchmark pod."""
    update_policy: UpdatePolicy | None = None
    """What happens with a recommendation."""
    retune_policy: RetunePolicy | None = None
    """When the target is measured again without a change of the question."""
    windows: Windows | None = None
    """When runs may start and the target may be changed: while one of these is open. What has
    begun goes on to its end. Absent: at any time. Windows of policies hold as well."""
    suspend: bool = False
    """No new run starts; one in progress is stopped, with what it measured kept."""
    history_limit: Annotated[int, Field(ge=0, le=100)] = 3
    """How many finished runs keep their VLLMTrials."""
