"""``MaxRateUnderSLO``: the limits that carry the highest request rate within the SLA."""

from __future__ import annotations

from vllm_tuning.tuning.calibrate import Calibration
from vllm_tuning.tuning.caps import race_caps, share_if_idle, trim
from vllm_tuning.tuning.confirm import keep_for_confirmation
from vllm_tuning.tuning.escalate import stress, toggle_chunked_prefill
from vllm_tuning.tuning.experiment import (
    Experiment,
    OutOfBudgetError,
    StartFailedError,
    Steps,
    rounded,
)
from vllm_tuning.tuning.model import Limits, OpenLoad, Purpose
from vllm_tuning.tuning.priors import (
    bucket_top,
    clip,
    kv_concurrency,
    token_budgets,
    with_limits,
)
from vllm_tuning.tuning.race import Race
from vllm_tuning.tuning.standing import Frontier, Standing, standing

FIRST_LOAD_SHARE = 0.85
"""Of the predicted boundary: most limits still pass there, so the first probes tell something."""

KV_ROOM = 1.25
"""Uncapped configurations may run this much more than the envelope's KV cache holds at mean
length: a fresh start with a smaller token budget has more of it.
"""

FOOTHOLD_DESCENTS = 5
"""How often the load is halved for all candidates before the SLA is called unsatisfiable."""

RESTART_CHALLENGERS = 2
"""Challengers where each costs a server start."""

BASELINE_RESOLUTION = 1.15
"""Width of the bracket of the current limits: a gain is told to about half of it."""

CLEAR_GAIN = 1.3
"""A gain of at least this needs no narrower bracket."""

BASELINE_PROBES = 6

FRUGAL_BASELINE_PROBES = 2
"""Where each takes minutes, early and late."""

EARLY_RESOLUTION = 1.3
"""Width of the current limits' first bracket: enough to tell a gain if no time is left later."""

EARLY_PROBES = 4


def max_rate(experiment: Experiment, calibration: Calibration, top: Limits) -> Steps[Race]:
    """Race the candidates under ``top``; its incumbent is the answer, ``None`` if none held."""
    race = Race(experiment)
    arms = _arms(experiment, calibration, top)
    load = _first_load(calibration, arms[0], experiment)
    try:
        yield from _foothold(race, arms, load)
        if race.incumbent is None:
            return race
        keep_for_confirmation(experiment, OpenLoad(race.estimate(race.incumbent), race.burstiness))
        yield from baseline(race, early=experiment.live)
        yield from _race_budgets(race, arms)
        yield from race_caps(race)
        yield from _keep_current(race)
        yield from _settle(race)
        if not race.estimate(race.incumbent):
            return race
        yield from toggle_chunked_prefill(experiment, race)
        trim(race)
        if not (experiment.problem.quick or experiment.frugal):
            yield from stress(experiment, race)
    except OutOfBudgetError:
        experiment.cut_short = True
    return race


def baseline(race: Race, *, early: bool = False) -> Steps[None]:
    """Bracket the current limits on the same server, so that the gain compares like with like.

    ``early``: roughly, as soon as a load to compare with is known; what is left of the budget may
    not be enough for it later. Else as narrowly as the gain asks for.
    """
    experiment = race.experiment
    current = experiment.problem.current
    frontier = race.frontier(current)
    best = max((race.estimate(limits) for limits in race.frontiers), default=0.0)
    if best == 0.0 or (frontier.points and not experiment.live):
        return
    if race.incumbent and share_if_idle(race, current, race.incumbent):
        return
    held = (race.frontier(race.incumbent).low if race.incumbent else None) or best
    probes = EARLY_PROBES if early else BASELINE_PROBES
    for _ in range(FRUGAL_BASELINE_PROBES if experiment.frugal else probes):
        if _known_well(race, frontier, best, roughly=early):
            return
        # First what tells the gain: do they hold what the winner holds? Where they are far from
        # it, an overload fails within seconds and shows how much they serve.
        may_hold_it = frontier.high is None or frontier.high > held
        load = held if may_hold_it else frontier.next_load()
        yield from race.measure(
            current, load, "what do the current limits carry?", purpose=Purpose.BASELINE
        )


def _known_well(race: Race, frontier: Frontier, best: float, *, roughly: bool) -> bool:
    """Whether the current limits' bracket tells the gain: a small gain needs a narrow one."""
    estimate, width = frontier.estimate() or 0.0, frontier.width
    if frontier.low and frontier.low * race.resolution >= best:
        return True
    if width is None:
        return False
    coarse = max(BASELINE_RESOLUTION, race.resolution**2)
    if roughly:
        return width <= max(EARLY_RESOLUTION, coarse)
    return width <= (coarse if best > CLEAR_GAIN * estimate else race.resolution)


