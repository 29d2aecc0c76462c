"""The plan of a run, step by step; see ``docs`` for the reasoning behind its order."""

from __future__ import annotations

from vllm_tuning.tuning.calibrate import Calibration, calibrate
from vllm_tuning.tuning.confirm import attempt_alpha, confirm, keep_for_confirmation
from vllm_tuning.tuning.drift import drifted, measure_again, score_again
from vllm_tuning.tuning.escalate import raise_memory_share
from vllm_tuning.tuning.experiment import (
    ClientBoundError,
    Experiment,
    OutOfBudgetError,
    StartFailedError,
    Steps,
    UnmeasurableError,
    rounded,
)
from vllm_tuning.tuning.fixed_load import Contest, fixed_load, offered_load
from vllm_tuning.tuning.gain import Carried
from vllm_tuning.tuning.max_rate import baseline, max_rate
from vllm_tuning.tuning.model import (
    Ending,
    Limits,
    Load,
    Objective,
    OpenLoad,
    Problem,
    Purpose,
    Recommendation,
    StartFailure,
)
from vllm_tuning.tuning.opening import open_envelope
from vllm_tuning.tuning.own_start import bracket_current, score_current
from vllm_tuning.tuning.priors import TOKEN_BUDGETS, with_limits
from vllm_tuning.tuning.race import Race
from vllm_tuning.tuning.recommend import (
    Findings,
    confirmed,
    keep_current,
    refuse,
    too_little,
    unconfirmed,
)
from vllm_tuning.tuning.standing import Standing, pressure, standing
from vllm_tuning.tuning.sweep import sweep
from vllm_tuning.tuning.text import describe

CONFIRM_SHARE = 0.93
"""Of the race's estimate: where the confirmation begins, unless less than that was seen to hold.
The best of many estimates is an optimist.
"""


def strategy(experiment: Experiment, findings: Findings) -> Steps[Recommendation]:
    """Run the whole plan; ``findings`` fills as it goes, so any stop can tell what is known."""
    problem = experiment.problem
    if reason := refuse(problem):
        return unconfirmed(findings, Ending.INCONCLUSIVE, reason)
    if (least := least_seconds(problem)) > experiment.left_seconds:
        message = (
            f"BudgetTooSmall: a PASS takes at least {least:.0f} s of engine time, "
            f"{experiment.left_seconds:.0f} s are allowed. "
            "Raise the budget or lower the percentile."
        )
        return unconfirmed(findings, Ending.INCONCLUSIVE, message)
    try:
        return (yield from _plan(experiment, findings))
    except StartFailedError as error:
        return unconfirmed(findings, Ending.ENGINE_FAILED, _tell_failure(error.result.failure))
    except UnmeasurableError as error:
        message = f"Measurements stayed invalid ({error.result.reason}): {error.result.message}"
        return unconfirmed(findings, Ending.INCONCLUSIVE, message)
    except OutOfBudgetError:
        return unconfirmed(findings, Ending.BUDGET_EXHAUSTED, _exhausted(findings))


def least_seconds(problem: Problem) -> float:
    """The least that a PASS can cost: two starts and one attempt of the shortest confirmation."""
    experiment = Experiment(problem)
    pace = experiment.pace
    window = problem.window_seconds or pace.confirm_window[0]
    return 2 * pace.assumed_start + 2 * (2 * window) + pace.canary


def _plan(experiment: Experiment, findings: Findings) -> Steps[Recommendation]:
    problem = experiment.problem
    top = yield from open_envelope(experiment)
    calibration = yield from calibrate(experiment, top)
    findings.calibration = calibration
    if standing(calibration.alone) is Standing.OVER and _single_requests_count(problem):
        findings.nearest_miss = findings.limiting = calibration.alone
        message = (
            f"Even a request that runs alone does not meet the SLA: {calibration.alone.message}."
        )
        return unconfirmed(findings, Ending.SLA_UNSATISFIABLE, message)
    likely_rate = (calibration.loaded or calibration.alone).request_rate
    keep_for_confirmation(experiment, offered_load(problem, likely_rate))
    load = yield from (
        _find_rate(experiment, findings, calibration, top)
        if problem.objective is Objective.MAX_RATE
        else _find_at_load(experiment, findings, calibration, top)
    )
    if load is None or findings.chosen is None:
        if experiment.cut_short:
            return unconfirmed(findings, Ending.BUDGET_EXHAUSTED, _exhausted(findings))
        return unconfirmed(findings, Ending.SLA_UNSATISFIABLE, _unsatisfiable(findings))
    return (yield from _prove(experiment, findings, findings.chosen, load))


