"""The kind ``VLLMTrial``: one measured configuration of one run, written by the operator."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from vllm_tuning.api.base import (
    API_VERSION,
    APIModel,
    DecimalString,
    Name,
    Rule,
    ShortText,
    Timestamp,
    schema_extra,
)
from vllm_tuning.api.meta import Conditions, ObjectMeta
from vllm_tuning.api.values import BatchLimits, LoadPoint, MeasuredVerdict, Metrics, SLOOutcome

Answer = Annotated[str, Field(max_length=32768)]
"""The bench's own JSON record. A later attempt of the same run replays it, so that nothing is
measured twice."""


class TuningReference(APIModel):
    """The VLLMTuning that a trial belongs to; in the same namespace."""

    name: Name
    """Its name."""
    uid: Annotated[str, Field(max_length=64)]
    """Its uid: a tuning created anew under the same name has other trials."""


class TrialPurpose(StrEnum):
    """Why a configuration was measured."""

    BASELINE = "Baseline"
    CALIBRATE = "Calibrate"
    SEARCH = "Search"
    CONFIRM = "Confirm"
    VERIFY = "Verify"


class VLLMTrialSpec(APIModel):
    """What was measured, and why."""

    model_config = ConfigDict(
        json_schema_extra=schema_extra(
            Rule("self == oldSelf", "a trial is a record: its spec can not be changed")
        )
    )

    tuning_ref: TuningReference
    """The VLLMTuning it belongs to."""
    run_id: Annotated[str, Field(max_length=63)]
    """The run it belongs to."""
    index: Annotated[int, Field(ge=0)]
    """Place in the order of the run."""
    purpose: TrialPurpose
    """Baseline: the target's own limits. Calibrate: learns the engine's step time. Search: a
    candidate. Confirm: the winner on a fresh start with exactly its flags. Verify: the target
    after the change."""
    limits: BatchLimits
    """The limits in force."""


class TrialStart(APIModel):
    """The start of the engine that this trial ran on."""

    id: Annotated[str, Field(max_length=64)]
    """Name of the start within the run; several trials may share one."""
    seconds: DecimalString | None = None
    """How long it took."""
    live_limits: bool | None = None
    """Whether the limits were set on the running engine (true) or are its launch flags (false)."""
    vllm_version: Annotated[str, Field(max_length=64)] | None = None
    """Version that the engine reports."""
    kv_cache_tokens: Annotated[int, Field(ge=0)] | None = None
    """Tokens that its KV cache holds."""
    non_default_args: ShortText | None = None
    """The engine's own word on its flags, from its log."""
    answer: Answer | None = None
    """The bench's record of the start."""


class TrialFailure(APIModel):
    """Why the engine did not start."""

    kind: Annotated[str, Field(max_length=64)]
    """Infeasible, BadArguments, Environment or Timeout."""
    reason: Annotated[str, Field(max_length=64)]
    """Stable word, e.g. OutOfMemoryAtGraphCapture."""
    message: ShortText
    """What happened and what to do."""
    hint: int | None = None
    """The number that the engine itself offered."""
    log_tail: Annotated[str, Field(max_length=2048)] | None = None
    """End of the engine's log, secrets masked."""


class TrialPoint(APIModel):
    """One load point."""

    id: Annotated[str, Field(max_length=64)]
    """Name of the probe within the run."""
    load: LoadPoint
    """What was offered."""
    verdict: MeasuredVerdict
    """PASS only where a confirmation showed it."""
    reason: Annotated[str, Field(max_length=64)] = ""
    """Stable word behind the verdict."""
    message: ShortText = ""
    """The verdict with its numbers."""
    metrics: Metrics | None = None
    """What was measured."""
    slos: Annotated[tuple[SLOOutcome, ...], Field(max_length=16)] = ()
    """Each SLO's part in the verdict."""
    bottleneck: Annotated[str, Field(max_length=64)] | None = None
    """What bound this point."""
    bottleneck_evidence: ShortText | None = None
    """The numbers behind that."""
    measured_seconds: DecimalString | None = None
    """Length of the measured windows."""
    answer: Answer | None = None
    """The bench's record of the probe."""


class TrialOutcome(StrEnum):
    """How a trial ended."""

    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    SLO_VIOLATED = "SLOViolated"
    INFEASIBLE = "Infeasible"
    FAILED = "Failed"
    INCONCLUSIVE = "Inconclusive"
    PREEMPTED = "Preempted"


class VLLMTrialStatus(APIModel):
    """What was found."""

    conditions: Conditions = ()
    """Ready: True once the trial has ended."""
    outcome: TrialOutcome | None = None
    """Succeeded: some load was carried within the SLA. SLOViolated: none was. Infeasible: the
    engine can not run with these limits. Failed: the environment's fault. Inconclusive: not
    enough evidence. Preempted: the pod was lost."""
    message: ShortText = ""
    """The outcome in a sentence."""
    best_load: LoadPoint | None = None
    """Largest load within the SLA."""
    start: TrialStart | None = None
    """The start of the engine."""
    failure: TrialFailure | None = None
    """Why the engine did not start."""
    points: Annotated[
        tuple[TrialPoint, ...],
        Field(max_length=64, json_schema_extra=schema_extra(list_type="map", list_map_keys=["id"])),
    ] = ()
    """The load points, in order."""
    job_name: Name | None = None
    """The benchmark Job."""
    node_name: Name | None = None
    """The node it ran on."""
    gpu_product: Annotated[str, Field(max_length=128)] | None = None
    """The node's word for its GPU."""
    engine_seconds: DecimalString | None = None
    """Seconds of engine time that went into this trial."""
    start_time: Timestamp | None = None
    """When it began."""
    completion_time: Timestamp | None = None
    """When it ended."""


class VLLMTrial(APIModel):
    """One measured configuration of a run. Written by the operator: to be read, not edited."""

    api_version: Literal["vllmtuning.io/v1alpha1"] = API_VERSION
    kind: Literal["VLLMTrial"] = "VLLMTrial"
    metadata: ObjectMeta
    spec: VLLMTrialSpec
    """What was measured, and why."""
    status: VLLMTrialStatus = VLLMTrialStatus()
    """What was found."""
