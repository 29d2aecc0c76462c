"""The canary: a single client at the start of the search and at its end, to see the machine change.

A race compares limits that are measured minutes apart on one start, mostly at the same load, so a
slow drift spoils little of its order. What it spoils is the loads: those are measured again.
"""

from __future__ import annotations

from math import sqrt

from vllm_tuning.tuning.calibrate import DRIFT, canary, drift
from vllm_tuning.tuning.experiment import (
    Experiment,
    OutOfBudgetError,
    Steps,
    UnmeasurableError,
)
from vllm_tuning.tuning.fixed_load import Contest
from vllm_tuning.tuning.model import Limits, Percentiles, ProbeResult, Purpose
from vllm_tuning.tuning.race import Race
from vllm_tuning.tuning.standing import Frontier
from vllm_tuning.tuning.text import describe

CEILING = 0.2
"""A change from here on is a drift, however much the canary scatters."""

NOISE_FACTOR = 3.0
"""Standard errors of the change that chance may explain."""

WHY = "the machine changed: what do these limits carry now?"

REPEAT = 90
"""Arrivals that no other probe of a given load has."""

PROBES = 4
"""Most probes spent on measuring one load again."""

_NORMAL_P90 = 1.2816
_MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean, for normal scatter."""


def drifted(experiment: Experiment, alone: ProbeResult, again: ProbeResult) -> Steps[float | None]:
    """Compare the first canary with a later one; a suspicion is looked at once more.

    Returns the relative change of its pace, ``None`` if there was none that counts or nobody could
    look.
    """
    change = _beyond(alone, again)
    if change is None or not experiment.live:
        return change
    why = f"a single client's pace changed by {change:+.0%}"
    try:
        look = yield from canary(experiment, alone.probe.limits, why)
    except (OutOfBudgetError, UnmeasurableError):
        return None
    later = _beyond(alone, look)
    # Two looks that err on opposite sides are noise.
    return later if later is not None and later * change > 0 else None


def limit(alone: ProbeResult, again: ProbeResult) -> float:
    """The change that is accepted: by the scatter of both canaries' requests, up to a ceiling."""
    noise = sqrt(_median_error(alone) ** 2 + _median_error(again) ** 2)
    return min(max(DRIFT, NOISE_FACTOR * noise), CEILING)


def measure_again(race: Race, chosen: Limits, change: float) -> Steps[None]:
    """Forget the load points of the answer and of the current limits, and find both loads anew.

    What the budget does not allow stays as it was, and the notes say so.
    """
    experiment = race.experiment
    _tell(experiment, change)
    for limits in dict.fromkeys((chosen, experiment.problem.current)):
        before = race.frontier(limits)
        expected = (before.estimate() or 0.0) / (1.0 + change)
        if not expected or not _at_hand(experiment, limits):
            continue
        race.frontiers[limits] = Frontier()
        try:
            yield from race.bracket(
                limits,
                expected,
                why=WHY,
                purpose=Purpose.SEARCH if limits == chosen else Purpose.BASELINE,
                probes=PROBES,
            )
        except OutOfBudgetError:
            experiment.cut_short = True
        except UnmeasurableError:
            pass  # what is known already is not lost with it
        if race.frontier(limits).low is None:
            race.frontiers[limits] = before
            experiment.notes.append(f"The load of {describe(limits)} stayed as it was measured.")


def score_again(contest: Contest, chosen: Limits, change: float) -> Steps[None]:
    """Measure the answer and the current limits anew at the load that is given."""
    experiment = contest.experiment
    _tell(experiment, change)
    for limits in dict.fromkeys((experiment.problem.current, chosen)):
        if limits not in contest.results or not _at_hand(experiment, limits):
            continue
        try:
            result = yield from experiment.probe(
                limits,
                contest.load,
                Purpose.SEARCH if limits == chosen else Purpose.BASELINE,
                why=WHY,
                repeat=REPEAT,
            )
        except (OutOfBudgetError, UnmeasurableError) as error:
            experiment.cut_short |= isinstance(error, OutOfBudgetError)
            experiment.notes.append(f"The score of {describe(limits)} stayed as it was measured.")
        else:
            contest.results[limits] = [result]


def _at_hand(experiment: Experiment, limits: Limits) -> bool:
    """Whether the running server takes ``limits``: a new look is not worth a start."""
    return experiment.live or (experiment.server is not None and experiment.server.limits == limits)


def _tell(experiment: Experiment, change: float) -> None:
    experiment.notes.append(
        f"A single client's requests changed their pace by {change:+.0%} during the search "
        "(canary): what the answer and the current limits do was measured again."
    )


def _beyond(alone: ProbeResult, again: ProbeResult) -> float | None:
    change = drift(alone, again)
    return change if change is not None and abs(change) > limit(alone, again) else None


def _median_error(result: ProbeResult) -> float:
    """Relative standard error of the canary's median, by the scatter above it."""
    told = _pace(result)
    if not (told.p50 and told.p90 and told.count):
        return 0.0
    return _MEDIAN_ERROR * (told.p90 / told.p50 - 1.0) / _NORMAL_P90 / sqrt(told.count)


def _pace(result: ProbeResult) -> Percentiles:
    return result.tpot if result.tpot.p50 else result.e2e