def _show(
    experiment: Experiment, calibration: Calibration, chosen: Limits, top: Limits
) -> Steps[float | None]:
    """Draw the table around the answer; its single client is the canary once more.

    Returns by how much the machine changed since the first one, ``None`` = not, or not known.
    """
    again = yield from sweep(experiment, chosen, calibration.alone, top)
    if again is None or experiment.problem.quick:
        return None
    return (yield from drifted(experiment, calibration.alone, again))


def _prove(
    experiment: Experiment, findings: Findings, chosen: Limits, load: Load
) -> Steps[Recommendation]:
    limiting = findings.limiting
    outcome = yield from confirm(
        experiment, chosen, load, kv_bound=bool(limiting and limiting.engine.preemptions)
    )
    findings.confirmation = outcome
    if outcome.load is not None:
        return confirmed(findings)
    if outcome.failed:
        findings.nearest_miss = outcome.failed[-1]
    if outcome.out_of_budget:
        return unconfirmed(findings, Ending.BUDGET_EXHAUSTED, _exhausted(findings))
    if outcome.start is not None and outcome.start.failure is not None:
        message = (
            f"{describe(outcome.limits)} ran live, but: {_tell_failure(outcome.start.failure)}"
        )
        return unconfirmed(findings, Ending.INCONCLUSIVE, message)
    message = (
        f"{describe(outcome.limits)} looked best, but no attempt of its confirmation passed; "
        f"the last: {outcome.failed[-1].message}."
    )
    return unconfirmed(findings, Ending.INCONCLUSIVE, message)


def _find_rate(
    experiment: Experiment, findings: Findings, calibration: Calibration, top: Limits
) -> Steps[Load | None]:
    race = yield from max_rate(experiment, calibration, top)
    findings.lost = race.lost
    findings.nearest_miss = race.nearest_miss()
    chosen = race.incumbent
    findings.chosen = chosen
    if chosen is None or not race.estimate(chosen):
        findings.chosen = None
        findings.limiting = findings.nearest_miss
        return None
    try:
        if not experiment.lacks_graphs(experiment.problem.current):
            yield from baseline(race)
        yield from raise_memory_share(experiment, race, top)
    except OutOfBudgetError:
        experiment.cut_short = True
    chosen = race.incumbent or chosen
    findings.unbounded_tokens = _preferred_tokens(experiment.problem, calibration, chosen)
    load = _note_answer(findings, race, chosen)
    change = yield from _show(experiment, calibration, chosen, top)
    if change is not None:
        yield from measure_again(race, chosen, change)
        load = _note_answer(findings, race, chosen)
    try:
        yield from _compare(race, findings, load)
    except OutOfBudgetError:
        experiment.notes.append("The budget left no room to judge the current limits in full.")
    except ClientBoundError:
        experiment.notes.append("The client did not keep up where the current limits were judged.")
    # The race's short windows flatter; what the chosen limits went through since, these have to.
    current = experiment.problem.current
    in_final = race.was_in_final(current) and not experiment.lacks_graphs(current)
    fair = findings.before is not None or in_final
    if fair and keep_current(findings):
        chosen = current
        findings.limiting = race.limiting(chosen)
        load = min(load, _first_load(race, chosen), key=lambda open_load: open_load.rate_per_second)
    # The proof's windows are long against the latency of these limits at about this load, not of
    # whatever was measured last.
    held = race.frontier(chosen).low or load.rate_per_second
    for result in race.frontier(chosen).at(held)[-1:]:
        experiment.learn_latency(result)
    return load


def _note_answer(findings: Findings, race: Race, chosen: Limits) -> OpenLoad:
    """Keep what the race says of the answer; returns the load to begin the confirmation at."""
    findings.chosen, findings.chosen_load = chosen, _carried(race, chosen)
    findings.limiting = race.limiting(chosen)
    findings.equals = race.ties()
    _note_baseline(findings, race)
    return _first_load(race, chosen)


def _first_load(race: Race, limits: Limits) -> OpenLoad:
    """The load at which the confirmation of ``limits`` begins."""
    estimate = race.estimate(limits)
    held = race.frontier(limits).low or estimate
    return OpenLoad(rounded(min(CONFIRM_SHARE * estimate, held)), race.burstiness)


def _carried(race: Race, limits: Limits) -> Carried:
    frontier = race.frontier(limits)
    return Carried(race.estimate(limits), frontier.low, frontier.high)


