"""Ours, the rules of the peers, and ablations: each takes a case and a seed, and promises a load
for some limits.

The peers' *rules* are re-implemented on the same simulated server, so that nothing but the rules
differs: which configurations are tried, by which loads, and what counts as meeting the SLA. Where
a rule lacks a latency SLA of ours it is given one, which helps it. GPU-seconds are charged alike:
every start and every second of load.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import product

from problems import DEFAULTS, Case

from vllm_tuning.bench.sim.inprocess import SimulatedServer
from vllm_tuning.tuning.confirm import confirm
from vllm_tuning.tuning.experiment import Experiment, Steps
from vllm_tuning.tuning.model import (
    Answer,
    Budget,
    ClosedLoad,
    Done,
    Ending,
    Limits,
    Load,
    OpenLoad,
    Probe,
    ProbeResult,
    Problem,
    Purpose,
    Start,
    StartResult,
)
from vllm_tuning.tuning.priors import envelope
from vllm_tuning.tuning.race import Race
from vllm_tuning.tuning.search import Search
from vllm_tuning.tuning.strategy import CONFIRM_SHARE
from vllm_tuning.tuning.verdict import target


@dataclass(frozen=True, slots=True)
class Promise:
    """What a strategy ends with."""

    limits: Limits | None
    """What the user is left with; ``None`` = no answer."""
    claimed: float | None
    starts: int
    gpu_seconds: float
    ending: str = ""
    confirmed: Limits | None = None
    """What the claim is about, if that is not ``limits``."""


class Machine:
    """A simulated server that counts what it is asked."""

    def __init__(self, case: Case, seed: int, *, live: bool = True) -> None:
        self.server: SimulatedServer = case.server(noise_seed=1 + seed)
        self.problem: Problem = case.problem(seed)
        self.starts = 0
        self._live = live

    def start(self, limits: Limits) -> bool:
        return self._start(Start("s", Purpose.SEARCH, limits, hook=False)).facts is not None

    def answer(self, question: Start | Probe) -> Answer:
        if isinstance(question, Probe):
            return self.server.run(question, self.problem)
        return self._start(question)

    def _start(self, question: Start) -> StartResult:
        self.starts += 1
        result = self.server.start(question)
        if result.facts is not None and not self._live:
            return replace(result, facts=replace(result.facts, live_limits="switched off"))
        return result

    def requests(self, limits: Limits, load: Load, count: float, seed: int) -> ProbeResult:
        """Send about ``count`` requests without a warm-up, as fixed-count tools do, and wait for
        all.
        """
        rate = load.rate_per_second if isinstance(load, OpenLoad) else None
        window = count / rate if rate else count
        probe = Probe(
            "b", Purpose.SEARCH, limits, load, seed, window_seconds=window, windows=1,
            warmup_seconds=0.0, stop_on_fail=False,
        )  # fmt: skip
        return self.server.run(probe, self.problem)

    def saturated_rate(self, limits: Limits, count: int, seed: int) -> float:
        """Requests per second when ``count`` are sent at once and all are waited for."""
        return count / self.server.burst(limits, self.problem, requests=count, seed=seed)

    def promise(
        self,
        limits: Limits | None,
        claimed: float | None,
        ending: str = "",
        confirmed: Limits | None = None,
    ) -> Promise:
        seconds = self.server.engine_seconds
        return Promise(limits, claimed, self.starts, seconds, ending, confirmed or limits)


def meets(result: ProbeResult) -> bool:
    """The point percentile of one run, as peers read it."""
    return all((slo.attainment or 0.0) >= target(slo.slo) for slo in result.slos)


# --- ours ---------------------------------------------------------------------------------------


def ours(case: Case, seed: int, *, live: bool = True, least_gain: float | None = None) -> Promise:
    machine = Machine(case, seed, live=live)
    if least_gain is not None:
        machine.problem = replace(machine.problem, minimum_gain_percent=least_gain)
    search = Search(machine.problem)
    while not isinstance(question := search.ask(), Done):
        search.tell(machine.answer(question))
    found = question.recommendation
    limits = machine.problem.current if found.ending is Ending.NO_IMPROVEMENT else found.limits
    confirmed = found.result.probe.limits if found.result else None
    claimed = found.load.rate_per_second if isinstance(found.load, OpenLoad) else None
    return machine.promise(limits, claimed, found.ending, confirmed)


def ours_with_restarts(case: Case, seed: int) -> Promise:
    """Ablation: ours where no limit can change live."""
    return ours(case, seed, live=False)


def ours_for_any_gain(case: Case, seed: int) -> Promise:
    """Ablation: ours for a user who would change the limits for any gain, as the peers do."""
    return ours(case, seed, least_gain=0.0)


def ours_without_verdicts(case: Case, seed: int) -> Promise:
    """Ablation: ours up to the race; its estimate is the promise, nothing is confirmed."""
    machine = Machine(case, seed)
    search = Search(machine.problem)
    while not isinstance(question := search.ask(), Done):
        if isinstance(question, Start) and question.purpose is Purpose.CONFIRM:
            break
        search.tell(machine.answer(question))
    best, load = search.believed or (None, None)
    return machine.promise(best, load)


# --- peers --------------------------------------------------------------------------------------


def auto_tune(case: Case, seed: int) -> Promise:
    """``benchmarks/auto_tune/auto_tune.sh``: default lists; 1,000 prompts at once, then the rate
    counted down by one with 100 prompts a rate until the SLA holds; highest throughput wins. One
    start for the memory share and one for the final profile.
    """
    machine = Machine(case, seed)
    best: tuple[float, Limits | None] = (0.0, None)
    machine.start(Limits(128, 512))
    for seqs, tokens in product((128, 256), (512, 1024, 2048, 4096)):
        limits = Limits(seqs, tokens)
        if not machine.start(limits):
            continue
        rate = int(machine.saturated_rate(limits, 1000, seed)) + 1
        while rate > 0:
            if meets(machine.requests(limits, OpenLoad(float(rate)), 100, seed)):
                break
            rate -= 1
        if rate > best[0]:
            best = (float(rate), limits)
    machine.start(best[1] or DEFAULTS)
    return machine.promise(best[1], best[0] or None)


BISECT_REQUESTS = 300
BISECT_STEPS = 6

GRID = tuple(Limits(seqs, tokens) for tokens in (512, 2048, 8192) for seqs in (64, 128, 256, 512))


def sweep(case: Case, seed: int) -> Promise:
    """``vllm bench sweep serve_sla``: a grid of 12, each with its own start and a bisection of 300
    requests a rate.
    """
    return _bisect_each(Machine(case, seed), GRID, seed)


def defaults(case: Case, seed: int) -> Promise:
    """Load-side tools (AIPerf, GuideLLM sweeps): default limits, and a bisection of the rate."""
    return _bisect_each(Machine(case, seed), (DEFAULTS,), seed)


def _bisect_each(machine: Machine, grid: Iterable[Limits], seed: int) -> Promise:
    best: tuple[float, Limits | None] = (0.0, None)
    for limits in grid:
        if machine.start(limits):
            rate = _bisect(machine, limits, seed)
            if rate > best[0]:
                best = (rate, limits)
    return machine.promise(best[1], best[0] or None)


def _bisect(machine: Machine, limits: Limits, seed: int) -> float:
    """The highest rate that met the SLA between 0 and what the server serves flat out."""
    low, high = 0.0, machine.saturated_rate(limits, BISECT_REQUESTS, seed)
    if meets(machine.requests(limits, OpenLoad(high), BISECT_REQUESTS, seed)):
        return high
    for _ in range(BISECT_STEPS):
        rate = (low + high) / 2
        if meets(machine.requests(limits, OpenLoad(rate), BISECT_REQUESTS, seed)):
            low = rate
        else:
            high = rate
    return low


TRIALS = 20
TRIAL_CLIENTS = 50
TRIAL_SECONDS = 30.0


def random_search(case: Case, seed: int) -> Promise:
    """Twenty random pairs, each started and loaded by 50 clients; the best throughput within the
    SLA wins.
    """
    dice, machine = random.Random(seed), Machine(case, seed)
    best: tuple[float, Limits | None] = (0.0, None)
    for _ in range(TRIALS):
        tokens = 2 ** dice.randint(8, 14)
        limits = Limits(min(dice.randint(1, 64) * 8, tokens), tokens)
        rate, within = _trial(machine, limits, seed)
        if within and rate > best[0]:
            best = (rate, limits)
    return machine.promise(best[1], best[0] or None)


def tpe(case: Case, seed: int) -> Promise:
    """auto-tuning-vllm: Optuna's TPE over the pair, 20 trials, each started and loaded by 50
    clients.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    machine = Machine(case, seed)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))
    best: tuple[float, Limits | None] = (0.0, None)
    for _ in range(TRIALS):
        trial = study.ask()
        tokens = 2 ** trial.suggest_int("log_tokens", 8, 14)
        limits = Limits(min(8 * trial.suggest_int("seqs_by_8", 1, 64), tokens), tokens)
        rate, within = _trial(machine, limits, seed)
        study.tell(trial, rate if within else -1.0)
        if within and rate > best[0]:
            best = (rate, limits)
    return machine.promise(best[1], best[0] or None)


