"""The question of a run, and what asks it: the run's spec and the Job that carries it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from vllm_tuning.api.benchmark import Benchmark, BenchmarkJob
from vllm_tuning.api.retune import RetunePolicy
from vllm_tuning.api.spec import VLLMTuningSpec
from vllm_tuning.api.status import Effective
from vllm_tuning.api.status import Target as TargetStatus
from vllm_tuning.reconcile import names
from vllm_tuning.reconcile.draft import Draft
from vllm_tuning.reconcile.fingerprint import fingerprint, judgement, measurement_id, run_id
from vllm_tuning.reconcile.job import Deadlines, build_job
from vllm_tuning.reconcile.patch import without_tuned_flags
from vllm_tuning.reconcile.pod import Copied
from vllm_tuning.reconcile.problem import build_problem
from vllm_tuning.reconcile.progress import Patience
from vllm_tuning.reconcile.retune import epoch_of
from vllm_tuning.reconcile.target import Target
from vllm_tuning.tuning.model import Answer, Problem
from vllm_tuning.tuning.run import RunSpec


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be measured."""

    run_id: str
    measurement: str
    """Runs with the same one may answer for each other."""
    fingerprint: str
    epoch: str | None
    spec: VLLMTuningSpec
    wish: Effective
    target: Target


def pose(draft: Draft, spec: VLLMTuningSpec, wish: Effective, target: Target) -> Question:
    """Pose the question that spec, effective wish and target make together."""
    measured = fingerprint(
        target.pod_spec,
        without_tuned_flags(target),
        wish,
        benchmark=_measured_of(spec.benchmark),
        quick=is_quick(draft),
    )
    epoch = epoch_of(draft, retune_policy_of(wish), target)
    measurement = measurement_id(measured, draft.annotations.get(names.ANNOTATION_RERUN), epoch)
    id_ = run_id(draft.metadata["uid"], measurement, judgement(wish))
    return Question(id_, measurement, measured, epoch, spec, wish, target)


def retune_policy_of(wish: Effective) -> RetunePolicy:
    """Return when the target is measured again; an absent policy is an empty one."""
    return wish.retune_policy or RetunePolicy()


def _measured_of(benchmark: Benchmark | None) -> dict[str, Any] | None:
    """Return what of the benchmark settings a result depends on: not where its Job waited."""
    if benchmark is None:
        return None
    return benchmark.model_copy(update={"queue_name": None}).to_object()


def is_quick(draft: Draft) -> bool:
    """Whether measurements are short, for tiny engines."""
    wished = draft.annotations.get(names.ANNOTATION_QUICK) == "true"
    return wished or draft.observed.settings.quick


def problem_of(draft: Draft, question: Question) -> Problem:
    """State the question in the core's words.

    The arrivals follow from the measurement, so that another SLA meets the same ones.
    """
    seed = int(question.measurement[:8], 16) % 2**31
    return build_problem(question.wish, question.target, quick=is_quick(draft), seed=seed)


def build_run_spec(
    question: Question, problem: Problem, previous: Sequence[Answer], attempt: int
) -> RunSpec:
    """Build what the bench of an attempt is told; ``previous`` are the answers so far."""
    budget = question.wish.budget
    assert budget is not None
    return RunSpec(
        run_id=question.run_id,
        attempt=attempt,
        problem=problem,
        start_timeout_seconds=float(budget.startup_deadline_seconds or 0),
        previous=tuple(previous),
    )


def build_run_job(draft: Draft, question: Question, run: RunSpec) -> dict[str, Any]:
    """Build the Job of an attempt, from the target as it is now."""
    target, budget = question.target, question.wish.budget
    assert budget is not None
    known: TargetStatus = draft.status["target"]
    job, settings = question.wish.benchmark or BenchmarkJob(), draft.observed.settings
    if job.priority_class_name is not None:
        settings = replace(settings, priority_class=job.priority_class_name)
    return build_job(
        draft.metadata,
        run,
        Copied(
            pod_spec=target.pod_spec,
            container=target.container,
            entrypoint=target.entrypoint,
            pinned_image=known.image_id,
            gpu_product=known.gpu_product,
            node=target.shared_node,
            trace=question.wish.workload.trace_ref if question.wish.workload else None,
        ),
        Deadlines(
            schedule=budget.schedule_deadline_seconds or 0,
            startup=budget.startup_deadline_seconds or 0,
            run=budget.deadline_seconds or 0,
        ),
        settings,
        fingerprint=question.fingerprint,
        extra_labels=question.spec.benchmark.labels if question.spec.benchmark else None,
        queue=job.queue_name,
    )


def patience_of(wish: Effective) -> Patience:
    """Return how long an attempt may wait."""
    assert wish.budget is not None
    return Patience(
        schedule=wish.budget.schedule_deadline_seconds or 0,
        startup=wish.budget.startup_deadline_seconds or 0,
    )
