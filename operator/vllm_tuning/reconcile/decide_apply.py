"""Applying a recommendation, step by step, each step safe to be cut off.

::

    gates       mode, approval, owner, gain, stability: all in one place, each with its words
    write ahead status.applied = RollingOut, with the old and the new argv            (nothing
    changed yet) patch       old → new and annotation ``applied``, in one guarded patch
    (the annotation proves it) follow      until the new pods serve and their start log shows the
    new flags  ──► Applied
                or they do not, or the deadline passes                            ──► Restoring
    restore     new → old in one guarded patch, followed the same way             ──► RolledBack,
    never again

Whoever changes the argv in between wins: we compare with what we wrote, and stop.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from vllm_tuning.api.reasons import ConditionType, EventReason, Reason
from vllm_tuning.api.status import (
    Applied,
    AppliedState,
    Argv,
    Effective,
    Recommendation,
    VLLMTuningStatus,
)
from vllm_tuning.api.values import BatchLimits
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.reconcile import convert
from vllm_tuning.reconcile.draft import Draft
from vllm_tuning.reconcile.effects import About, PatchTarget
from vllm_tuning.reconcile.gates import closed_gate, rollout_deadline_seconds
from vllm_tuning.reconcile.patch import (
    applied_annotations,
    applied_hash,
    argv_of,
    build_patch,
    edited,
)
from vllm_tuning.reconcile.rollout import (
    RolledOut,
    RollingOut,
    RolloutFailed,
    is_stable,
    judge_rollout,
)
from vllm_tuning.reconcile.target import Target
from vllm_tuning.tuning.flags import flag_changes
from vllm_tuning.tuning.model import Ending

FOLLOW_SECONDS: Final = 5.0
"""A roll-out is looked at so often: the target's pods are not watched."""
STABLE_SECONDS: Final = 15.0
_SILENT: Final = (Reason.RECOMMEND_ONLY, Reason.TARGET_NOT_STABLE, Reason.WAITING_FOR_WINDOW)
"""Conditions that say enough: nothing went wrong."""
RESTORED: Final = "restored"
"""Prefix of the annotation's value after a restore."""


def decide_apply(draft: Draft, wish: Effective, target: Target, status: VLLMTuningStatus) -> None:
    """Take the application of the current recommendation one step on."""
    applied, found = status.applied, status.recommendation
    if applied is not None and applied.target_uid != target.uid:
        applied = draft.status["applied"] = None  # the Deployment was made anew
    if applied is not None and applied.state is AppliedState.ROLLING_OUT:
        _roll_out(draft, wish, target, applied)
    elif applied is not None and applied.state is AppliedState.RESTORING:
        _restore(draft, target, applied)
    elif found is None or found.run_id != (status.run.id if status.run else None):
        _show(draft, target, applied, "no recommendation to apply")
    elif found.limits is None or found.ending != Ending.RECOMMENDED:
        _show(draft, target, applied, f"{found.ending}: nothing to apply")
    elif applied is not None and applied.hash == found.hash:
        _show(draft, target, applied, found.message)
    else:
        _consider(draft, wish, target, found, found.limits)


def _consider(
    draft: Draft, wish: Effective, target: Target, found: Recommendation, limits: BatchLimits
) -> None:
    """A recommendation that is not applied: pass the gates, then write ahead."""
    change = edited(target, convert.core_limits(limits))
    if not isinstance(change, Refusal) and change[0] == argv_of(target.container):
        message = "the target has the recommended limits already"
        draft.conditions.set(ConditionType.APPLIED, True, Reason.ROLLED_OUT, message)
        return
    closed = closed_gate(draft, wish, target, found) or (
        change if isinstance(change, Refusal) else None
    )
    if closed is None and (unstable := is_stable(draft.observed.target or {})):
        closed = Refusal(Reason.TARGET_NOT_STABLE, f"waiting: {unstable}")
        draft.look_again(STABLE_SECONDS)
    if closed is not None:
        _refuse(draft, closed)
        return
    assert not isinstance(change, Refusal)
    draft.status["applied"] = Applied(
        hash=found.hash,
        state=AppliedState.ROLLING_OUT,
        target_uid=target.uid,
        container=target.container["name"],
        before=argv_of(target.container),
        after=change[0],
        time=draft.now.replace(microsecond=0),
    )
    message = f"about to write {_words(limits)}"
    draft.conditions.set(ConditionType.APPLIED, False, Reason.ROLLING_OUT, message)
    draft.progress(Reason.ROLLING_OUT, message)
    draft.look_again(0)