def _note_baseline(findings: Findings, race: Race) -> None:
    """Keep the current limits' best load within the SLA, or their nearest miss."""
    frontier = race.frontier(findings.experiment.problem.current)
    if not frontier.points:
        return
    findings.baseline_load = _carried(race, findings.experiment.problem.current)
    shown = frontier.at(frontier.low) if frontier.low else [result for _, result in frontier.points]
    findings.baseline = min(shown, key=pressure)


def _compare(race: Race, findings: Findings, load: OpenLoad) -> Steps[None]:
    """Judge the current limits at the load to be confirmed, by the rule of the confirmation.

    Needs a server with the current memory share, and one of their own where live limits flatter
    them. Where the final has shown too little gain already, nothing is left to judge; where it
    would take many minutes, the race's loads must do.
    """
    experiment = race.experiment
    current, server = experiment.problem.current, experiment.server
    share = current.gpu_memory_utilization_percent
    if server is None or server.limits.gpu_memory_utilization_percent != share:
        return
    if findings.chosen == current or experiment.frugal:
        return
    if experiment.lacks_graphs(current):
        if not (yield from bracket_current(race)):
            return
        _note_baseline(findings, race)
    elif too_little(findings) and race.was_in_final(current):
        return
    elif not experiment.live and server.limits != current:
        yield from experiment.start(
            current, Purpose.BASELINE, hook=False, why="the current limits, to compare with"
        )
    findings.before = yield from experiment.decide(
        current,
        load,
        Purpose.BASELINE,
        why="the current limits at the load to be confirmed, by the same rule",
        alpha=attempt_alpha(experiment.problem.alpha),
        repeat=0,
    )
    seen, rate = findings.baseline_load, load.rate_per_second
    if standing(findings.before) is Standing.WITHIN:
        findings.baseline_load = (seen or Carried(rate)).at_least(rate)
    elif seen is not None:
        findings.baseline_load = seen.at_most(rate)


def _find_at_load(
    experiment: Experiment, findings: Findings, calibration: Calibration, top: Limits
) -> Steps[Load | None]:
    contest = yield from fixed_load(experiment, calibration, top)
    _note_contest(findings, contest)
    if contest.incumbent is None:
        return None
    change = yield from _show(experiment, calibration, contest.incumbent, top)
    if change is not None:
        yield from score_again(contest, contest.incumbent, change)
    if experiment.lacks_graphs(experiment.problem.current) and not experiment.frugal:
        yield from score_current(contest)
    _note_contest(findings, contest)
    return contest.load


def _note_contest(findings: Findings, contest: Contest) -> None:
    current = findings.experiment.problem.current
    findings.lost = contest.lost
    findings.nearest_miss = contest.nearest_miss()
    findings.chosen = contest.incumbent
    findings.limiting = findings.nearest_miss
    if current in contest.results:
        findings.baseline = findings.before = contest.results[current][-1]
        if contest.within(current):
            findings.baseline_results = contest.results[current]
    if contest.incumbent is not None:
        findings.chosen_results = contest.results[contest.incumbent]


def _preferred_tokens(problem: Problem, calibration: Calibration, chosen: Limits) -> int | None:
    model = calibration.model
    if model is None:
        return None
    loads = {
        tokens: model.largest_load(with_limits(chosen, tokens=tokens), problem.slos)
        for tokens in TOKEN_BUDGETS
    }
    best = max(loads, key=lambda tokens: loads[tokens])
    return best if loads[best] > 1.05 * loads.get(chosen.max_num_batched_tokens, 0.0) else None


def _single_requests_count(problem: Problem) -> bool:
    """A single client tells the least latency there is; rates of errors are not its business."""
    return all(slo.max_milliseconds is not None for slo in problem.slos)


def _unsatisfiable(findings: Findings) -> str:
    miss = findings.nearest_miss
    told = f" Nearest miss: {describe(miss.probe.limits)}, {miss.message}." if miss else ""
    return f"No limits meet the SLA at any load that was tried.{told}"


def _exhausted(findings: Findings) -> str:
    if findings.chosen is None:
        return "The budget ended before any limits were seen to meet the SLA."
    return (
        f"The budget ended before {describe(findings.chosen)} (the best, unconfirmed) was proven."
    )


def _tell_failure(failure: StartFailure | None) -> str:
    return f"{failure.kind}/{failure.reason}: {failure.message}" if failure else "no failure"
