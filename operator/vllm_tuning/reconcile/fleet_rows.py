"""The fleet as rows for people: every serving Deployment, tuned or not, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from vllm_tuning.api.policy import LiveDeployment, VLLMSLAPolicy
from vllm_tuning.api.reasons import ConditionType
from vllm_tuning.api.status import VLLMTuningStatus
from vllm_tuning.reconcile.bounds import describe
from vllm_tuning.reconcile.fleet import Ref, endpoint_of, ref_of, subject_of
from vllm_tuning.reconcile.observed import Body
from vllm_tuning.reconcile.policy import matching
from vllm_tuning.reconcile.policy_status import read_policies


@dataclass(frozen=True, slots=True)
class FleetRow:
    """One Deployment that runs vLLM. ``None`` = nobody has said."""

    namespace: str
    deployment: str
    tuning: str | None = None
    mode: str | None = None
    stage: str | None = None
    """Reason of the condition Progressing."""
    slos: tuple[str, ...] = ()
    sla: str | None = None
    """By the last run: Met, Unsatisfiable or Inconclusive."""
    live: str | None = None
    """By its own metrics now: Meeting, Missing or Unknown."""
    why: str = ""
    """What is missed, or why it is not known."""
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    recommended_max_num_seqs: int | None = None
    recommended_max_num_batched_tokens: int | None = None
    gain_percent: int | None = None
    applied: str | None = None
    """Reason of the condition Applied."""
    policies: tuple[str, ...] = ()


def fleet_rows(
    deployments: Iterable[Body],
    tunings: Iterable[Body],
    policies: Iterable[Body],
    namespaces: Mapping[str, Mapping[str, str]],
) -> tuple[FleetRow, ...]:
    """Return a row for each Deployment that runs vLLM, by namespace and name."""
    read = read_policies(policies)
    live = _live(read)
    wishes: dict[Ref, Body] = {}
    for body in sorted(tunings, key=_age, reverse=True):  # the oldest one wins
        ref = body["metadata"]["namespace"], body["spec"]["targetRef"]["name"]
        wishes[ref] = body
    rows = []
    for body in deployments:
        if endpoint_of(body["spec"]["template"]["spec"]) is None:
            continue
        ref = ref_of(body)
        told = live.get(ref)
        rows.append(
            FleetRow(
                *ref,
                **_of_tuning(wishes.get(ref)),
                live=str(told.state) if told else None,
                why=told.message if told else "",
                policies=tuple(
                    p.metadata.name for p in matching(read, subject_of(body, namespaces))
                ),
            )
        )
    return tuple(sorted(rows, key=lambda row: (row.namespace, row.deployment)))


def _age(body: Body) -> tuple[str, str]:
    metadata = body["metadata"]
    return str(metadata.get("creationTimestamp", "")), metadata["name"]


def _live(policies: Iterable[VLLMSLAPolicy]) -> dict[Ref, LiveDeployment]:
    return {
        (member.namespace, member.name): member
        for policy in policies
        if policy.status.live
        for member in policy.status.live.members
    }


def _of_tuning(body: Body | None) -> dict[str, Any]:
    if body is None:
        return {}
    name = body["metadata"]["name"]
    try:
        status = VLLMTuningStatus.from_object(dict(body.get("status") or {}))
    except ValidationError:
        return {"tuning": name}  # stored by another version
    reasons = {condition.type: condition.reason for condition in status.conditions}
    wish, found = status.effective, status.recommendation
    policy = wish.update_policy if wish else None
    now, then = status.target and status.target.limits, found and found.limits
    return {
        "tuning": name,
        "mode": policy and policy.mode and str(policy.mode),
        "stage": reasons.get(ConditionType.PROGRESSING),
        "slos": tuple(describe(slo) for slo in wish.slos) if wish else (),
        "sla": status.sla and str(status.sla),
        "max_num_seqs": now and now.max_num_seqs,
        "max_num_batched_tokens": now and now.max_num_batched_tokens,
        "recommended_max_num_seqs": then and then.max_num_seqs,
        "recommended_max_num_batched_tokens": then and then.max_num_batched_tokens,
        "gain_percent": found and found.gain_percent,
        "applied": reasons.get(ConditionType.APPLIED),
    }