def _refuse(draft: Draft, closed: Refusal) -> None:
    told = draft.conditions.before(ConditionType.APPLIED)
    draft.conditions.set(ConditionType.APPLIED, False, closed.reason, closed.message)
    if told is not None and told.reason == closed.reason:
        return
    if closed.reason == Reason.WAITING_FOR_APPROVAL:
        draft.announce(EventReason.APPROVAL_REQUIRED, closed.message)
    elif closed.reason not in _SILENT:
        draft.announce(
            EventReason.APPLY_REFUSED, f"{closed.reason}: {closed.message}", warning=True
        )


def _roll_out(draft: Draft, wish: Effective, target: Target, applied: Applied) -> None:
    """Patch if that is not done yet, then follow the roll-out."""
    deployment = draft.observed.target
    assert deployment is not None
    argv = argv_of(target.container)
    written = applied_hash(deployment) == applied.hash
    draft.look_again(FOLLOW_SECONDS)
    if argv == applied.after and written:
        _judge(draft, wish, target, applied)
    elif argv == applied.before and not written:
        _write(draft, target, applied, old=applied.before, new=applied.after, mark=applied.hash)
        message = f"writing recommendation {applied.hash}"
        draft.conditions.set(ConditionType.APPLIED, False, Reason.ROLLING_OUT, message)
        draft.progress(Reason.ROLLING_OUT, message)
        draft.announce(EventReason.APPLYING, _announced(draft, applied), about=About.TARGET)
        draft.announce(EventReason.APPLYING, _announced(draft, applied))
    elif written:
        _drifted(draft, applied)
    else:
        draft.status["applied"] = None
        draft.conditions.set(
            ConditionType.APPLIED,
            False,
            Reason.TARGET_CHANGED,
            "somebody changed the arguments before ours were written; looking again",
        )


def _judge(draft: Draft, wish: Effective, target: Target, applied: Applied) -> None:
    observed = draft.observed
    assert observed.target is not None
    limits = draft.before.recommendation.limits if draft.before.recommendation else None
    same = draft.before.recommendation is not None and (
        draft.before.recommendation.hash == applied.hash
    )
    state = judge_rollout(
        observed.target,
        observed.target_replica_sets,
        observed.target_pods,
        observed.target_logs,
        container=applied.container,
        expected=flag_changes(convert.core_limits(limits)) if limits and same else {},
    )
    deadline = applied.time + timedelta(seconds=rollout_deadline_seconds(draft, wish))
    if isinstance(state, RollingOut) and draft.now >= deadline:
        state = RolloutFailed(
            f"not rolled out within {rollout_deadline_seconds(draft, wish)} s: {state.message}"
        )
    applied = applied.model_copy(update={"generation": target.generation})
    match state:
        case RollingOut(message=message):
            draft.status["applied"] = applied
            draft.conditions.set(ConditionType.APPLIED, False, Reason.ROLLING_OUT, message)
            draft.progress(Reason.ROLLING_OUT, message)
            draft.look_again(deadline)
        case RolledOut(message=message):
            _finish(draft, applied, AppliedState.APPLIED, message)
            draft.conditions.set(ConditionType.APPLIED, True, Reason.ROLLED_OUT, message)
            draft.announce(EventReason.APPLIED, message)
            draft.announce(EventReason.APPLIED, message, about=About.TARGET)
        case RolloutFailed(message=message):
            draft.status["applied"] = applied.model_copy(
                update={
                    "state": AppliedState.RESTORING,
                    "message": convert.short(message),
                }
            )
            draft.status["rejected"] = (applied.hash, *draft.before.rejected)[:10]
            draft.conditions.set(ConditionType.APPLIED, False, Reason.RESTORING, message)
            draft.progress(Reason.RESTORING, message)
            draft.announce(EventReason.ROLLOUT_FAILED, message, warning=True)
            draft.announce(EventReason.ROLLOUT_FAILED, message, warning=True, about=About.TARGET)
            draft.look_again(0)


