"""``MinLatencyAtRate`` and ``MaxThroughputAtConcurrency``: limits are scored at a given load."""

from __future__ import annotations

from dataclasses import dataclass, field

from vllm_tuning.tuning.calibrate import Calibration
from vllm_tuning.tuning.experiment import (
    INVALID_RETRIES,
    Experiment,
    OutOfBudgetError,
    StartFailedError,
    Steps,
)
from vllm_tuning.tuning.model import (
    ClosedLoad,
    Limits,
    Load,
    Objective,
    OpenLoad,
    ProbeResult,
    Problem,
    Purpose,
)
from vllm_tuning.tuning.pairs import unlike_clocks
from vllm_tuning.tuning.priors import (
    bucket_below,
    bucket_top,
    clip,
    graph_seqs,
    kv_concurrency,
    token_budgets,
    with_limits,
)
from vllm_tuning.tuning.standing import Standing, pressure, standing

NOISE = 0.02
"""Scores closer than this are the same; then more CUDA graphs win, then fewer preemptions, then the
lower TPOT p99.
"""

RECOMPUTED_SHARE = 0.01
"""Preemptions per finished request that a batch job may have: each one recomputes a prompt."""

REPLICATES = 2
"""Rounds in which the two best are measured again."""

CAP_SHARES = (0.25, 0.5, 0.75)
"""Of the concurrency: caps tried for a batch job."""


@dataclass(slots=True)
class Contest:
    """Configurations measured at one load."""

    experiment: Experiment
    load: Load
    results: dict[Limits, list[ProbeResult]] = field(default_factory=dict)
    lost: dict[Limits, str] = field(default_factory=dict)
    incumbent: Limits | None = None

    def within(self, limits: Limits) -> bool:
        """Whether the configuration meets the SLA (and, for a batch job, hardly recomputes)."""
        results = self.results.get(limits, [])
        good = [result for result in results if self._holds(result)]
        return 2 * len(good) > len(results)

    def score(self, limits: Limits) -> float:
        """Larger is better: tokens per second, or the inverse of the largest pressure."""
        values = [self._score(result) for result in self.results[limits]]
        return sum(values) / len(values)

    def nearest_miss(self) -> ProbeResult | None:
        """The result that came nearest to the SLA without meeting it."""
        misses = [
            result for results in self.results.values() for result in results
            if not self._holds(result)
        ]  # fmt: skip
        return min(misses, key=pressure, default=None)

    def better(self, challenger: Limits, incumbent: Limits) -> bool:
        """Order two configurations that both meet the SLA."""
        theirs, ours = self.score(challenger), self.score(incumbent)
        if abs(theirs - ours) > NOISE * max(theirs, ours):
            return theirs > ours
        return self._tail(challenger) < self._tail(incumbent)

    def enter(
        self, limits: Limits, why: str, *, purpose: Purpose = Purpose.SEARCH, repeat: int = 0
    ) -> Steps[None]:
        """Measure a configuration and let it take the lead if it deserves to."""
        result = yield from self.experiment.probe(
            limits, self.load, purpose, why=why, repeat=repeat
        )
        self.take(limits, result)

    def take(self, limits: Limits, result: ProbeResult) -> None:
        """Let a measured configuration take the lead if it deserves to."""
        self.results.setdefault(limits, []).append(result)
        if not self.within(limits):
            self.lost[limits] = result.message
            return
        if self.incumbent is None or not self.within(self.incumbent):
            self.incumbent = limits
        elif limits != self.incumbent and self.better(limits, self.incumbent):
            self.lost[self.incumbent] = (
                f"score {self.score(self.incumbent):.4g} against {self.score(limits):.4g}"
            )
            self.incumbent = limits
        elif limits != self.incumbent:
            self.lost[limits] = (
                f"score {self.score(limits):.4g} against {self.score(self.incumbent):.4g}"
            )

    def _holds(self, result: ProbeResult) -> bool:
        if standing(result) is not Standing.WITHIN:
            return False
        if isinstance(self.load, ClosedLoad) and result.engine.preemptions:
            return result.engine.preemptions <= RECOMPUTED_SHARE * max(result.completed, 1)
        return True

    def _score(self, result: ProbeResult) -> float:
        if isinstance(self.load, ClosedLoad):
            return result.output_tokens_per_second or 0.0
        return 1.0 / pressure(result)

    def _tail(self, limits: Limits) -> tuple[bool, float, float]:
        results = self.results[limits]
        preemptions = sum(result.engine.preemptions or 0 for result in results) / len(results)
        tails = [result.tpot.p99 or result.tpot.maximum or 0.0 for result in results]
        lacking = self.experiment.lacks_graphs(limits)
        return lacking, preemptions, sum(tails) / len(tails)


