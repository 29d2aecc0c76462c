"""Three ways to judge loads, as generators that ask for runs: ours as the product runs it, the
point percentile of one run, and a sequential test that takes requests for independent.

All go down from the load that they are given, by at most ``ATTEMPTS`` steps, until one holds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from math import log
from typing import TypeAlias

import numpy as np
from batchqueue import Run, Span
from cases import Case
from replay import Recorded, measure
from truth import Truth

from vllm_tuning.tuning.confirm import ATTEMPTS, attempt_alpha, confirm
from vllm_tuning.tuning.experiment import Experiment, Steps
from vllm_tuning.tuning.model import (
    SLO,
    EngineFacts,
    OpenLoad,
    ProbeResult,
    Problem,
    Start,
    StartResult,
    Verdict,
)
from vllm_tuning.tuning.outcomes import outcomes_of
from vllm_tuning.tuning.pacing import confirm_window, pace_of
from vllm_tuning.tuning.samples import Floats, Mask, RequestSamples
from vllm_tuning.tuning.verdict import target

WRONG_FAIL = 0.05
"""Chance of a wrong FAIL that the sequential test is made for."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A run at a load, as long as a rule may read it."""

    load: float
    span: Span


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a rule said of the load that it began with, and what it promised in the end."""

    first: Verdict
    first_requests: int
    first_seconds: float
    claimed: float | None
    requests: int
    seconds: float


Rule: TypeAlias = Callable[[Case, Truth, float], Generator[Ask, Run, Outcome]]


def ours(case: Case, truth: Truth, load: float) -> Generator[Ask, Run, Outcome]:
    """``tuning.confirm`` with all that it calls."""
    problem = case.problem()
    experiment = Experiment(problem)
    experiment.latency_seconds = truth.latency_seconds  # known from the race
    steps: Steps[object] = confirm(
        experiment, case.limits, OpenLoad(load, case.workload.burstiness)
    )
    started = next(steps)
    assert isinstance(started, Start)
    question = steps.send(StartResult(started, 0.0, facts=EngineFacts()))
    results: list[ProbeResult] = []
    try:
        while True:
            assert not isinstance(question, Start)
            assert isinstance(question.load, OpenLoad)
            window = question.window_seconds
            total = question.windows * window + 4 * truth.latency_seconds + 1.0
            seen = yield Ask(
                question.load.rate_per_second, Span(min(window / 4, 10.0), window, total)
            )
            results.append(measure(Recorded(seen), question, problem.slos))
            question = steps.send(results[-1])
    except StopIteration as end:
        outcome = end.value
    firsts = [result for result in results if result.probe.load == results[0].probe.load]
    claimed = outcome.load.rate_per_second if outcome.load else None
    return Outcome(
        first=outcome.failed[0].verdict if outcome.failed else Verdict.PASS,
        first_requests=sum(result.sent for result in firsts),
        first_seconds=sum(result.seconds for result in firsts),
        claimed=claimed,
        requests=sum(result.sent for result in results),
        seconds=sum(result.seconds for result in results),
    )


def point_percentile(case: Case, truth: Truth, load: float) -> Generator[Ask, Run, Outcome]:
    """One window; within when its percentile is."""
    return (yield from _descend(case, truth, load, _point, windows=1))


def independent(case: Case, truth: Truth, load: float) -> Generator[Ask, Run, Outcome]:
    """Wald's sequential test of each SLO, request by request, at our level of an attempt."""
    return (yield from _descend(case, truth, load, _sequential, windows=3))


Judge: TypeAlias = Callable[[Problem, Recorded, float, float], tuple[Verdict, float]]


def _descend(
    case: Case, truth: Truth, load: float, judge: Judge, *, windows: int
) -> Generator[Ask, Run, Outcome]:
    problem = case.problem()
    pace = pace_of(problem)
    first: tuple[Verdict, int, float] | None = None
    requests, seconds = 0, 0.0
    claimed: float | None = None
    for _ in range(ATTEMPTS):
        window = confirm_window(pace, problem, OpenLoad(load), truth.latency_seconds)
        longest = min(window, 12.0) + windows * window + 3 * truth.latency_seconds
        span = Span(min(window / 4, 10.0), window, longest)
        recorded = Recorded((yield Ask(load, span)))
        warm = recorded.warm_at(window)
        verdict, now = judge(problem, recorded, warm, warm + windows * window)
        sent = int((recorded.run.scheduled_at <= now).sum())
        requests, seconds = requests + sent, seconds + now
        first = first or (verdict, sent, now)
        if verdict is Verdict.PASS:
            claimed = load
            break
        load *= pace.back_off
    assert first is not None
    return Outcome(*first, claimed, requests, seconds)


def _point(problem: Problem, recorded: Recorded, warm: float, end: float) -> tuple[Verdict, float]:
    settled = recorded.settled_at(warm, end, limit=end - warm)
    return point_verdict(problem.slos, recorded.sent_between(warm, end, now=settled)), settled


def point_verdict(slos: Sequence[SLO], rows: RequestSamples) -> Verdict:
    """Say ``PASS`` where the share within each SLO is at its target, as peers do."""
    within = all(share_within(slo, rows) >= target(slo) for slo in slos)
    return Verdict.PASS if within else Verdict.FAIL


def share_within(slo: SLO, rows: RequestSamples) -> float:
    """Return the share of requests within; what has not ended is a miss."""
    return outcomes_of(slo, rows).pessimistic().attainment or 0.0


def _sequential(
    problem: Problem, recorded: Recorded, warm: float, end: float
) -> tuple[Verdict, float]:
    return sequential_verdict(problem.slos, recorded, warm, end, alpha=attempt_alpha(problem.alpha))


def sequential_verdict(
    slos: Sequence[SLO], recorded: Recorded, warm: float, end: float, *, alpha: float
) -> tuple[Verdict, float]:
    """Test each SLO's target against half the misses; return the verdict and when it fell."""
    accept, reject = log((1 - WRONG_FAIL) / alpha), log(WRONG_FAIL / (1 - alpha))
    passed, failed = [], []
    for slo in slos:
        rows = recorded.sent_between(warm, end)
        rows = rows.select(~np.isnan(rows.last_token_at))
        order = np.argsort(rows.last_token_at)
        hits = outcomes_of(slo, rows).hits[order]
        goal = target(slo)
        better = goal + (1 - goal) / 2
        walk = np.cumsum(np.where(hits > 0, log(better / goal), log((1 - better) / (1 - goal))))
        ended = rows.last_token_at[order]
        passed.append(_first(walk >= accept, walk <= reject, ended))
        failed.append(_first(walk <= reject, walk >= accept, ended))
    lost, won = min(failed), max(passed)
    if lost <= min(won, end):
        return Verdict.FAIL, lost
    return (Verdict.PASS, won) if won <= end else (Verdict.UNDECIDED, end)


def _first(hit: Mask, other: Mask, at: Floats) -> float:
    """When ``hit`` is first true, never if ``other`` was before."""
    if not hit.any():
        return float("inf")
    index = int(np.argmax(hit))
    return float("inf") if other[:index].any() else float(at[index])


RULES: dict[str, Rule] = {
    "ours": ours,
    "point percentile of one run": point_percentile,
    "i.i.d. sequential test": independent,
}