def _restore(draft: Draft, target: Target, applied: Applied) -> None:
    """Put the old argv back if ours still stands there, then follow."""
    deployment = draft.observed.target
    assert deployment is not None
    why = applied.message or "the roll-out failed"
    argv = argv_of(target.container)
    draft.look_again(FOLLOW_SECONDS)
    if argv == applied.after and applied_hash(deployment) == applied.hash:
        _write(
            draft,
            target,
            applied,
            old=applied.after,
            new=applied.before,
            mark=f"{RESTORED}-{applied.hash}",
        )
        draft.conditions.set(ConditionType.APPLIED, False, Reason.RESTORING, why)
        draft.progress(Reason.RESTORING, f"putting the old arguments back: {why}")
        return
    if argv != applied.before:
        _drifted(draft, applied)
        return
    observed = draft.observed
    state = judge_rollout(
        deployment,
        observed.target_replica_sets,
        observed.target_pods,
        observed.target_logs,
        container=applied.container,
        expected={},
    )
    match state:
        case RollingOut(message=message):
            draft.conditions.set(ConditionType.APPLIED, False, Reason.RESTORING, why)
            draft.progress(Reason.RESTORING, f"the old arguments are coming back: {message}")
        case RolledOut():
            message = f"{why}; the target serves with its old arguments again"
            _finish(draft, applied, AppliedState.ROLLED_BACK, message)
            draft.conditions.set(ConditionType.APPLIED, False, Reason.ROLLED_BACK, message)
            draft.announce(EventReason.ROLLED_BACK, message, warning=True)
            draft.announce(EventReason.ROLLED_BACK, message, warning=True, about=About.TARGET)
        case RolloutFailed(message=again):
            message = f"{why}; the old arguments are back, but the target does not serve: {again}"
            _finish(draft, applied, AppliedState.ROLLED_BACK, message)
            draft.conditions.set(ConditionType.APPLIED, False, Reason.ROLLED_BACK, message)
            draft.announce(EventReason.ROLLED_BACK, message, warning=True)
            draft.stall(Reason.ROLLED_BACK, message)


def _show(draft: Draft, target: Target, applied: Applied | None, otherwise: str) -> None:
    """Nothing to do: tell what was applied last, if anything, and whether it still stands."""
    if applied is None:
        draft.conditions.set(ConditionType.APPLIED, False, Reason.NOT_APPLIED, otherwise)
    elif applied.state is AppliedState.ROLLED_BACK:
        draft.conditions.set(
            ConditionType.APPLIED, False, Reason.ROLLED_BACK, applied.message or "rolled back"
        )
    elif argv_of(target.container) == applied.after:
        draft.conditions.set(
            ConditionType.APPLIED, True, Reason.ROLLED_OUT, applied.message or "applied"
        )
    else:
        _drifted(draft, applied)


def _drifted(draft: Draft, applied: Applied) -> None:
    message = (
        "somebody changed the arguments after they were applied; they are left alone: annotate "
        "vllmtuning.io/rerun to measure the target as it is now"
    )
    told = draft.conditions.before(ConditionType.APPLIED)
    if told is None or told.reason != Reason.DRIFTED:
        draft.announce(EventReason.DRIFT_DETECTED, message, warning=True)
    if applied.state in (AppliedState.ROLLING_OUT, AppliedState.RESTORING):
        _finish(draft, applied, AppliedState.APPLIED, message)
    draft.conditions.set(ConditionType.APPLIED, False, Reason.DRIFTED, message)


def _write(
    draft: Draft, target: Target, applied: Applied, *, old: Argv, new: Argv, mark: str
) -> None:
    assert draft.observed.target is not None
    operations = build_patch(
        draft.observed.target,
        target.container_path,
        applied.container,
        old=old,
        new=new,
        annotations=applied_annotations(mark, draft.name),
        version=draft.observed.target["metadata"]["resourceVersion"],
    )
    refused = draft.observed.refused
    if refused is not None and refused.effect == PatchTarget.__name__:
        draft.stall(Reason.NOT_APPLIED, f"the API server refuses the patch: {refused.message}")
    draft.act(PatchTarget(draft.namespace, target.name, operations))


def _finish(draft: Draft, applied: Applied, state: AppliedState, message: str) -> None:
    draft.status["applied"] = applied.model_copy(
        update={
            "state": state,
            "message": convert.short(message),
            "finished_time": draft.now.replace(microsecond=0),
        }
    )


def _words(limits: BatchLimits) -> str:
    return ", ".join(f"{k}={v}" for k, v in flag_changes(convert.core_limits(limits)).items())


def _announced(draft: Draft, applied: Applied) -> str:
    found = draft.before.recommendation
    limits = _words(found.limits) if found and found.limits else "recommended limits"
    return f"VLLMTuning {draft.name} writes {limits} (recommendation {applied.hash})"