def _keep_current(race: Race) -> Steps[None]:
    """Let the current limits be what the final starts from, if they were seen to hold as much.

    What was seen counts, not the estimates: the current limits' bracket is still wide here. Before
    the final, since its long windows bring down whoever is in it.
    """
    current, incumbent = race.experiment.problem.current, race.incumbent
    if incumbent is None or current == incumbent or race.experiment.lacks_graphs(current):
        return
    share_if_idle(race, current, incumbent)
    ours, best = race.frontier(current).low, race.frontier(incumbent).low
    if ours is not None and best is not None and ours >= best:
        race.lost[incumbent] = f"the current limits hold {ours:.4g}/s too"
        race.incumbent = current
        if race.experiment.live and race.frontier(current).high is None:
            yield from race.climb(current)


def _arms(experiment: Experiment, calibration: Calibration, top: Limits) -> list[Limits]:
    """One configuration per token budget, uncapped, best prediction first."""
    problem = experiment.problem
    seqs = top.max_num_seqs
    if problem.space.max_num_seqs is None:
        seqs = problem.current.max_num_seqs
    elif held := kv_concurrency(experiment.facts, problem.workload):
        seqs = min(seqs, bucket_top(KV_ROOM * held[1]))
        seqs = clip(seqs, problem.space.max_num_seqs)
    arms = [
        with_limits(problem.current, seqs=seqs, tokens=tokens)
        for tokens in token_budgets(problem, top.max_num_batched_tokens)
    ]
    arms = [limits for limits in arms if experiment.dominated(limits) is None]
    model = calibration.model
    if model is None:
        return sorted(arms, key=lambda limits: abs(limits.max_num_batched_tokens - 2048))
    # Ties of the prediction go to the budget nearest 2048, where most engines are at ease.
    return sorted(
        arms,
        key=lambda limits: (
            -round(model.largest_load(limits, problem.slos), 3),
            abs(limits.max_num_batched_tokens - 2048),
        ),
    )


def _first_load(calibration: Calibration, favourite: Limits, experiment: Experiment) -> float:
    model, loaded = calibration.model, calibration.loaded
    predicted = model.largest_load(favourite, experiment.problem.slos) if model else 0.0
    seen = (loaded.request_rate if loaded else None) or calibration.alone.request_rate or 1.0
    # A prediction far outside what was seen is not trusted: half to four times the loaded probe's
    # rate.
    predicted = min(max(predicted, 0.5 * seen), 4.0 * seen)
    return FIRST_LOAD_SHARE * predicted


def _foothold(race: Race, arms: list[Limits], load: float) -> Steps[None]:
    """Find limits and a load within the SLA: the favourite first, then all, at falling loads."""
    favourite = arms[0]
    yield from race.bracket(favourite, load, why="where does the favourite leave the SLA?")
    if race.frontier(favourite).low is not None:
        race.incumbent = favourite
        return
    load = race.frontier(favourite).high or load
    for _ in range(FOOTHOLD_DESCENTS):
        for limits in arms:
            if race.frontier(limits).at(rounded(load)):
                continue
            result = yield from race.measure(limits, load, "does any candidate hold this load?")
            if standing(result) is Standing.WITHIN:
                race.incumbent = limits
                yield from race.climb(limits)
                return
        load *= 0.5


def _race_budgets(race: Race, arms: list[Limits]) -> Steps[None]:
    """Challenge outwards on both sides of the incumbent: the load is single-peaked in the budget.

    Two losses in a row end a side (one for quick problems), since a single one may be noise.
    """
    experiment = race.experiment
    start = race.incumbent
    if start is None:
        return
    by_size = sorted(arms, key=lambda limits: limits.max_num_batched_tokens)
    at = by_size.index(start)
    up, down = by_size[at + 1 :], by_size[:at][::-1]
    prefer_down = bool(down) and (not up or arms.index(down[0]) < arms.index(up[0]))
    patience = 1 if experiment.problem.quick or experiment.frugal else 2
    allowed = len(arms) if experiment.live else RESTART_CHALLENGERS
    for side in (down, up) if prefer_down else (up, down):
        losses = 0
        for limits in side:
            if losses >= patience or allowed <= 0:
                break
            allowed -= 1
            try:
                yield from race.challenge(limits, f"token budget {limits.max_num_batched_tokens}")
            except StartFailedError as error:
                race.lost[limits] = str(error)
            # Where each probe takes minutes, not to win is to lose.
            lost = limits in race.lost or (experiment.frugal and race.incumbent != limits)
            losses = losses + 1 if lost else 0


def _settle(race: Race) -> Steps[None]:
    """Hold the final; needs live limits, and is left out where windows are very short.

    Where they are very long the incumbent runs alone: a lucky window is found out here for a tenth
    of what an attempt of the confirmation takes. A machine that has become much slower since may
    hold no load of the final: then its boundary is looked for once more.
    """
    experiment = race.experiment
    if experiment.problem.quick or not experiment.live:
        return
    yield from race.final([] if experiment.frugal else race.contenders())
    best = race.incumbent
    if best is not None and race.frontier(best).low is None:
        load = race.frontier(best).next_load()
        yield from race.bracket(best, load, why="what is left of the best?")
