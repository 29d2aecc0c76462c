"""``decide``: the whole behaviour of the operator for one tuning, as one pure function.

::

    accepted?  ── no ──► Accepted=False, nothing else happens
       │
    target resolved? ── no ──► TargetResolved=False; a run in progress is stopped
       │
    learn      what nobody declares of the workload, from the target's own metrics   (``learn``)
       │
    run        create, follow, take over what it measured, give up, try again     (``decide_run``)
       │
    apply      write ahead, patch, follow the roll-out, take back                 (``decide_apply``)
       │
    summary    Ready, Succeeded, Stalled: computed from the conditions above

Conditions are computed from what is observed, never stepped. The status remembers only what no
object can tell any more: the answer of a finished run, and what the target looked like before we
changed it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from vllm_tuning.api.reasons import ConditionType, EventReason, Reason
from vllm_tuning.api.spec import VLLMTuningSpec
from vllm_tuning.api.status import Effective, SLAState
from vllm_tuning.api.status import Target as TargetStatus
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.reconcile import convert
from vllm_tuning.reconcile.answer import answer_of
from vllm_tuning.reconcile.compliance import resolve_observed, tell_compliance
from vllm_tuning.reconcile.conditions import invalid_words
from vllm_tuning.reconcile.decide_apply import STABLE_SECONDS, decide_apply
from vllm_tuning.reconcile.decide_run import decide_run, stop_runs
from vllm_tuning.reconcile.draft import Draft
from vllm_tuning.reconcile.effects import Decision
from vllm_tuning.reconcile.learn import as_before, learn
from vllm_tuning.reconcile.observed import Observed
from vllm_tuning.reconcile.policy import Resolved
from vllm_tuning.reconcile.target import Target, resolve_target
from vllm_tuning.reconcile.traffic import with_trace

TRACE_SECONDS: Final = 15.0
"""ConfigMaps are not watched: one that is missing or wrong is looked for so often."""
_SLA_STATES = {
    Reason.RECOMMENDED: SLAState.MET,
    Reason.NO_IMPROVEMENT: SLAState.MET,
    Reason.SLA_UNSATISFIABLE: SLAState.UNSATISFIABLE,
    Reason.INCONCLUSIVE: SLAState.INCONCLUSIVE,
    Reason.BUDGET_EXHAUSTED: SLAState.INCONCLUSIVE,
    # What was measured, if anything, is not what is asked now.
    Reason.NOT_YET: None,
    Reason.STALE: None,
}
_WAITING = (Reason.WAITING_FOR_APPROVAL, Reason.WAITING_FOR_WINDOW, Reason.TARGET_NOT_STABLE)


def decide(observed: Observed, now: datetime) -> Decision:
    """Decide what follows from what was observed.

    Deciding again after the effects asks for none.
    """
    draft = Draft(observed, now)
    if draft.metadata.get("deletionTimestamp"):
        return Decision(status=draft.before)
    spec = _parse(draft, observed.tuning["spec"])
    wish = _accept(draft, resolve_observed(observed, spec)) if spec is not None else None
    target = _resolve(draft, spec) if spec is not None and wish is not None else None
    if spec is None or wish is None or target is None:
        draft.status["effective"] = as_before(draft, wish) if wish else draft.before.effective
        stop_runs(draft)
    else:
        learnt = learn(draft, spec, wish, target)
        draft.status["effective"] = learnt.wish
        if learnt.stored:
            found = decide_run(draft, spec, learnt.wish, target)
            decide_apply(draft, learnt.wish, target, found)
        else:
            # Written ahead: an operator that dies now would learn something else the next time,
            # and not know the run that it has made.
            draft.progress(Reason.PENDING, "what is known of the traffic is noted; a run follows")
            draft.look_again(now)
    _summarise(draft)
    return draft.finish()


def _accept(draft: Draft, resolved: Resolved) -> Effective | None:
    """Return the wish if it can be worked on."""
    tell_compliance(draft, resolved)
    rival = _older_rival(draft)
    if rival is not None:
        _reject(
            draft,
            Reason.CONFLICTED,
            f"VLLMTuning {rival} has the same target and is older: delete one of the two",
        )
        return None
    if service := draft.observed.selecting_service:
        _reject(
            draft,
            Reason.LABELS_SELECTED,
            f"Service {service} selects the labels in benchmark.labels and would send production "
            "traffic to the benchmark pod: remove or change those labels",
        )
        return None
    if not resolved.effective.slos:
        _reject(
            draft,
            Reason.INVALID,
            "nothing to hold: add slos, e.g. {metric: TTFT, percentile: 95, maxMilliseconds: 800}, "
            "or a profile or VLLMSLAPolicy that brings them",
        )
        return None
    if not resolved.effective.parameters:
        _reject(
            draft,
            Reason.FROZEN_BY_POLICIES,
            f"VLLMSLAPolicy {', '.join(resolved.policies)} leaves no parameter to tune: list one "
            "in parameters that frozenParameters does not name",
        )
        return None
    wish = with_trace(resolved.effective, draft.observed.config_maps)
    if isinstance(wish, Refusal):
        _reject(draft, Reason(wish.reason), wish.message)
        draft.look_again(TRACE_SECONDS)
        return None
    draft.conditions.set(ConditionType.ACCEPTED, True, Reason.ACCEPTED, "the wish is valid")
    return wish


def _parse(draft: Draft, body: dict[str, Any]) -> VLLMTuningSpec | None:
    try:
        return VLLMTuningSpec.model_validate(body)
    except ValidationError as error:
        _reject(draft, Reason.UNSUPPORTED_VERSION, invalid_words(error))
        return None


def _reject(draft: Draft, reason: Reason, message: str) -> None:
    told = draft.conditions.before(ConditionType.ACCEPTED)
    draft.conditions.set(ConditionType.ACCEPTED, False, reason, message)
    if told is None or (told.reason, told.message) != (reason, message):
        draft.announce(EventReason.INVALID_SPEC, f"{reason}: {message}", warning=True)


def _older_rival(draft: Draft) -> str | None:
    """Oldest wins, then the name: every operator comes to the same answer."""
    mine = (datetime.fromisoformat(draft.metadata["creationTimestamp"]), draft.name)
    older = [r for r in draft.observed.rivals if (r.created, r.name) < mine]
    return min(older, key=lambda r: (r.created, r.name)).name if older else None


def _resolve(draft: Draft, spec: VLLMTuningSpec) -> Target | None:
    found = resolve_target(draft.observed, spec)
    if isinstance(found, Refusal):
        draft.conditions.set(ConditionType.TARGET_RESOLVED, False, found.reason, found.message)
        if found.reason == Reason.TARGET_NOT_STABLE:  # its pods are not watched
            draft.look_again(STABLE_SECONDS)
        return None
    draft.status["target"] = TargetStatus(
        uid=found.uid,
        generation=found.generation,
        container=found.container["name"],
        image=convert.short(found.container.get("image", "")),
        image_id=found.image_id or _still(draft, found, "image_id"),
        vllm_version=found.version,
        gpu_product=found.gpu_product or _still(draft, found, "gpu_product"),
        gpu_count=found.gpu_count,
        flag_source=str(found.args.form)[:64],
        limits=convert.limits(found.limits),
        managers=found.managers[:16],
    )
    draft.conditions.set(
        ConditionType.TARGET_RESOLVED,
        True,
        Reason.RESOLVED,
        f"container {found.container['name']}: max_num_seqs={found.limits.max_num_seqs}, "
        f"max_num_batched_tokens={found.limits.max_num_batched_tokens}",
    )
    draft.conditions.set(
        ConditionType.REPRESENTATIVE,
        found.unrepresented is None,
        Reason.NOT_REPRESENTATIVE if found.unrepresented else Reason.REPRESENTATIVE,
        found.unrepresented or "nothing in the target's flags speaks against random tokens",
    )
    return found


def _still(draft: Draft, found: Target, field: str) -> str | None:
    """Keep what is read from the target's pods only now and then, while the target is the same."""
    old = draft.before.target
    same = old is not None and old.uid == found.uid and old.image == found.container.get("image")
    return getattr(old, field) if same else None


