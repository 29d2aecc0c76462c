"""``VLLMTuning.status``: a summary, computed from what is observed.

Details of each measurement live in VLLMTrials.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from vllm_tuning.api.base import (
    APIModel,
    DecimalString,
    Name,
    ShortText,
    Timestamp,
)
from vllm_tuning.api.effective import Effective, FieldSource, SourceKind, WindowsOf
from vllm_tuning.api.meta import Conditions
from vllm_tuning.api.recommendation import (
    DecisionNote,
    GainRange,
    Hash,
    ParameterRecommendation,
    Recommendation,
)
from vllm_tuning.api.values import BatchLimits

Count = Annotated[int, Field(ge=0)]
Words = Annotated[tuple[Annotated[str, Field(max_length=65536)], ...], Field(max_length=512)]
"""An argument vector."""


class Target(APIModel):
    """The target as it was last observed."""

    uid: Annotated[str, Field(max_length=64)] = ""
    """The Deployment's uid."""
    generation: Count = 0
    """The Deployment's generation."""
    container: Name | None = None
    """The container that runs vLLM."""
    image: ShortText | None = None
    """Its image as written."""
    image_id: ShortText | None = Field(default=None, alias="imageID")
    """Its image as it runs, by digest."""
    vllm_version: Annotated[str, Field(max_length=64)] | None = None
    """Version of vLLM, if known."""
    gpu_product: Annotated[str, Field(max_length=128)] | None = None
    """The node's word for its GPU."""
    gpu_count: Count | None = None
    """GPUs of one pod."""
    flag_source: Annotated[str, Field(max_length=64)] | None = None
    """Form in which the flags are written, e.g. Args, Command, Shell."""
    limits: BatchLimits | None = None
    """The limits in force, written or default."""
    managers: Annotated[tuple[ShortText, ...], Field(max_length=16)] = ()
    """Controllers and GitOps tools that manage the Deployment."""


class Run(APIModel):
    """The current or last benchmark run."""

    id: Annotated[str, Field(max_length=63)]
    """Same question, same id: a hash of the tuning, of what is measured and of the SLA."""
    attempt: Annotated[int, Field(ge=1)] = 1
    """Counts on when a benchmark pod is lost; what was measured is kept."""
    fingerprint: Hash | None = None
    """Hash of what is measured: the target without its tuned flags, workload, bounds. Not the
    SLA: another one is judged from what is stored."""
    args_hash: Hash | None = None
    """Hash of the target's launch arguments when it began."""
    epoch: Annotated[str, Field(max_length=64)] | None = None
    """Why an unchanged question was measured again, by retunePolicy; earlier results do not answer
    it any more."""
    judged_from: Annotated[str, Field(max_length=63)] | None = None
    """The run whose stored measurements answered this one, or which it began with: the two differ
    in the SLA only."""
    reused_seconds: Count | None = None
    """GPUs times seconds that those measurements took then; they cost nothing now."""
    job_name: Name | None = None
    """The benchmark Job."""
    stage: Annotated[str, Field(max_length=64)] | None = None
    """What it is doing; once it has ended, how it ended."""
    message: ShortText | None = None
    """The same, with numbers."""
    start_time: Timestamp | None = None
    """When the run was created."""
    completion_time: Timestamp | None = None
    """When it ended."""
    last_sequence: Count | None = None
    """Number of the last event taken over from the benchmark pod's log."""


class Usage(APIModel):
    """What the run has cost so far."""

    gpu_seconds: Count = 0
    """GPUs times seconds that the benchmark pods held them."""
    engine_seconds: Count = 0
    """Seconds that an engine was starting or serving."""
    engine_starts: Count = 0
    """Starts of an engine."""
    probes: Count = 0
    """Load points measured."""
    trials: Count = 0
    """VLLMTrials of the run."""


class AppliedState(StrEnum):
    """How far an applied recommendation has come."""

    ROLLING_OUT = "RollingOut"
    APPLIED = "Applied"
    RESTORING = "Restoring"
    ROLLED_BACK = "RolledBack"


class Argv(APIModel):
    """A container's command and args as written."""

    command: Words | None = None
    """command; absent if the container has none."""
    args: Words | None = None
    """args; absent if the container has none."""


class Applied(APIModel):
    """The last change of the target: enough to take it back."""

    hash: Hash
    """The recommendation that was applied."""
    state: AppliedState
    """How far it has come."""
    target_uid: Annotated[str, Field(max_length=64)]
    """The Deployment that was changed."""
    container: Name
    """Its container."""
    before: Argv
    """What stood there before."""
    after: Argv
    """What was written."""
    generation: Count | None = None
    """The Deployment's generation after the write."""
    time: Timestamp
    """When it was written."""
    finished_time: Timestamp | None = None
    """When the roll-out, or the return, was complete."""
    message: ShortText | None = None
    """What the roll-out showed."""


class PastRun(APIModel):
    """One finished run."""

    id: Annotated[str, Field(max_length=63)]
    """Its id."""
    ending: Annotated[str, Field(max_length=64)]
    """How it ended."""
    limits: BatchLimits | None = None
    """What it recommended."""
    gain_percent: int | None = None
    """Capacity over the limits of that time."""
    gpu_seconds: Count = 0
    """What it cost."""
    completion_time: Timestamp
    """When it ended."""


class SLAState(StrEnum):
    """Whether the SLA can be met, as far as is measured."""

    MET = "Met"
    UNSATISFIABLE = "Unsatisfiable"
    INCONCLUSIVE = "Inconclusive"


class VLLMTuningStatus(APIModel):
    """A summary, computed from what is observed."""

    answer: ShortText | None = None
    """In a sentence or two: what was found, or what is under way, or what a person has to do. For
    people; it stands first in kubectl describe."""
    observed_generation: Count | None = None
    """metadata.generation that this status speaks about."""
    conditions: Conditions = ()
    """What programs should read. Ready stays True while a run is in progress; wait for
    Succeeded."""
    sla: SLAState | None = None
    """Met: a confirmed setting, or the current one, holds every SLO. Unsatisfiable: none does."""
    effective: Effective | None = None
    """The wish after profile, policies, target and defaults have filled it."""
    target: Target | None = None
    """The target as last observed."""
    run: Run | None = None
    """The current or last benchmark run."""
    usage: Usage | None = None
    """What that run has cost so far."""
    recommendation: Recommendation | None = None
    """What the last finished run found."""
    applied: Applied | None = None
    """The last change of the target."""
    rejected: Annotated[tuple[Hash, ...], Field(max_length=10)] = ()
    """Recommendations whose roll-out failed; they are never applied again."""
    history: Annotated[tuple[PastRun, ...], Field(max_length=10)] = ()
    """Finished runs, newest first."""


__all__ = [
    "Applied",
    "AppliedState",
    "Argv",
    "DecimalString",
    "DecisionNote",
    "Effective",
    "FieldSource",
    "GainRange",
    "ParameterRecommendation",
    "PastRun",
    "Recommendation",
    "Run",
    "SLAState",
    "SourceKind",
    "Target",
    "Usage",
    "VLLMTuningStatus",
    "WindowsOf",
]
