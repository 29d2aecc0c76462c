"""``max_num_seqs``: a cap a little above the need protects what a smaller batch protects.

Below the need the queue breaks TTFT; far above it nothing changes, until bursts come or the KV
cache ends.
"""

from __future__ import annotations

from vllm_tuning.tuning.experiment import Steps
from vllm_tuning.tuning.model import Limits, Metric, ProbeResult
from vllm_tuning.tuning.priors import (
    bucket_below,
    bucket_top,
    clip,
    graph_seqs,
    kv_concurrency,
    with_limits,
)
from vllm_tuning.tuning.race import Race
from vllm_tuning.tuning.standing import Standing, binding, standing

GUARDED = frozenset({Metric.TPOT, Metric.ITL, Metric.MAX_GAP, Metric.E2E_LATENCY})
"""SLOs that a smaller batch protects."""

GUARD_SHARES = (1.1, 1.25, 1.5)
"""Caps tried against what runs at the boundary: a little above the need; below it the queue breaks
TTFT.
"""

HEADROOM = (1.25, 1.5)
"""Room above the most that ran at once at the boundary: the current cap is kept from the first on,
a new one gets the second.
"""


def race_caps(race: Race) -> Steps[None]:
    """Try caps a little above the need where a smaller batch protects what binds."""
    experiment, incumbent = race.experiment, race.incumbent
    limiting = race.limiting(incumbent) if incumbent else None
    if incumbent is None or limiting is None or experiment.problem.space.max_num_seqs is None:
        return
    if not experiment.live:
        return
    for cap in _kv_caps(race, limiting):
        yield from _overtake(race, cap, "no preemption")
    bound = binding(limiting)
    if bound is None or bound.slo.metric not in GUARDED:
        return
    running = _running(race)
    caps = _guard_caps(race, running)
    tried: set[int] = set()
    position = len(caps) // 2
    while 0 <= position < len(caps) and caps[position] not in tried:
        tried.add(caps[position])
        result = yield from _overtake(race, caps[position], "a cap a little above the need")
        if result is None:
            return
        worst = binding(result)
        protects = worst is not None and worst.slo.metric in GUARDED
        position += -1 if protects else 1


def _kv_caps(race: Race, limiting: ProbeResult) -> list[int]:
    """Caps at which the KV cache holds every request whole, if preemption was seen without them."""
    incumbent, problem = race.incumbent, race.experiment.problem
    held = kv_concurrency(race.experiment.facts, problem.workload)
    if incumbent is None or held is None or not limiting.engine.preemptions:
        return []
    caps = {clip(bucket_below(value), problem.space.max_num_seqs) for value in (held[0], held[1])}
    return sorted(cap for cap in caps if cap < incumbent.max_num_seqs)


def _guard_caps(race: Race, running: float) -> list[int]:
    incumbent, bounds = race.incumbent, race.experiment.problem.space.max_num_seqs
    if incumbent is None:
        return []
    caps = {clip(bucket_top(share * running), bounds) for share in GUARD_SHARES}
    # Where every step of the budget may have a graph, a start that lacks some is no guard.
    tokens, captured = incumbent.max_num_batched_tokens, race.experiment.graph_tokens
    least = graph_seqs(tokens, captured) if tokens <= captured else 0
    return sorted(cap for cap in caps if least <= cap < incumbent.max_num_seqs)


def _running(race: Race) -> float:
    """Mean requests that run at the boundary: the engine's own number, else Little's law."""
    incumbent = race.incumbent
    low = race.frontier(incumbent).low if incumbent else None
    if incumbent is None or low is None:
        return 1.0
    result = race.frontier(incumbent).at(low)[-1]
    if result.engine.running_mean:
        return result.engine.running_mean
    return max(1.0, low * (result.e2e.mean or 0.0) / 1e3)


def _overtake(race: Race, cap: int, why: str) -> Steps[ProbeResult | None]:
    """Try a cap where the incumbent fails; within there, it takes over. ``None`` = no try."""
    incumbent = race.incumbent
    high = race.frontier(incumbent).high if incumbent else None
    if incumbent is None or high is None:
        return None
    capped = with_limits(incumbent, seqs=cap)
    result = yield from race.measure(capped, high, f"max_num_seqs {cap}: {why}")
    if standing(result) is Standing.WITHIN:
        race.lost[incumbent] = f"at {high:.4g}/s, where the cap {cap} is within the SLA"
        race.incumbent = capped
        yield from race.climb(capped)
    else:
        race.lost[capped] = f"at {high:.4g}/s: {result.message}"
    return result


def trim(race: Race) -> None:
    """Bring an idle cap down to what was used, with headroom; a current value that serves stays.

    A cap that is never reached changes nothing but the CUDA graphs of a start, which are kept. So
    this needs no probe of its own; the confirmation measures it.
    """
    incumbent, problem = race.incumbent, race.experiment.problem
    if incumbent is None or problem.space.max_num_seqs is None:
        return
    peak = _peak(race, incumbent, up_to=race.frontier(incumbent).high)
    if not peak:
        return
    graphs = graph_seqs(incumbent.max_num_batched_tokens, race.experiment.graph_tokens)
    seqs = max(bucket_top(HEADROOM[1] * peak), graphs)
    current = problem.current.max_num_seqs
    if max(HEADROOM[0] * peak, graphs) <= current <= incumbent.max_num_seqs:
        seqs = current
    trimmed = with_limits(incumbent, seqs=clip(seqs, problem.space.max_num_seqs))
    if peak < trimmed.max_num_seqs < incumbent.max_num_seqs:
        race.frontiers[trimmed] = race.frontier(incumbent)
        race.incumbent, race.trimmed_from = trimmed, incumbent


def share_if_idle(race: Race, limits: Limits, measured: Limits) -> bool:
    """Let ``limits`` and ``measured`` have their load points in common if only idle caps differ.

    Below the boundary neither cap was reached, with headroom: the engine did the same. Their own
    starts must have the same CUDA graphs too.
    """
    ours, theirs = race.frontier(limits), race.frontier(measured)
    peak = _peak(race, measured, up_to=theirs.low)
    least = min(limits.max_num_seqs, measured.max_num_seqs)
    same = with_limits(limits, seqs=measured.max_num_seqs) == measured
    lacking = race.experiment.lacks_graphs(limits) != race.experiment.lacks_graphs(measured)
    if ours is theirs or not same or lacking or not peak or HEADROOM[0] * peak > least:
        return False
    theirs.points.extend(ours.points)
    race.frontiers[limits] = theirs
    return True


def _peak(race: Race, limits: Limits, *, up_to: float | None) -> int:
    """Most requests that ran at once at loads up to ``up_to``; 0 = not known."""
    edge = up_to or race.estimate(limits)
    return max(
        (
            result.engine.running_max or 0
            for load, result in race.frontier(limits).points
            if load <= edge
        ),
        default=0,
    )