def _trial(machine: Machine, limits: Limits, seed: int) -> tuple[float, bool]:
    if not machine.start(limits):
        return 0.0, False
    result = machine.requests(limits, ClosedLoad(TRIAL_CLIENTS), TRIAL_SECONDS, seed)
    return result.request_rate or 0.0, bool(result.completed) and meets(result)


# --- ablations: theirs with our verdicts, with and without our live limits -----------------------

UNLIMITED = Budget(gpu_seconds=1e9, deadline_seconds=1e9)


def sweep_live(case: Case, seed: int, *, live: bool = True) -> Promise:
    """The grid of ``sweep`` on one start by live limits, loads and verdicts as ours, confirmed as
    ours. It takes as long as it takes: no budget.
    """
    machine = Machine(case, seed, live=live)
    experiment = Experiment(replace(machine.problem, budget=UNLIMITED))
    steps = _sweep_live(experiment, live=live)
    try:
        question = next(steps)
        while True:
            question = steps.send(machine.answer(question))
    except StopIteration as end:
        limits, claimed = end.value
    return machine.promise(limits, claimed)


def sweep_with_restarts(case: Case, seed: int) -> Promise:
    """The same with a start per cell: what a grid costs that proves what it promises."""
    return sweep_live(case, seed, live=False)


