"""The confirmation: a fresh start, the exact limits, no hook; only here is a PASS claimed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import sqrt

from vllm_tuning.tuning import client_bound
from vllm_tuning.tuning.experiment import (
    CONFIRM_SEEDS,
    ClientBoundError,
    Experiment,
    OutOfBudgetError,
    Steps,
    rounded,
)
from vllm_tuning.tuning.model import (
    EngineFacts,
    Limits,
    Load,
    Objective,
    OpenLoad,
    ProbeResult,
    Purpose,
    StartResult,
    Verdict,
)
from vllm_tuning.tuning.pool import pool
from vllm_tuning.tuning.standing import Standing, grows, standing
from vllm_tuning.tuning.text import describe
from vllm_tuning.tuning.verdict import MOST_SEEDS, OUT_OF_REACH

ATTEMPTS = 5
"""Most times that evidence is judged; each has an equal share of the run's alpha."""

LOADS = 8
"""Most loads tried. One that is given up before it is judged takes no share of alpha."""

PATIENCE = 3
"""Loads that did not pass from which on every step down is a double one: the race was far off."""

MOST_GROWING = 1
"""Probes of an attempt whose requests in flight may look as if they grew: by chance one steady
probe in twenty does. It counts for the bounds as any other, and another one is measured.
"""

FAR = 1.2
"""A bound this much above the SLO's calls for two steps down instead of one."""

CLOSE = 1.06
"""A bound this near calls for half a step: the percentile falls faster than the load."""

FIXED_LOAD_ATTEMPTS = 2
"""Attempts where the load is the user's and cannot back off: a second one for bad luck."""

SINGLE_ATTEMPT_SHARE = 0.9
"""Of the first load, where time allows one attempt only: rather a smaller promise than none."""

MOST_KV_GROWTH = 1.3
"""A fresh start's KV cache counts as larger by no more than this."""


@dataclass(slots=True)
class Confirmation:
    """How the confirmation went."""

    limits: Limits
    start: StartResult | None = None
    load: Load | None = None
    """The load that passed, else ``None``."""
    result: ProbeResult | None = None
    """The seeds of the passing attempt, pooled."""
    failed: list[ProbeResult] = field(default_factory=list)
    """What the attempts that did not pass ended with."""
    out_of_budget: bool = False
    judged: int = 0
    """How often evidence was judged that might have passed: each time takes a share of alpha."""


def attempt_alpha(alpha: float) -> float:
    """Level of one judgement: an equal share of the run's."""
    return alpha / ATTEMPTS


def keep_for_confirmation(experiment: Experiment, load: Load) -> None:
    """Keep back the time of a confirmation at ``load`` whose first attempt passes."""
    experiment.keep(load, starts=1, probes=CONFIRM_SEEDS)


def confirm(
    experiment: Experiment, limits: Limits, load: Load, *, kv_bound: bool = False
) -> Steps[Confirmation]:
    """Confirm ``limits``, from ``load`` downwards; a given demand is tried at its own load only.

    ``kv_bound``: what bound in the race was KV capacity, of which a fresh start with a smaller
    token budget has more than the envelope had; so the first load grows with it.
    """
    outcome = Confirmation(limits)
    experiment.keep(load, starts=0, probes=0)
    envelope_facts = experiment.facts
    free = experiment.problem.objective is Objective.MAX_RATE
    try:
        outcome.start = yield from experiment.start(
            limits,
            Purpose.CONFIRM,
            hook=False,
            why=f"confirm {describe(limits)} with the exact args",
        )
        if outcome.start.failure is not None:
            return outcome
        if free and _one_attempt_only(experiment, load):
            load = _scaled(load, SINGLE_ATTEMPT_SHARE)
        elif kv_bound and free:
            # Half of it: what a request costs beside its KV blocks stays as it was.
            load = _scaled(load, sqrt(_kv_growth(envelope_facts, outcome.start.facts)))
        for attempt in range(LOADS if free else FIXED_LOAD_ATTEMPTS):
            result, share = yield from _attempt(experiment, outcome, load, attempt)
            if result.verdict is Verdict.PASS:
                outcome.load, outcome.result = load, result
                return outcome
            outcome.failed.append(result)
            if outcome.judged >= ATTEMPTS:
                return outcome
            if len(outcome.failed) > PATIENCE:
                share = min(share, experiment.pace.back_off**2)
            load = _scaled(load, share) if free else load
    except OutOfBudgetError:
        outcome.out_of_budget = True
    return outcome


