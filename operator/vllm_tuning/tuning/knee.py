"""Where more sequences stop paying, and why: read off load points that differ in nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from vllm_tuning.tuning.model import ClosedLoad, ProbeResult, Verdict

JUMP: Final = 1.5
"""TPOT p95 that grows by this factor more than the root of the sequences' ratio is a jump."""

FLAT: Final = 0.1
"""Relative throughput gained per relative rise in sequences below which the curve is flat."""

WHOLE_SHARE: Final = 0.95
"""Of a window that must have been measured for its numbers to be shown."""

PREEMPTED_SHARE: Final = 0.01
"""Preemptions per finished request from which the KV cache is said to be short."""


def knee(points: Sequence[tuple[int, ProbeResult]]) -> tuple[int, str] | None:
    """Find the last of ``points`` (sequences, result; rising) before more sequences stop paying.

    Returns its index and why: the engine preempts at the next point, TPOT p95 jumps there, or the
    throughput no longer rises by a tenth of the rise in sequences. ``None`` = no knee seen.
    """
    for i, ((seqs, here), (more, there)) in enumerate(pairwise(points)):
        added = there.engine.preemptions or 0
        if added > (here.engine.preemptions or 0) and added > PREEMPTED_SHARE * there.completed:
            used = there.engine.kv_usage_peak_fraction
            full = f", KV cache {used:.0%} full" if used is not None else ""
            return i, f"at {more} sequences the engine preempts ({added} times{full})"
        jump = _ratio(there.tpot.p95, here.tpot.p95)
        if jump is not None and jump > JUMP * (more / seqs) ** 0.5:
            return i, f"TPOT p95 jumps {here.tpot.p95:.3g} → {there.tpot.p95:.3g} ms at {more}"
        gain = _ratio(there.output_tokens_per_second, here.output_tokens_per_second)
        if gain is not None and gain - 1 < FLAT * (more / seqs - 1):
            return i, f"{more} sequences add only {gain - 1:+.1%} throughput"
    return None


def is_whole(result: ProbeResult) -> bool:
    """Whether a result shows how much, not only who lost: an early FAIL has a cut window."""
    valid = result.verdict is not Verdict.INVALID and result.completed > 0
    return valid and result.measured_seconds >= WHOLE_SHARE * result.probe.window_seconds


def clients_of(result: ProbeResult) -> int | None:
    """Clients of a closed loop that all run at once: what ``max_num_seqs`` of that size does.

    ``None`` for open loads and for loops with more clients than sequences: those measure a queue.
    """
    load, cap = result.probe.load, result.probe.limits.max_num_seqs
    return load.concurrency if isinstance(load, ClosedLoad) and load.concurrency <= cap else None


def by_clients(probes: Iterable[ProbeResult]) -> dict[int, list[tuple[int, ProbeResult]]]:
    """Sweeps over the number of sequences, by token budget: rising clients, the latest result."""
    found: dict[int, dict[int, ProbeResult]] = defaultdict(dict)
    for result in probes:
        clients = clients_of(result)
        if clients is not None and is_whole(result):
            found[result.probe.limits.max_num_batched_tokens][clients] = result
    return {tokens: sorted(points.items()) for tokens, points in found.items()}


def _ratio(a: float | None, b: float | None) -> float | None:
    return a / b if a is not None and b else None
