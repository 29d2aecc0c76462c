"""What a policy's own status says: whom it concerns, who exceeds it, which rules do not hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from vllm_tuning.api.policy import (
    MAX_VIOLATORS,
    Enforcement,
    LiveFleet,
    PolicyViolator,
    VLLMSLAPolicy,
    VLLMSLAPolicySpec,
    VLLMSLAPolicyStatus,
)
from vllm_tuning.api.reasons import ConditionType, Reason
from vllm_tuning.api.spec import VLLMTuningSpec
from vllm_tuning.api.status import SLAState
from vllm_tuning.reconcile.conditions import Conditions, invalid_words
from vllm_tuning.reconcile.policy import Resolved, Subject, concerns, matching, resolve

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tuning:
    """A tuning as a policy sees it."""

    namespace: str
    name: str
    subject: Subject
    spec: VLLMTuningSpec
    sla: SLAState | None
    """As measured; ``None`` = not yet."""
    created: str = ""
    """Creation time as the API server writes it, which sorts."""


def read_policies(bodies: Iterable[Body]) -> tuple[VLLMSLAPolicy, ...]:
    """Read the policies; one that this version does not understand holds for nobody."""
    found = []
    for body in bodies:
        try:
            found.append(VLLMSLAPolicy.from_object(dict(body)))
        except ValidationError:
            continue
    return tuple(found)


def unread_statuses(bodies: Iterable[Body], now: datetime) -> dict[str, VLLMSLAPolicyStatus]:
    """Return the status of every policy that this version does not understand, by name.

    It holds for nobody, which nobody would notice if it were not told.
    """
    found = {}
    for body in bodies:
        try:
            VLLMSLAPolicySpec.from_object(dict(body["spec"]))
        except ValidationError as error:
            found[body["metadata"]["name"]] = _unread(body, invalid_words(error), now)
    return found


def _unread(body: Body, words: str, now: datetime) -> VLLMSLAPolicyStatus:
    try:
        before = VLLMSLAPolicyStatus.from_object(dict(body.get("status") or {}))
    except ValidationError:
        before = VLLMSLAPolicyStatus()
    generation = body["metadata"].get("generation")
    conditions = Conditions(before.conditions, now, generation)
    message = f"{words}; until then the policy holds for nobody"
    for type_ in (ConditionType.READY, ConditionType.ACCEPTED, ConditionType.PROGRAMMED):
        conditions.set(type_, False, Reason.UNSUPPORTED_VERSION, message)
    return VLLMSLAPolicyStatus(observed_generation=generation, conditions=conditions.done())


def read_tunings(
    tunings: Iterable[Body],
    deployments: Mapping[tuple[str, str], Mapping[str, str]],
    namespaces: Mapping[str, Mapping[str, str]],
) -> tuple[Tuning, ...]:
    """Read the tunings with what policies select by: labels of their Deployments and namespaces.

    ``deployments`` maps namespace and name to labels. A tuning that this version does not
    understand is left out: its own condition tells.
    """
    found = []
    for body in tunings:
        metadata = body["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        try:
            spec = VLLMTuningSpec.from_object(dict(body["spec"]))
            sla = (body.get("status") or {}).get("sla")
            state = SLAState(sla) if sla else None
        except (ValidationError, ValueError):
            continue
        labels = deployments.get((namespace, spec.target_ref.name), metadata.get("labels") or {})
        subject = Subject(namespace, namespaces.get(namespace, {}), labels)
        created = str(metadata.get("creationTimestamp", ""))
        found.append(Tuning(namespace, name, subject, spec, state, created))
    return tuple(found)


def policy_statuses(
    policies: Sequence[VLLMSLAPolicy],
    tunings: Sequence[Tuning],
    now: datetime,
    live: Mapping[str, LiveFleet] | None = None,
) -> dict[str, VLLMSLAPolicyStatus]:
    """Return the status of every policy by name; ``live`` = what serves, by policy."""
    resolved = [
        (tuning, resolve(tuning.spec, matching(policies, tuning.subject)))
        for tuning in sorted(tunings, key=lambda tuning: (tuning.namespace, tuning.name))
    ]
    found = live or {}
    return {
        policy.metadata.name: _status(policy, resolved, now, found.get(policy.metadata.name))
        for policy in policies
    }


def _status(
    policy: VLLMSLAPolicy,
    everyone: Sequence[tuple[Tuning, Resolved]],
    now: datetime,
    live: LiveFleet | None,
) -> VLLMSLAPolicyStatus:
    name = policy.metadata.name
    concerned = [(tuning, wish) for tuning, wish in everyone if concerns(policy, tuning.subject)]
    violators, compliant = [], 0
    for tuning, wish in concerned:
        violator = _violation(name, tuning, wish)
        if violator is not None:
            violators.append(violator)
        elif tuning.sla is SLAState.MET:
            compliant += 1
    conditions = Conditions(policy.status.conditions, now, policy.metadata.generation)
    conditions.set(ConditionType.READY, True, Reason.READY, "accepted")
    conditions.set(ConditionType.ACCEPTED, True, Reason.ACCEPTED, "the policy is understood")
    overruled = sorted(
        {str(o) for _, wish in concerned for o in wish.overruled if o.policy == name}
    )
    if overruled:
        conditions.set(
            ConditionType.PROGRAMMED,
            False,
            Reason.OVERRULED,
            f"{'; '.join(overruled)}: make the bounds overlap, or raise the priority",
        )
    else:
        conditions.set(ConditionType.PROGRAMMED, True, Reason.PROGRAMMED, "all its rules hold")
    return VLLMSLAPolicyStatus(
        observed_generation=policy.metadata.generation,
        conditions=conditions.done(),
        matched=len(concerned),
        compliant=compliant,
        violating=len(violators),
        unknown=len(concerned) - compliant - len(violators),
        violators=tuple(violators[:MAX_VIOLATORS]),
        live=live,
    )


def _violation(policy: str, tuning: Tuning, wish: Resolved) -> PolicyViolator | None:
    exceeds = [
        str(deviation)
        for deviation in wish.deviations
        if deviation.policy == policy and deviation.enforcement is not Enforcement.ENFORCE
    ]
    if exceeds:
        reason, message = "Exceeds", "; ".join(exceeds)
    elif tuning.sla is SLAState.UNSATISFIABLE:
        reason, message = "SLAUnsatisfiable", "no setting meets its SLA"
    else:
        return None
    return PolicyViolator(
        namespace=tuning.namespace, name=tuning.name, reason=reason, message=message[:1024]
    )