def offered_load(problem: Problem, likely_rate: float | None = None) -> Load:
    """The demand that the objective is given; ``likely_rate`` where it has to be found."""
    workload = problem.workload
    if problem.objective is Objective.MAX_THROUGHPUT:
        return ClosedLoad(workload.concurrency or problem.current.max_num_seqs)
    given = workload.rate_per_second if problem.objective is Objective.MIN_LATENCY else likely_rate
    return OpenLoad(given or 1.0, workload.burstiness)


def fixed_load(experiment: Experiment, calibration: Calibration, top: Limits) -> Steps[Contest]:
    """Score the current limits, then budgets, then caps, then the two best in alternation."""
    problem = experiment.problem
    contest = Contest(experiment, offered_load(problem))
    try:
        yield from contest.enter(
            problem.current, "what do the current limits do?", purpose=Purpose.BASELINE
        )
        for limits in _budgets(experiment, calibration, top):
            yield from _try(contest, limits, f"token budget {limits.max_num_batched_tokens}")
        for limits in _caps(contest, top):
            yield from _try(contest, limits, f"max_num_seqs {limits.max_num_seqs}")
        yield from _replicate(contest)
    except OutOfBudgetError:
        experiment.cut_short = True
    return contest


def _try(contest: Contest, limits: Limits, why: str) -> Steps[None]:
    if limits in contest.results:
        return
    try:
        yield from contest.enter(limits, why)
    except StartFailedError as error:
        contest.lost[limits] = str(error)


def _uncapped(experiment: Experiment, top: Limits, load: Load, tokens: int) -> int:
    """No cap that ``load`` would reach, but for what the KV cache holds."""
    problem = experiment.problem
    bounds = problem.space.max_num_seqs
    if bounds is None:
        return problem.current.max_num_seqs
    seqs = top.max_num_seqs
    if isinstance(load, ClosedLoad):
        seqs = min(
            seqs, max(bucket_top(load.concurrency), graph_seqs(tokens, experiment.graph_tokens))
        )
    if held := kv_concurrency(experiment.facts, problem.workload):
        whole = held[0] if isinstance(load, ClosedLoad) else held[1]
        seqs = min(seqs, bucket_below(whole))
    return clip(seqs, bounds)


def _budgets(experiment: Experiment, calibration: Calibration, top: Limits) -> list[Limits]:
    problem = experiment.problem
    load = offered_load(problem)
    arms = [
        with_limits(problem.current, seqs=_uncapped(experiment, top, load, tokens), tokens=tokens)
        for tokens in token_budgets(problem, top.max_num_batched_tokens)
    ]
    arms = [limits for limits in arms if experiment.dominated(limits) is None]
    model = calibration.model
    if model is not None and problem.slos:
        arms.sort(key=lambda limits: -model.largest_load(limits, problem.slos))
    return arms if experiment.live else arms[:2]


def _caps(contest: Contest, top: Limits) -> list[Limits]:
    """Caps around the best: below the need queues grow, above the KV cache preemption does."""
    experiment, best = contest.experiment, contest.incumbent
    bounds = experiment.problem.space.max_num_seqs
    if bounds is None or best is None or not experiment.live:
        return []
    values: set[int] = set()
    if isinstance(contest.load, ClosedLoad):
        values |= {bucket_top(share * contest.load.concurrency) for share in CAP_SHARES}
        if best.max_num_seqs < contest.load.concurrency:  # by the KV cache: is preemption so bad?
            values.add(min(bucket_top(contest.load.concurrency), top.max_num_seqs))
    else:
        result = contest.results[best][-1]
        running = result.engine.running_mean or (
            contest.load.rate_per_second * (result.e2e.mean or 0.0) / 1e3
        )
        values |= {bucket_top(share * max(running, 1.0)) for share in (1.25, 1.5)}
    if held := kv_concurrency(experiment.facts, experiment.problem.workload):
        values |= {bucket_below(held[0]), bucket_below(held[1])}
    allowed = {clip(value, bounds) for value in values if value <= top.max_num_seqs}
    return [with_limits(best, seqs=value) for value in sorted(allowed, reverse=True)]


def _replicate(contest: Contest) -> Steps[None]:
    """Measure the two best again, in alternation, with other arrivals."""
    if contest.experiment.problem.quick or not contest.experiment.live:
        return
    ranked = sorted(
        (limits for limits in contest.results if contest.within(limits)),
        key=contest.score,
        reverse=True,
    )
    experiment, spoiled, turn = contest.experiment, 0, 0
    while turn - spoiled < REPLICATES:
        turn += 1
        pair: list[ProbeResult] = []
        for limits in ranked[:2]:
            why = f"the two best in alternation, round {turn}"
            pair.append(
                (
                    yield from experiment.probe(
                        limits, contest.load, Purpose.SEARCH, why=why, repeat=turn
                    )
                )
            )
        if spoiled < INVALID_RETRIES and (unlike := unlike_clocks(pair)) is not None:
            spoiled += 1
            experiment.notes.append(f"Round {turn} was no data and was repeated: {unlike}.")
            continue
        for result in pair:
            contest.take(result.probe.limits, result)
