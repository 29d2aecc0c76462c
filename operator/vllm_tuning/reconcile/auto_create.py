"""The tunings that policies make: one for each opted-in Deployment that runs vLLM and has none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vllm_tuning.api.policy import VLLMSLAPolicy
from vllm_tuning.api.spec import UpdateMode
from vllm_tuning.reconcile import names
from vllm_tuning.reconcile.fleet import Member
from vllm_tuning.reconcile.observed import Body
from vllm_tuning.reconcile.policy import matching, selects

SECOND_NAME = "auto"
"""Ending of the name where the Deployment's own is taken."""


def tunings_to_create(
    members: Iterable[Member], tunings: Iterable[Body], policies: Sequence[VLLMSLAPolicy]
) -> tuple[tuple[Member, dict[str, Any]], ...]:
    """Return the tunings that are missing, each with the Deployment that it is for.

    Any tuning of the Deployment counts, also one that this version does not understand. What is
    made is owned by its Deployment and goes with it; only its name and labels tell it from a
    user's.
    """
    tuned, taken = set(), set()
    for body in tunings:
        namespace = body["metadata"]["namespace"]
        tuned.add((namespace, body["spec"]["targetRef"]["name"]))
        taken.add((namespace, body["metadata"]["name"]))
    found = []
    for member in members:
        policy = _maker(member, policies)
        if policy is None or member.ref in tuned or _is_going(member.body):
            continue
        namespace, deployment = member.ref
        name = deployment
        if (namespace, name) in taken:
            name = names.join_name(deployment, SECOND_NAME)
        if (namespace, name) not in taken:
            found.append((member, _tuning(member.body, name, policy)))
    return tuple(found)


def _maker(member: Member, policies: Sequence[VLLMSLAPolicy]) -> str | None:
    """Return the policy that makes it: the first in precedence that the Deployment opts in to."""
    for policy in matching(policies, member.subject):
        auto = policy.spec.auto_create
        if auto is not None and selects(auto.selector, member.subject.labels):
            return policy.metadata.name
    return None


def _is_going(body: Body) -> bool:
    return bool(body["metadata"].get("deletionTimestamp"))


def _tuning(deployment: Body, name: str, policy: str) -> dict[str, Any]:
    metadata = deployment["metadata"]
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND_TUNING,
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {
                "app.kubernetes.io/managed-by": "vllm-tuning-operator",
                names.LABEL_POLICY: names.label_value(policy),
            },
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                }
            ],
        },
        "spec": {
            "targetRef": {"name": metadata["name"]},
            "updatePolicy": {"mode": str(UpdateMode.RECOMMEND)},
        },
    }
