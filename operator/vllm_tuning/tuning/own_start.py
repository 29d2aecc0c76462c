"""The current limits on a start of their own, where live limits would flatter them.

A start with a small ``max_num_seqs`` has few CUDA graphs. The envelope has more, and live limits do
not take them away: on an H200, 128 / 512 set live ran its steps in half the time of a start with
these limits (``benchmarks/results/h200-live``). So what such limits carry is asked of their own
start, without the hook, as the target runs them.
"""

from __future__ import annotations

from vllm_tuning.tuning.experiment import Experiment, OutOfBudgetError, Steps
from vllm_tuning.tuning.fixed_load import Contest
from vllm_tuning.tuning.max_rate import baseline
from vllm_tuning.tuning.model import Purpose
from vllm_tuning.tuning.race import Race
from vllm_tuning.tuning.standing import Frontier
from vllm_tuning.tuning.text import describe

WHY = "the current limits as they start: they have fewer CUDA graphs than live limits show"

FLATTERED = (
    "The current limits were measured live only, with CUDA graphs that their own start lacks: they "
    "may carry less than that, and the gain may be larger."
)

SCORES = 2
"""Probes of a given load: their spread tells the range of the gain."""


def bracket_current(race: Race) -> Steps[bool]:
    """Find anew what the current limits carry, on their own start; ``False`` = it did not run."""
    experiment, current = race.experiment, race.experiment.problem.current
    if not (yield from _start(experiment)):
        return False
    live, race.frontiers[current] = race.frontier(current), Frontier()
    try:
        yield from baseline(race)
    except OutOfBudgetError:
        if race.frontier(current).low is None:
            race.frontiers[current] = live
            experiment.notes.append(FLATTERED)
    return True


def score_current(contest: Contest) -> Steps[None]:
    """Score the current limits anew at the load that is given, on their own start."""
    experiment, current = contest.experiment, contest.experiment.problem.current
    if current not in contest.results or not (yield from _start(experiment)):
        return
    live = contest.results.pop(current)
    try:
        for repeat in range(SCORES):
            yield from contest.enter(current, WHY, purpose=Purpose.BASELINE, repeat=repeat)
    except OutOfBudgetError:
        if current not in contest.results:
            contest.results[current] = live
            experiment.notes.append(FLATTERED)


def _start(experiment: Experiment) -> Steps[bool]:
    """Start the current limits, if there is as much time again to measure them.

    The time of a confirmation is kept.
    """
    current = experiment.problem.current
    if experiment.left_seconds - experiment.reserve_seconds < 2.0 * experiment.start_seconds:
        experiment.notes.append(FLATTERED)
        return False
    result = yield from experiment.start(current, Purpose.BASELINE, hook=False, why=WHY)
    if result.failure is not None:
        told = f"{describe(current)}, the current limits, did not start: {result.failure.message}"
        experiment.notes.append(f"{told}. {FLATTERED}")
    return result.failure is None
