"""Answers without a GPU: what the trials of earlier runs say to the question at hand.

Runs of one measurement differ in the SLA that they were judged by. Before anything is measured, the
search runs on their stored answers (``tuning.reuse``): it ends, or it says what is missing, and the
new run begins with what held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from vllm_tuning.api.trial import TrialPurpose
from vllm_tuning.api.values import BatchLimits
from vllm_tuning.reconcile import convert, names
from vllm_tuning.reconcile.draft import Draft
from vllm_tuning.reconcile.observed import Body
from vllm_tuning.reconcile.question import Question, problem_of
from vllm_tuning.reconcile.records import Record, answers, stored_records
from vllm_tuning.tuning.model import Done, Limits, Problem, Recommendation
from vllm_tuning.tuning.reuse import Reused, describe_question, reuse


@dataclass(frozen=True, slots=True)
class Store:
    """What the stored answers of one earlier run lead to."""

    run_id: str
    stored: int
    """Answers that it has."""
    found: Reused
    measured_with: Limits
    """The target's limits at that time."""
    own_seconds: float
    """What the run's own answers took."""

    @property
    def seconds(self) -> float:
        """Wall seconds that the other run's answers took, those that are used."""
        return max(0.0, self.found.seconds - self.own_seconds)

    @property
    def recommendation(self) -> Recommendation | None:
        """The answer, if nothing has to be measured for it."""
        return self.found.recommendation


def consult(draft: Draft, question: Question, own: Iterable[Record] = ()) -> Store | None:
    """Return what leads furthest; ``None`` = nothing of this measurement is stored.

    ``own`` are the answers of the run itself, which go on where another run's end.
    """
    problem, own_answers = problem_of(draft, question), answers(own)
    own_seconds = sum(answer.seconds for answer in own_answers)
    best: Store | None = None
    for run_id, trials in _runs(draft.observed.trials, question.measurement).items():
        if own_answers and run_id == question.run_id:
            continue
        stored = answers(stored_records(trials, run_id))
        for current in _limits_then(problem, trials):
            # Its own first: it goes on by the answers that it went by.
            found = reuse(replace(problem, current=current), (*own_answers, *stored))
            if current != problem.current and found.recommendation is None:
                continue  # a run that goes on measures the target as it is now
            store = Store(run_id, len(stored), found, current, own_seconds)
            if best is None or _reach(store) > _reach(best):
                best = store
    return best


def tell_missing(store: Store) -> str:
    """Say what holds for the changed SLA, and what has to be measured first."""
    question = store.found.question
    missing = "nothing" if isinstance(question, Done) else describe_question(question)
    return (
        f"{len(store.found.answers)} of {store.stored} stored measurements of run {store.run_id} "
        f"answer the changed SLA as well; first to be measured: {missing}"
    )


def _runs(trials: Iterable[Body], measurement: str) -> dict[str, list[Body]]:
    found: dict[str, list[Body]] = {}
    for trial in trials:
        labels = trial["metadata"].get("labels") or {}
        if labels.get(names.LABEL_MEASUREMENT) == measurement:
            found.setdefault(trial["spec"]["runID"], []).append(trial)
    return found


def _limits_then(problem: Problem, trials: Iterable[Body]) -> Iterator[Limits]:
    """Yield the limits that the target may have had: those of now, and those of the baseline.

    A recommendation that was applied since makes them differ.
    """
    yield problem.current
    for trial in trials:
        if trial["spec"]["purpose"] == TrialPurpose.BASELINE:
            limits = convert.core_limits(BatchLimits.from_object(dict(trial["spec"]["limits"])))
            if limits != problem.current:
                yield limits
                return


def _reach(store: Store) -> tuple[bool, int]:
    return store.recommendation is not None, len(store.found.answers)
