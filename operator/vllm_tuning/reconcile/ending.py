"""The end of a run: its answer, or why there is none, in status, conditions and events."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from vllm_tuning.api.reasons import ConditionType, EventReason, Reason
from vllm_tuning.api.status import DecisionNote, ParameterRecommendation, Recommendation
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.reconcile import convert
from vllm_tuning.reconcile.draft import Draft
from vllm_tuning.reconcile.names import digest
from vllm_tuning.reconcile.patch import argv_of, build_patch, edited, to_json
from vllm_tuning.reconcile.progress import Ended
from vllm_tuning.reconcile.record import RunRecord
from vllm_tuning.reconcile.reuse import Store
from vllm_tuning.reconcile.target import Target
from vllm_tuning.tuning import model
from vllm_tuning.tuning.text import describe

_EVENTS: Final = {
    model.Ending.RECOMMENDED: EventReason.RECOMMENDATION_PROVIDED,
    model.Ending.NO_IMPROVEMENT: EventReason.NO_IMPROVEMENT,
    model.Ending.SLA_UNSATISFIABLE: EventReason.SLA_UNSATISFIABLE,
    model.Ending.INCONCLUSIVE: EventReason.INCONCLUSIVE,
    model.Ending.BUDGET_EXHAUSTED: EventReason.BUDGET_EXHAUSTED,
    model.Ending.ENGINE_FAILED: EventReason.RUN_FAILED,
}
_GOOD: Final = (model.Ending.RECOMMENDED, model.Ending.NO_IMPROVEMENT)
MAX_DIFF: Final = 16_384
MAX_PATCH: Final = 32_768


def record_ended(draft: Draft, record: RunRecord, state: Ended, target: Target) -> None:
    """Write down an answer. The Job is let go in the next pass, when this is stored."""
    found = state.recommendation
    shown = _recommendation(draft, record.run_id, found, target)
    draft.status["recommendation"] = shown
    record.finish(Reason(found.ending), found.message, limits=shown.limits, gain=shown.gain_percent)
    draft.announce(_EVENTS[found.ending], found.message, warning=found.ending not in _GOOD)
    tell_ending(draft, record)
    draft.look_again(0)


def record_judged(draft: Draft, record: RunRecord, store: Store, target: Target) -> None:
    """Write down an answer for which nothing had to be measured."""
    found = store.recommendation
    assert found is not None
    message = f"{found.message} Judged from the stored measurements of run {store.run_id}; no GPU."
    if store.measured_with != target.limits:
        message += f" Compared with {describe(store.measured_with)}, which the target had then."
    draft.announce(
        EventReason.JUDGED_ANEW, f"run {store.run_id} answers the changed SLA without a GPU"
    )
    record_ended(draft, record, Ended(replace(found, message=message), 0.0), target)


def record_failed(draft: Draft, record: RunRecord, reason: Reason, message: str) -> None:
    """Write down that a run failed. Its Job is deleted in the next pass, when this is stored."""
    record.finish(reason, message, limits=None, gain=None)
    draft.announce(EventReason.RUN_FAILED, f"{reason}: {message}", warning=True)
    tell_ending(draft, record)
    draft.look_again(0)


def tell_ending(draft: Draft, record: RunRecord) -> None:
    """Set the conditions of a run that has ended, from the status alone."""
    found: Recommendation | None = draft.status.get("recommendation", draft.before.recommendation)
    if found is not None and found.run_id == record.run_id:
        recommended = found.ending == model.Ending.RECOMMENDED
        draft.conditions.set(
            ConditionType.RECOMMENDATION_PROVIDED, recommended, found.ending, found.message
        )
        draft.rest(Reason.COMPLETE, f"run {record.run_id} has ended: {found.ending}")
        if found.ending == model.Ending.ENGINE_FAILED:
            draft.stall(Reason.ENGINE_FAILED, found.message)
        return
    reason = Reason(record.run.stage or Reason.BENCHMARK_FAILED)
    message = record.run.message or "the run failed"
    draft.conditions.set(ConditionType.RECOMMENDATION_PROVIDED, False, reason, message)
    draft.rest(reason, message)
    draft.stall(reason, message)


def _recommendation(
    draft: Draft, run_id: str, found: model.Recommendation, target: Target
) -> Recommendation:
    limits = convert.limits(found.limits) if found.limits else None
    diff, patch = _change(draft, found, target)
    return Recommendation(
        hash=digest([run_id, found.ending, limits.to_object() if limits else None]),
        run_id=run_id,
        ending=str(found.ending),
        message=found.message[:32_768],
        limits=limits,
        parameters=tuple(
            ParameterRecommendation(
                name=choice.name,
                current=choice.current,
                recommended=choice.recommended,
                lower_bound=choice.lower_bound,
                upper_bound=choice.upper_bound,
                uncapped=choice.uncapped,
            )
            for choice in found.parameters[:16]
        ),
        load=convert.load(found.load) if found.load else None,
        gain_percent=None if found.gain_percent is None else round(found.gain_percent),
        gain_range_percent=convert.gain_range(found),
        replicas=found.replicas,
        margins=convert.margins(found.margins)[:16],
        binding_limit=convert.short(found.binding_limit) or None,
        confirmed=convert.measurement(found.result) if found.result else None,
        baseline=convert.measurement(found.baseline) if found.baseline else None,
        nearest_miss=(
            convert.measurement(found.nearest_miss)
            if found.nearest_miss and found.ending not in _GOOD
            else None
        ),
        decisions=tuple(
            DecisionNote(
                topic=step.topic[:64],
                decision=convert.short(step.decision),
                why=convert.short(step.why),
            )
            for step in found.decisions[:16]
        ),
        diff=diff,
        patch=patch,
        time=draft.now.replace(microsecond=0),
    )


def _change(
    draft: Draft, found: model.Recommendation, target: Target
) -> tuple[str | None, str | None]:
    """Show the change of the args in every mode, ready to use by hand or in Git."""
    deployment = draft.observed.target
    if found.limits is None or deployment is None:
        return None, None
    change = edited(target, found.limits)
    if isinstance(change, Refusal):
        return change.message[:MAX_DIFF], None
    new, diff = change
    operations = build_patch(
        deployment,
        target.container_path,
        target.container["name"],
        old=argv_of(target.container),
        new=new,
        annotations={},
    )
    patch = to_json(operations)
    return diff[:MAX_DIFF], patch if len(patch) <= MAX_PATCH else None
