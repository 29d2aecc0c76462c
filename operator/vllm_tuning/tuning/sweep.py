"""The table that an engineer makes by hand: latency and throughput against each limit.

A closed loop of as many clients as sequences, at rising numbers; then the token budget at one of
them. Short looks for people: no promise rests on them, so they are left out where time is short.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, log2, sqrt

from vllm_tuning.tuning.experiment import Experiment, Steps
from vllm_tuning.tuning.knee import is_whole
from vllm_tuning.tuning.model import (
    ClosedLoad,
    Limits,
    Load,
    ProbeResult,
    Problem,
    Purpose,
    Verdict,
)
from vllm_tuning.tuning.priors import TOKEN_BUDGETS, kv_concurrency, with_limits


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a sweep goes; times in seconds of the engine."""

    points: int
    window: tuple[float, float]
    """Least and most length of a window."""
    most: float
    """For the whole sweep over sequences, and once more for that over token budgets."""


STANDARD = Extent(points=6, window=(6.0, 12.0), most=120.0)
QUICK = Extent(points=4, window=(1.5, 3.0), most=25.0)

WINDOW_LATENCIES = 1.5
"""A window spans so many latencies: enough for a picture of a closed loop."""

WARM_UP_LATENCIES = 1.2
"""A warm-up lasts so long, but never longer than a window."""

OVERHEAD_SECONDS = 2.0
"""Of a probe beside its load: the server's facts, an idle look at the client, the drain."""

KV_ROOM = 1.25
"""The sweep goes so far beyond what the KV cache holds at mean length: preemptions begin there."""

TRADE_OFF_POINTS = 3
"""Token budgets that, measured whole at one load, show the trade-off already."""

TRADE_OFF_OCTAVES = 2
"""Doublings and halvings of the chosen token budget that are shown."""


def sweep(
    experiment: Experiment, chosen: Limits, alone: ProbeResult, top: Limits
) -> Steps[ProbeResult | None]:
    """Measure the table around ``chosen`` on the running server, as far as time allows.

    ``alone`` is a single client's result (the first guess at a latency), ``top`` the largest limits
    that the server takes. Returns the result of a single client, if there was time for it.
    """
    server = experiment.server
    share = chosen.gpu_memory_utilization_percent
    if server is None or server.limits.gpu_memory_utilization_percent != share:
        return None
    extent = QUICK if experiment.problem.quick else STANDARD
    table = _Table(experiment, extent, latency=(alone.e2e.p95 or alone.e2e.mean or 1e3) / 1e3)
    for seqs in _sizes(experiment, extent, top):
        limits = with_limits(chosen, seqs=seqs) if experiment.live else server.limits
        if not (yield from table.add(limits, seqs)):
            ends = f"ends below {seqs}" if table.points else "was left out"
            experiment.notes.append(f"The table of max_num_seqs {ends}: no more time for it.")
            break
    else:
        yield from _trade_off(table, chosen, top)
    return table.points.get(1)


def _trade_off(table: _Table, chosen: Limits, top: Limits) -> Steps[None]:
    """Vary the token budget at a size of the table, unless the race showed what that does."""
    experiment = table.experiment
    if not experiment.live or experiment.problem.quick or _shows_trade_off(experiment.probes):
        return
    clients = max((size for size in table.points if size <= chosen.max_num_seqs), default=None)
    if clients is None:
        return
    other = _Table(experiment, table.extent, latency=table.latency, clients=clients)
    for tokens in _budgets(experiment.problem, chosen, clients, top):
        if not (yield from other.add(with_limits(chosen, seqs=clients, tokens=tokens), clients)):
            experiment.notes.append("The trade-off of the token budget is given no more time.")
            return


@dataclass(slots=True)
class _Table:
    """The points of one sweep, and what the next one will take."""

    experiment: Experiment
    extent: Extent
    latency: float
    """Seconds a request took at the last point."""
    clients: int = 1
    points: dict[int, ProbeResult] = field(default_factory=dict)
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.experiment.spent_seconds

    def add(self, limits: Limits, clients: int) -> Steps[bool]:
        """Measure a point; ``False`` = it would take more time than there is."""
        experiment = self.experiment
        # Between a memory-bound step (no more latency) and a saturated one (latency in proportion).
        latency = self.latency * sqrt(max(1.0, clients / self.clients))
        least, most = self.extent.window
        window = min(max(least, WINDOW_LATENCIES * latency), most)
        takes = window + min(window, WARM_UP_LATENCIES * latency) + latency + OVERHEAD_SECONDS
        spent = experiment.spent_seconds - self.began
        # Twice the reserve: a confirmation's first attempt may fail.
        left = experiment.left_seconds - 2.0 * experiment.reserve_seconds
        if takes > min(left, self.extent.most - spent):
            return False
        result = yield from experiment.glance(
            limits,
            ClosedLoad(clients),
            Purpose.CALIBRATE,
            why="the table: as many clients as sequences",
            window_seconds=window,
        )
        if result.verdict is not Verdict.INVALID:
            self.points[clients] = result
            self.clients = clients
            self.latency = (result.e2e.p95 or result.e2e.mean or 1e3 * latency) / 1e3
        return True


def _sizes(experiment: Experiment, extent: Extent, top: Limits) -> list[int]:
    """Powers of two from 1 to just beyond the KV cache, evenly chosen."""
    server = experiment.server
    most = top.max_num_seqs if experiment.live or server is None else server.limits.max_num_seqs
    if held := kv_concurrency(experiment.facts, experiment.problem.workload):
        most = min(most, 2 ** ceil(log2(max(1.0, KV_ROOM * held[1]))))
    octaves = int(log2(most))
    last = max(1, extent.points - 1)
    return sorted({2 ** round(octaves * step / last) for step in range(extent.points)})


def _budgets(problem: Problem, chosen: Limits, clients: int, top: Limits) -> list[int]:
    """Neighbours of the chosen token budget, ascending; the chosen one has its point already."""
    if problem.space.max_num_batched_tokens is None:
        return []
    centre = chosen.max_num_batched_tokens
    least = max(TOKEN_BUDGETS[0], 2 * clients)
    around = (
        int(centre * 2.0**octave)
        for octave in range(-TRADE_OFF_OCTAVES, TRADE_OFF_OCTAVES + 1)
        if octave
    )
    return [tokens for tokens in around if least <= tokens <= top.max_num_batched_tokens]


def _shows_trade_off(probes: Iterable[ProbeResult]) -> bool:
    """Whether some load was measured whole with several token budgets and one number of seqs."""
    budgets: dict[tuple[int, Load], set[int]] = defaultdict(set)
    for result in probes:
        if is_whole(result):
            limits = result.probe.limits
            budgets[limits.max_num_seqs, result.probe.load].add(limits.max_num_batched_tokens)
    return any(len(values) >= TRADE_OFF_POINTS for values in budgets.values())
