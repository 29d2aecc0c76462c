"""The first start: an envelope above every candidate, so that all can be measured live."""

from __future__ import annotations

from vllm_tuning.tuning.experiment import Experiment, StartFailedError, Steps
from vllm_tuning.tuning.model import FailureKind, Limits, Purpose, StartFailure
from vllm_tuning.tuning.priors import envelope, with_limits

ENVELOPE_STEPS = 4
"""How often an envelope that does not fit is halved before the current limits are tried."""


def open_envelope(experiment: Experiment) -> Steps[Limits]:
    """Start the envelope, shrunk until it fits; the current limits are the last resort."""
    problem, top = experiment.problem, envelope(experiment.problem)
    current = problem.current
    for _ in range(ENVELOPE_STEPS):
        result = yield from experiment.start(
            top, Purpose.CALIBRATE, hook=True, why="the envelope: every candidate fits below it"
        )
        failure = result.failure
        if failure is None:
            return top
        if failure.kind is not FailureKind.INFEASIBLE and top == _floor(current, top):
            raise StartFailedError(result)
        if failure.kind in {FailureKind.ENVIRONMENT, FailureKind.TIMEOUT}:
            raise StartFailedError(result)
        smaller = _shrink(top, current, failure)
        if smaller == top:
            raise StartFailedError(result)
        top = smaller
    result = yield from experiment.start(
        _floor(current, top),
        Purpose.BASELINE,
        hook=True,
        why="the current limits, as a last resort",
    )
    if result.failure is not None:
        raise StartFailedError(result)
    return _floor(current, top)


def _floor(current: Limits, top: Limits) -> Limits:
    return with_limits(top, seqs=current.max_num_seqs, tokens=current.max_num_batched_tokens)


def _shrink(top: Limits, current: Limits, failure: StartFailure) -> Limits:
    """Use the engine's own number if it offers one, else halve; not below the current limits."""
    if failure.kind is FailureKind.BAD_ARGUMENTS:
        return _floor(current, top)
    seqs, tokens = top.max_num_seqs // 2, top.max_num_batched_tokens // 2
    if failure.hint and failure.hint < top.max_num_seqs and "Mamba" in failure.reason:
        seqs, tokens = failure.hint, top.max_num_batched_tokens
    return with_limits(
        top,
        seqs=max(seqs, current.max_num_seqs),
        tokens=max(tokens, current.max_num_batched_tokens),
    )
