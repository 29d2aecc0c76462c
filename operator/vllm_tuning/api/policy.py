"""The kind ``VLLMSLAPolicy``: rules of a platform team for all tunings of a cluster.

*Defaults* fill what a tuning leaves open (the tuning wins); *overrides* bound what it may ask for
(the policy wins, and of several policies the strictest value of each field).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from vllm_tuning.api.base import API_VERSION, APIModel, Name, Rule, ShortText, schema_extra
from vllm_tuning.api.meta import Conditions, ObjectMeta
from vllm_tuning.api.policy_rules import PolicyDefaults, PolicyOverrides
from vllm_tuning.api.selector import LabelSelector, LabelText

MAX_VIOLATORS = 20
MAX_MEMBERS = 50


class AutoCreate(APIModel):
    """For which Deployments a VLLMTuning is made."""

    model_config = ConfigDict(
        json_schema_extra=schema_extra(
            Rule(
                "has(self.selector.matchLabels) || has(self.selector.matchExpressions)",
                "an empty selector would tune every vLLM server of the cluster: write the label "
                'that opts in, e.g. matchLabels: {vllmtuning.io/tune: "true"}',
                field_path=".selector",
            )
        )
    )

    selector: LabelSelector
    """Labels that opt a Deployment in, of those that the policy selects."""


class Enforcement(StrEnum):
    """What becomes of overrides."""

    AUDIT = "Audit"
    WARN = "Warn"
    ENFORCE = "Enforce"


class VLLMSLAPolicySpec(APIModel):
    """Whom the policy concerns, and what it says."""

    model_config = ConfigDict(
        json_schema_extra=schema_extra(
            Rule(
                "has(self.defaults) || has(self.overrides)",
                "the policy says nothing: add defaults (the tuning wins) or overrides (the "
                "policy wins)",
            ),
            Rule(
                "!has(self.autoCreate) || (has(self.defaults) && (has(self.defaults.slos) || "
                "has(self.defaults.profile))) || (has(self.overrides) && "
                "has(self.overrides.slos))",
                "a tuning that is made needs an SLA: add defaults.slos or defaults.profile",
                field_path=".autoCreate",
            ),
        )
    )

    priority: Annotated[int, Field(ge=-1_000_000, le=1_000_000)] = 0
    """Of two policies with a default for the same field the higher one gives it; then the older."""
    namespace_selector: LabelSelector | None = None
    """Namespaces by their labels. Absent: all."""
    excluded_namespaces: Annotated[
        tuple[LabelText, ...] | None,
        Field(max_length=64, json_schema_extra=schema_extra(list_type="set")),
    ] = None
    """Namespaces that it does not concern, whatever the selector says."""
    selector: LabelSelector | None = None
    """Target Deployments by their labels. Absent: all."""
    enforcement: Enforcement = Enforcement.ENFORCE
    """Enforce: overrides change what tunings do. Warn: they are only told on the tuning. Audit:
    only counted here."""
    defaults: PolicyDefaults | None = None
    """What a tuning gets where it says nothing; the tuning wins."""
    overrides: PolicyOverrides | None = None
    """What no tuning may exceed; the policy wins, and of several the strictest."""
    auto_create: AutoCreate | None = None
    """Makes a VLLMTuning in mode Recommend for each opted-in Deployment that runs vLLM and has
    none. What a user made is never touched, and what was made stays when the policy goes."""


class PolicyViolator(APIModel):
    """A tuning that exceeds the policy or misses its SLA."""

    namespace: LabelText
    """Where it is."""
    name: Name
    """The VLLMTuning."""
    reason: Annotated[str, Field(max_length=64)]
    """Exceeds: asks for more than the overrides allow. SLAUnsatisfiable: no setting meets its
    SLA."""
    message: ShortText = ""
    """What, with values."""


class LiveState(StrEnum):
    """Whether the requests of a serving Deployment meet its SLA at the moment."""

    MEETING = "Meeting"
    MISSING = "Missing"
    UNKNOWN = "Unknown"


class LiveDeployment(APIModel):
    """A serving Deployment by its own pods' counters."""

    namespace: LabelText
    """Where it is."""
    name: Name
    """The Deployment."""
    state: LiveState
    """Missing: an SLO is missed. Unknown: the counters can not tell. Meeting: every SLO holds."""
    tuning: Name | None = None
    """Its VLLMTuning; absent: it has none."""
    message: ShortText = ""
    """What is missed, or why it is not known."""


class LiveFleet(APIModel):
    """The Deployments that run vLLM and that the policy selects, tuned or not."""

    deployments: Annotated[int, Field(ge=0)] = 0
    """How many there are."""
    meeting: Annotated[int, Field(ge=0)] = 0
    """Of these: every SLO held in the last minutes."""
    missing: Annotated[int, Field(ge=0)] = 0
    """Of these: an SLO was missed."""
    unknown: Annotated[int, Field(ge=0)] = 0
    """Of these: no traffic, not readable, or the SLA is finer than the engine's histograms."""
    untuned: Annotated[int, Field(ge=0)] = 0
    """Of these: without a VLLMTuning."""
    members: Annotated[tuple[LiveDeployment, ...], Field(max_length=MAX_MEMBERS)] = ()
    """The first of them: missing ones, then unknown ones, then the others."""


class VLLMSLAPolicyStatus(APIModel):
    """What the policy does at the moment."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """metadata.generation that this status speaks about."""
    conditions: Conditions = ()
    """Accepted: it is understood. Programmed: no other policy overrules it."""
    matched: Annotated[int, Field(ge=0)] | None = None
    """Tunings that it concerns."""
    compliant: Annotated[int, Field(ge=0)] | None = None
    """Of these: within the overrides, and a measurement shows that their SLA is met."""
    violating: Annotated[int, Field(ge=0)] | None = None
    """Of these: beyond overrides that are not enforced, or no setting meets their SLA."""
    unknown: Annotated[int, Field(ge=0)] | None = None
    """Of these: not measured yet, or measured without a clear answer."""
    violators: Annotated[tuple[PolicyViolator, ...], Field(max_length=MAX_VIOLATORS)] = ()
    """The first of the violating ones, by namespace and name."""
    live: LiveFleet | None = None
    """Serving Deployments by their own metrics."""


class VLLMSLAPolicy(APIModel):
    """Rules of a platform team for all VLLMTunings of a cluster: defaults and bounds."""

    api_version: Literal["vllmtuning.io/v1alpha1"] = API_VERSION
    kind: Literal["VLLMSLAPolicy"] = "VLLMSLAPolicy"
    metadata: ObjectMeta
    spec: VLLMSLAPolicySpec
    """Whom the policy concerns, and what it says."""
    status: VLLMSLAPolicyStatus = VLLMSLAPolicyStatus()
    """What the policy does at the moment."""