def _one_attempt_only(experiment: Experiment, load: Load) -> bool:
    two_attempts = experiment.seconds_for(load, starts=0, probes=2 * CONFIRM_SEEDS)
    return experiment.left_seconds < two_attempts


def _attempt(
    experiment: Experiment, outcome: Confirmation, load: Load, attempt: int
) -> Steps[tuple[ProbeResult, float]]:
    """Measure the seeds of one attempt; ends at the first that makes a PASS hopeless.

    Giving up claims nothing, so it takes no share of alpha. Returns what was shown, and the share
    of the load that the next attempt is worth trying at.
    """
    alpha, step = attempt_alpha(experiment.problem.alpha), experiment.pace.back_off
    results: list[ProbeResult] = []
    growing = 0
    while True:
        # The first seed must leave the time of the second.
        experiment.keep(load, starts=0, probes=max(0, CONFIRM_SEEDS - 1 - len(results)))
        try:
            result = yield from experiment.decide(
                outcome.limits,
                load,
                Purpose.CONFIRM,
                why=f"attempt {attempt + 1}, arrivals {len(results) + 1}",
                alpha=alpha,
                repeat=attempt * MOST_SEEDS + len(results),
            )
        except ClientBoundError as error:
            if not isinstance(load, OpenLoad):
                raise
            return error.result, client_bound.ROOM
        if (where := standing(result)) is Standing.OVER:
            return result, step**2
        growing += grows(result)
        steady = where is Standing.WITHIN and result.reason != OUT_OF_REACH
        if growing > MOST_GROWING or not (steady or grows(result)):
            return result, step
        results.append(result)
        if len(results) - growing >= CONFIRM_SEEDS:
            outcome.judged += 1
            result = pool(results, alpha=alpha)
            if result.verdict is Verdict.PASS:
                return result, 1.0
        # What the last judgement would see if the seeds to come were like those measured.
        hope = pool([results[at % len(results)] for at in range(MOST_SEEDS)], alpha=alpha)
        # One judgement is kept for a lower load.
        spent = len(results) >= CONFIRM_SEEDS and outcome.judged >= ATTEMPTS - 1
        over = len(results) == MOST_SEEDS or spent
        hopeless = hope.verdict is not Verdict.PASS and not _last_chance(experiment, load, results)
        if over or hopeless:
            return result, step ** _steps(hope)


def _steps(hope: ProbeResult) -> float:
    """How many steps down the next load is worth trying at, by how far the bounds were off."""
    excess = _excess(hope)
    if excess is None or CLOSE < excess <= FAR:
        return 1.0
    return 2.0 if excess > FAR else 0.5


def _last_chance(experiment: Experiment, load: Load, results: list[ProbeResult]) -> bool:
    """Whether a second seed is all that the time allows: no other load could be proven."""
    another = experiment.seconds_for(load, starts=0, probes=CONFIRM_SEEDS)
    return len(results) < CONFIRM_SEEDS and experiment.left_seconds < another


def _excess(result: ProbeResult) -> float | None:
    """The largest upper bound of a percentile over that of its SLO; ``None`` without any."""
    return max(
        (
            slo.upper_milliseconds / slo.slo.max_milliseconds
            for slo in result.slos
            if slo.upper_milliseconds and slo.slo.max_milliseconds
        ),
        default=None,
    )


def _scaled(load: Load, factor: float) -> Load:
    if isinstance(load, OpenLoad):
        return replace(load, rate_per_second=rounded(load.rate_per_second * factor))
    return load


def _kv_growth(envelope: EngineFacts | None, fresh: EngineFacts | None) -> float:
    """How much more KV cache the fresh start has, between 1 and ``MOST_KV_GROWTH``."""
    if envelope is None or fresh is None:
        return 1.0
    if not envelope.kv_cache_tokens or not fresh.kv_cache_tokens:
        return 1.0
    return min(max(fresh.kv_cache_tokens / envelope.kv_cache_tokens, 1.0), MOST_KV_GROWTH)