def _sweep_live(experiment: Experiment, *, live: bool) -> Steps[tuple[Limits | None, float | None]]:
    first = envelope(experiment.problem) if live else GRID[0]
    yield from experiment.start(first, Purpose.SEARCH, hook=live, why="the grid's first start")
    race = Race(experiment)
    load = 4.0
    for limits in GRID:
        yield from race.bracket(limits, load, why="grid")
        load = race.estimate(limits) or load
    best = max(GRID, key=race.estimate)
    if not race.estimate(best):
        return None, None
    load = CONFIRM_SHARE * race.estimate(best)
    outcome = yield from confirm(experiment, best, OpenLoad(load, race.burstiness))
    claimed = outcome.load.rate_per_second if isinstance(outcome.load, OpenLoad) else None
    return (best if claimed else None), claimed


STRATEGIES: dict[str, Callable[[Case, int], Promise]] = {
    "ours": ours,
    "auto_tune.sh": auto_tune,
    "bench sweep grid": sweep,
    "Optuna TPE": tpe,
    "random": random_search,
    "defaults + bisect": defaults,
    "ablation: grid live with our verdicts": sweep_live,
    "ablation: grid with our verdicts": sweep_with_restarts,
    "ablation: ours for any gain": ours_for_any_gain,
    "ablation: ours with restarts": ours_with_restarts,
    "ablation: ours unconfirmed": ours_without_verdicts,
}
