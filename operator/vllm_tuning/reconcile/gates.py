"""What may forbid the change of a target, and how long a change may take."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from vllm_tuning.api.reasons import Reason
from vllm_tuning.api.spec import UpdateMode
from vllm_tuning.api.status import Effective, Recommendation
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.reconcile.draft import Draft
from vllm_tuning.reconcile.names import APPROVE_ANNOTATION
from vllm_tuning.reconcile.target import Target
from vllm_tuning.reconcile.windows import closed

LEAST_DEADLINE_SECONDS: Final = 300
START_TIMES: Final = 3
"""A learnt roll-out deadline is so many measured starts per replica."""
DEFAULT_DEADLINE_SECONDS: Final = 1800
"""Where no start was measured."""


def closed_gate(
    draft: Draft, wish: Effective, target: Target, found: Recommendation
) -> Refusal | None:
    """Return the first thing that forbids the change, in the order in which a person would ask."""
    policy = wish.update_policy
    assert policy is not None
    least = policy.minimum_improvement_percent or 0
    gain = found.gain_percent
    owners = ", ".join(target.managers)
    approve = f"{APPROVE_ANNOTATION}={found.hash}"
    approved = draft.annotations.get(APPROVE_ANNOTATION) == found.hash
    shut = closed(wish.windows, draft.now)
    gates = (
        (
            policy.mode is UpdateMode.RECOMMEND,
            Reason.RECOMMEND_ONLY,
            "mode Recommend: apply status.recommendation.patch by hand, or set updatePolicy.mode",
        ),
        (
            found.hash in draft.before.rejected,
            Reason.ROLLED_BACK_BEFORE,
            f"recommendation {found.hash} failed its roll-out before; see status.applied",
        ),
        (
            gain is not None and gain < least,
            Reason.BELOW_MINIMUM_IMPROVEMENT,
            f"a gain of {gain} % is below minimumImprovementPercent {least}",
        ),
        (
            bool(target.managers) and not policy.allow_managed,
            Reason.MANAGED_TARGET,
            (
                f"{owners} writes this Deployment and would undo the change: put "
                "status.recommendation.patch there, or set updatePolicy.allowManaged: true"
            ),
        ),
        (
            policy.mode is UpdateMode.MANUAL and not approved,
            Reason.WAITING_FOR_APPROVAL,
            f"to apply: kubectl annotate vt/{draft.name} {approve} --overwrite",
        ),
        (
            policy.mode is UpdateMode.AUTO and target.unrepresented is not None,
            Reason.NOT_REPRESENTATIVE,
            target.unrepresented or "",
        ),
        (
            shut is not None,
            Reason.WAITING_FOR_WINDOW,
            shut.message if shut else "",
        ),
    )
    refusal = next((Refusal(reason, words) for bars, reason, words in gates if bars), None)
    if refusal and refusal.reason == Reason.WAITING_FOR_WINDOW and shut and shut.opens:
        draft.look_again(shut.opens)
    return refusal


def rollout_deadline_seconds(draft: Draft, wish: Effective) -> int:
    """Return the wished deadline, else one learnt from the slowest start of the benchmark."""
    policy = wish.update_policy
    if policy is not None and policy.rollout_deadline_seconds is not None:
        return policy.rollout_deadline_seconds
    slowest = max(_start_seconds(draft), default=None)
    if slowest is None:
        return DEFAULT_DEADLINE_SECONDS
    replicas: int = max(1, (draft.observed.target or {}).get("spec", {}).get("replicas", 1))
    return max(LEAST_DEADLINE_SECONDS, round(START_TIMES * slowest * replicas))


def _start_seconds(draft: Draft) -> Iterable[float]:
    for trial in draft.observed.trials:
        start = (trial.get("status") or {}).get("start") or {}
        if start.get("seconds"):
            yield float(start["seconds"])
