"""From the effective wish and the resolved target to the question that the bench answers."""

from __future__ import annotations

from collections.abc import Iterable

from vllm_tuning.api import spec as api
from vllm_tuning.api.status import Effective
from vllm_tuning.api.traffic import LearntLengths
from vllm_tuning.api.values import LoadKind
from vllm_tuning.api.workload import TokenLengths, Workload
from vllm_tuning.reconcile import convert
from vllm_tuning.reconcile.learnt import weighted
from vllm_tuning.reconcile.pod import TRACE_PATH
from vllm_tuning.reconcile.target import Target
from vllm_tuning.tuning import model


def build_problem(effective: Effective, target: Target, *, quick: bool, seed: int) -> model.Problem:
    """State the problem. ``effective`` has every field that ``effective.resolve`` fills."""
    budget, policy = effective.budget, effective.update_policy
    assert budget is not None
    assert policy is not None
    return model.Problem(
        slos=tuple(convert.core_slo(slo) for slo in effective.slos),
        objective=model.Objective(effective.objective or api.ObjectiveName.MAX_RATE),
        workload=_workload(effective),
        current=target.limits,
        space=_space(effective.parameters),
        budget=model.Budget(
            gpu_seconds=float(budget.gpu_seconds or 0),
            deadline_seconds=float(budget.deadline_seconds or 0),
        ),
        gpus=max(1, target.gpu_count),
        minimum_gain_percent=float(policy.minimum_improvement_percent or 0),
        seed=seed,
        quick=quick,
    )


def _workload(effective: Effective) -> model.Workload:
    """The traffic as resolved; the search fits it to the context that the started engine tells."""
    wished = effective.workload or Workload()
    learnt, trace = effective.learnt, effective.trace
    told, lengths = trace or learnt, trace or wished
    per_minute = wished.requests_per_minute
    return model.Workload(
        input_tokens=_lengths(lengths.input_tokens, learnt.input_tokens if learnt else None),
        output_tokens=_lengths(lengths.output_tokens, learnt.output_tokens if learnt else None),
        arrival="Closed" if wished.arrival is LoadKind.CLOSED else "Open",
        concurrency=wished.concurrency,
        rate_per_second=None if per_minute is None else per_minute / 60,
        shared_prefix_percent=wished.shared_prefix_percent or 0,
        trace_path=TRACE_PATH if trace else None,
        trace_sha256=trace.sha256 if trace else None,
        origin=told.message if told else "",
    )


def _lengths(wished: TokenLengths | None, learnt: LearntLengths | None) -> model.Lengths:
    assert wished is not None
    return model.Lengths(
        mean=wished.mean,
        cv_percent=wished.cv_percent or 0,
        maximum=wished.max,
        histogram=weighted(learnt) if learnt is not None else (),
    )


def _space(parameters: Iterable[api.Parameter]) -> model.Space:
    """A parameter that is not listed is left as the target has it."""
    listed = {
        parameter.name: model.Bounds(minimum=parameter.min, maximum=parameter.max)
        for parameter in parameters
    }
    return model.Space(
        max_num_seqs=listed.get(api.ParameterName.MAX_NUM_SEQS),
        max_num_batched_tokens=listed.get(api.ParameterName.MAX_NUM_BATCHED_TOKENS),
        gpu_memory_utilization_percent=listed.get(api.ParameterName.GPU_MEMORY_UTILIZATION),
        enable_chunked_prefill=(
            (True, False) if api.ParameterName.ENABLE_CHUNKED_PREFILL in listed else None
        ),
    )
