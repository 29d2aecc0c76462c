"""When an unchanged question is measured again, and how soon after the last run.

An *epoch* is part of a run's name: with a new one the question is another, and what was measured
before does not answer it. It follows from what is observed and stored, so that every operator comes
to the same one, and it lasts until the next.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from vllm_tuning.api.retune import DriftReaction, RetunePolicy
from vllm_tuning.api.status import AppliedState
from vllm_tuning.reconcile.draft import Draft
from vllm_tuning.reconcile.names import digest
from vllm_tuning.reconcile.patch import argv_of
from vllm_tuning.reconcile.target import Target


def epoch_of(draft: Draft, policy: RetunePolicy, target: Target) -> str | None:
    """Return the epoch that the question belongs to; ``None`` = the first."""
    run = draft.before.run
    if run is None:
        return None
    if run.completion_time is None:
        return run.epoch
    outdated = outdated_at(draft, policy)
    if outdated is not None and draft.now >= outdated:
        return f"after-{run.completion_time:%Y%m%dT%H%M%S}"
    if policy.on_drift is DriftReaction.MEASURE and _has_drifted(draft, target):
        return f"drift-{args_hash(target)}"
    return run.epoch


def outdated_at(draft: Draft, policy: RetunePolicy) -> datetime | None:
    """Return when the finished run is too old; ``None`` = never."""
    run = draft.before.run
    if policy.after_days is None or run is None or run.completion_time is None:
        return None
    return run.completion_time + timedelta(days=policy.after_days)


def cooled_at(draft: Draft, policy: RetunePolicy) -> datetime | None:
    """Return when the next run may start, if that is not now."""
    if policy.cooldown_seconds is None or not draft.before.history:
        return None
    ready = draft.before.history[0].completion_time + timedelta(seconds=policy.cooldown_seconds)
    return ready if draft.now < ready else None


def args_hash(target: Target) -> str:
    """Hash the container's command and args as written."""
    return digest(argv_of(target.container).to_object())


def _has_drifted(draft: Draft, target: Target) -> bool:
    """Whether somebody wrote other arguments than ours, that no run has begun with either."""
    applied, run = draft.before.applied, draft.before.run
    return (
        applied is not None
        and run is not None
        and applied.state is AppliedState.APPLIED
        and applied.target_uid == target.uid
        and argv_of(target.container) != applied.after
        and args_hash(target) != run.args_hash
    )