def _summarise(draft: Draft) -> None:
    """Compute Ready, Stalled, Succeeded and the SLA's state from the other conditions."""
    conditions = draft.conditions
    blocking = [
        condition
        for type_ in (ConditionType.ACCEPTED, ConditionType.TARGET_RESOLVED)
        if (condition := conditions.get(type_)) is not None and condition.status != "True"
    ]
    if blocking:
        worst = blocking[0]
        conditions.set(ConditionType.READY, False, worst.reason, worst.message)
        waits = worst.reason == Reason.TARGET_NOT_STABLE  # goes on by itself
        if conditions.get(ConditionType.STALLED) is None and not waits:
            draft.stall(Reason(worst.reason), worst.message)
        if conditions.get(ConditionType.PROGRESSING) is None:
            draft.rest(Reason(worst.reason), worst.message)
    else:
        conditions.set(
            ConditionType.READY, True, Reason.READY, "accepted, and the target is resolved"
        )
    if conditions.get(ConditionType.STALLED) is None:
        conditions.set(ConditionType.STALLED, False, Reason.NOT_STALLED, "no person is needed")
    for type_ in (ConditionType.RECOMMENDATION_PROVIDED, ConditionType.APPLIED):
        conditions.keep(type_)
    draft.status["answer"] = convert.short(answer_of(conditions))
    _judge_success(draft)


def _judge_success(draft: Draft) -> None:
    conditions = draft.conditions
    provided = conditions.get(ConditionType.RECOMMENDATION_PROVIDED)
    progressing = conditions.get(ConditionType.PROGRESSING)
    stalled = conditions.get(ConditionType.STALLED)
    applied = conditions.get(ConditionType.APPLIED)
    if provided is not None and provided.reason in _SLA_STATES:
        draft.status["sla"] = _SLA_STATES[Reason(provided.reason)]
    if stalled is not None and stalled.status == "True":
        conditions.set(ConditionType.SUCCEEDED, False, stalled.reason, stalled.message)
    elif progressing is not None and progressing.status == "True":
        conditions.set(ConditionType.SUCCEEDED, None, Reason.IN_PROGRESS, progressing.message)
    elif provided is None or provided.reason in (Reason.NOT_YET, Reason.STALE):
        conditions.set(ConditionType.SUCCEEDED, None, Reason.NOT_YET, "no run has ended yet")
    elif provided.reason == Reason.NO_IMPROVEMENT:
        conditions.set(ConditionType.SUCCEEDED, True, provided.reason, provided.message)
    elif provided.status != "True":
        conditions.set(ConditionType.SUCCEEDED, False, provided.reason, provided.message)
    elif applied is not None and (
        applied.status == "True" or applied.reason == Reason.RECOMMEND_ONLY
    ):
        conditions.set(ConditionType.SUCCEEDED, True, applied.reason, provided.message)
    elif applied is not None:
        waiting = applied.reason in _WAITING
        conditions.set(
            ConditionType.SUCCEEDED, None if waiting else False, applied.reason, applied.message
        )
