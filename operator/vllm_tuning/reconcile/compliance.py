"""A tuning under the policies that concern it: its wish, and what it is told about them."""

from __future__ import annotations

from vllm_tuning.api.policy import Enforcement
from vllm_tuning.api.reasons import ConditionType, EventReason, Reason
from vllm_tuning.api.spec import VLLMTuningSpec
from vllm_tuning.reconcile.draft import Draft
from vllm_tuning.reconcile.observed import Observed
from vllm_tuning.reconcile.policy import Resolved, Subject, matching, resolve
from vllm_tuning.reconcile.policy_status import read_policies


def resolve_observed(observed: Observed, spec: VLLMTuningSpec) -> Resolved:
    """Return the wish under the policies that were observed."""
    metadata = observed.tuning["metadata"]
    owner = observed.target["metadata"] if observed.target else metadata
    subject = Subject(
        namespace=metadata["namespace"],
        namespace_labels=observed.namespace_labels,
        labels=owner.get("labels") or {},
    )
    return resolve(spec, matching(read_policies(observed.policies), subject))


def tell_compliance(draft: Draft, resolved: Resolved) -> None:
    """Set ``PolicyCompliant`` where policies concern the tuning; tell a new excess as an event.

    What a policy in Audit finds is told on the policy only.
    """
    if not resolved.policies:
        return
    exceeded = [d for d in resolved.deviations if d.enforcement is Enforcement.WARN]
    narrowed = [d for d in resolved.deviations if d.enforcement is Enforcement.ENFORCE]
    message = "; ".join(str(deviation) for deviation in (*exceeded, *narrowed))
    if exceeded:
        told = draft.conditions.before(ConditionType.POLICY_COMPLIANT)
        if told is None or told.message != message:
            draft.announce(EventReason.POLICY_VIOLATION, message, warning=True)
        draft.conditions.set(
            ConditionType.POLICY_COMPLIANT, False, Reason.EXCEEDS_POLICIES, message
        )
    elif narrowed:
        draft.conditions.set(ConditionType.POLICY_COMPLIANT, True, Reason.NARROWED, message)
    else:
        names = ", ".join(resolved.policies)
        draft.conditions.set(
            ConditionType.POLICY_COMPLIANT,
            True,
            Reason.WITHIN_POLICIES,
            f"within VLLMSLAPolicy {names}",
        )
