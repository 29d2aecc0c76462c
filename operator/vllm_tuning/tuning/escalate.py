"""Knobs that come after budget and cap: only where what binds says that they pay, one at a time."""

from __future__ import annotations

from dataclasses import replace

from vllm_tuning.tuning.experiment import ClientBoundError, Experiment, Steps, rounded
from vllm_tuning.tuning.model import Limits, OpenLoad, Purpose
from vllm_tuning.tuning.race import Race
from vllm_tuning.tuning.text import describe

WORTH = 1.05
"""A restart-class change must carry at least this much more."""

BURSTINESS = 0.25
"""Gamma shape of the stress test's arrivals: a coefficient of variation of 2."""

BURST_SHARE = 0.9
"""Of the believed capacity: the load of the stress test."""

NOISE_POINTS = 0.02
"""Attainments closer than this are the same."""


def raise_memory_share(experiment: Experiment, race: Race, top: Limits) -> Steps[None]:
    """Try the largest memory share allowed, on a start of its own, if KV capacity is what binds.

    More KV cache cannot help where compute binds, and a share that is too large dies under load,
    so without preemptions nothing is tried.
    """
    bounds, incumbent = experiment.problem.space.gpu_memory_utilization_percent, race.incumbent
    if bounds is None or bounds.maximum is None or incumbent is None:
        return
    limiting = race.limiting(incumbent)
    share = incumbent.gpu_memory_utilization_percent
    if limiting is None or not limiting.engine.preemptions or (share or 0) >= bounds.maximum:
        return
    larger = replace(incumbent, gpu_memory_utilization_percent=bounds.maximum)
    if experiment.dominated(larger) is not None:
        return
    before = experiment.server
    result = yield from experiment.start(
        replace(top, gpu_memory_utilization_percent=bounds.maximum),
        Purpose.SEARCH,
        hook=True,
        why=f"KV capacity binds: does a memory share of {bounds.maximum} % pay?",
    )
    if result.failure is not None:
        race.lost[larger] = f"it does not start: {result.failure.message}"
        if before is not None:
            yield from experiment.start(
                before.limits, Purpose.SEARCH, hook=before.hook, why="back to the envelope"
            )
        return
    yield from race.bracket(
        larger,
        race.frontier(incumbent).high or race.estimate(incumbent),
        why="what does the larger KV cache carry?",
        probes=4,
    )
    if race.estimate(larger) >= WORTH * race.estimate(incumbent):
        race.lost[incumbent] = (
            f"{race.estimate(larger):.4g}/s with a memory share of {bounds.maximum} %"
        )
        race.incumbent = larger
    else:
        race.lost[larger] = f"{race.estimate(larger):.4g}/s are not worth a larger memory share"


def toggle_chunked_prefill(experiment: Experiment, race: Race) -> Steps[None]:
    """Compare chunked prefill on and off last, where both are allowed and possible."""
    allowed, incumbent = experiment.problem.space.enable_chunked_prefill, race.incumbent
    if not allowed or incumbent is None or not experiment.live:
        return
    now = incumbent.enable_chunked_prefill is not False
    if (not now) not in allowed:
        return
    longest = experiment.facts.max_model_len if experiment.facts else None
    if now and (longest is None or incumbent.max_num_batched_tokens < longest):
        experiment.notes.append(
            "Chunked prefill off was not tried: it needs a token budget of a whole max_model_len."
        )
        return
    other = replace(incumbent, enable_chunked_prefill=not now)
    yield from race.challenge(other, f"chunked prefill {'off' if now else 'on'}")


def stress(experiment: Experiment, race: Race) -> Steps[None]:
    """Choose between a trimmed cap and the larger one it came from by what bursts do to them.

    The trimmed one is what was measured to be used, so it stays unless the larger one is better
    beyond noise.
    """
    trimmed, uncapped = race.incumbent, race.trimmed_from
    if trimmed is None or uncapped is None or not experiment.live:
        return
    bursts = OpenLoad(rounded(BURST_SHARE * race.estimate(trimmed)), BURSTINESS)
    shares: dict[Limits, float] = {}
    for limits in (trimmed, uncapped):
        try:
            result = yield from experiment.probe(
                limits, bursts, Purpose.SEARCH, why="bursts (CV 2): does the cap need more room?"
            )
        except ClientBoundError:
            return  # nothing was seen that speaks against the cap
        if limits == trimmed and (result.engine.running_max or trimmed.max_num_seqs) < (
            trimmed.max_num_seqs
        ):
            return  # a cap that even bursts do not reach needs no comparison
        shares[limits] = min((slo.attainment or 0.0 for slo in result.slos), default=1.0)
    if shares[trimmed] < shares[uncapped] - NOISE_POINTS:
        race.lost[trimmed] = (
            f"in bursts: {shares[trimmed]:.0%} within the SLA, against {shares[uncapped]:.0%} "
            f"with {describe(uncapped)}"
        )
        race.incumbent = uncapped
