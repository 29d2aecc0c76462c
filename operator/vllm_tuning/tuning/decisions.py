"""The reasoning behind a result, in the order in which an engineer decides.

SLA, traffic, ``max_num_seqs``, ``max_num_batched_tokens``, memory share, chunked prefill.
"""

from __future__ import annotations

from collections.abc import Mapping

from vllm_tuning.tuning.calibrate import Calibration
from vllm_tuning.tuning.experiment import Experiment
from vllm_tuning.tuning.knee import by_clients, knee
from vllm_tuning.tuning.model import DecisionStep, Lengths, Limits, ProbeResult, Problem
from vllm_tuning.tuning.priors import graph_seqs, kv_concurrency
from vllm_tuning.tuning.standing import binding
from vllm_tuning.tuning.text import load_text

LOSERS_TOLD = 4


def decide_in_order(
    experiment: Experiment,
    calibration: Calibration | None,
    chosen: Limits | None,
    lost: Mapping[Limits, str],
    limiting: ProbeResult | None,
) -> tuple[DecisionStep, ...]:
    """Tell the decisions; ``chosen`` is ``None`` when nothing met the SLA."""
    problem = experiment.problem
    steps = [_sla(problem, limiting), _traffic(problem, calibration)]
    steps.append(_seqs(experiment, calibration, chosen, lost))
    steps.append(_tokens(problem, chosen, lost))
    steps.append(_memory(experiment, chosen))
    steps.append(_chunked(problem, chosen))
    return tuple(steps)


def _sla(problem: Problem, limiting: ProbeResult | None) -> DecisionStep:
    wanted = "; ".join(str(slo) for slo in problem.slos) or "no SLO"
    bound = binding(limiting) if limiting else None
    if limiting is None or bound is None:
        return DecisionStep("SLA", wanted, "no load point beyond the SLA was needed")
    at = load_text(limiting.probe.load)
    return DecisionStep("SLA", wanted, f"{bound.slo.metric} binds: at {at}, {limiting.message}")


def _traffic(problem: Problem, calibration: Calibration | None) -> DecisionStep:
    load = problem.workload
    lengths = f"{_lengths(load.input_tokens)} in, {_lengths(load.output_tokens)} out"
    decision = f"{lengths}, {load.arrival.lower()} loop"
    if load.burstiness != 1.0:
        decision += f", burstiness {load.burstiness:g}"
    origin = load.origin or "as given"
    if calibration is None:
        return DecisionStep("traffic", decision, origin)
    alone = calibration.alone
    first, pace = alone.ttft.p50 or alone.ttft.mean, alone.tpot.p50 or alone.tpot.mean
    told = [f"TTFT {first:.4g} ms" if first else "", f"TPOT {pace:.3g} ms" if pace else ""]
    seen = " and ".join(part for part in told if part) or "no latency"
    why = f"a request that runs alone takes {seen}"
    return DecisionStep("traffic", decision, f"{load.origin}; {why}" if load.origin else why)


def _lengths(lengths: Lengths) -> str:
    spread = f" (CV {lengths.cv_percent / 100:g})" if lengths.cv_percent else ""
    return f"{lengths.mean} tokens{spread}"


def _seqs(
    experiment: Experiment,
    calibration: Calibration | None,
    chosen: Limits | None,
    lost: Mapping[Limits, str],
) -> DecisionStep:
    problem = experiment.problem
    reasons = []
    if calibration and calibration.first_guess_seqs:
        reasons.append(
            f"TTFT bound / single request suggests {calibration.first_guess_seqs} at least"
        )
    if held := kv_concurrency(experiment.facts, problem.workload):
        reasons.append(
            f"the KV cache holds {held[0]} requests at full length, {held[1]} at mean length"
        )
    if chosen is not None:
        reasons += _knee(experiment, chosen) + _graphs(experiment, chosen)
        reasons += [
            f"{limits.max_num_seqs} lost {why}"
            for limits, why in lost.items()
            if limits.max_num_batched_tokens == chosen.max_num_batched_tokens
            and limits.max_num_seqs != chosen.max_num_seqs
        ][:LOSERS_TOLD]
    return DecisionStep(
        "max_num_seqs",
        _change(problem.current.max_num_seqs, chosen.max_num_seqs if chosen else None),
        "; ".join(reasons) or "the only value allowed",
    )


def _knee(experiment: Experiment, chosen: Limits) -> list[str]:
    """The knee of the closed loops at the chosen token budget, if it was seen."""
    points = by_clients(experiment.probes).get(chosen.max_num_batched_tokens, [])
    found = knee(points)
    return [f"knee at {points[found[0]][0]}: {found[1]}"] if found else []


def _graphs(experiment: Experiment, chosen: Limits) -> list[str]:
    """Why an idle cap is not lower."""
    tokens = min(chosen.max_num_batched_tokens, experiment.graph_tokens)
    if not tokens or chosen.max_num_seqs != graph_seqs(tokens, experiment.graph_tokens):
        return []
    return [f"{chosen.max_num_seqs} is the least with CUDA graphs for steps of {tokens} tokens"]


def _tokens(problem: Problem, chosen: Limits | None, lost: Mapping[Limits, str]) -> DecisionStep:
    losers = [
        f"{limits.max_num_batched_tokens} lost {why}"
        for limits, why in lost.items()
        if chosen is None or limits.max_num_batched_tokens != chosen.max_num_batched_tokens
        if limits != problem.current  # the gain tells of those
    ][:LOSERS_TOLD]
    return DecisionStep(
        "max_num_batched_tokens",
        _change(
            problem.current.max_num_batched_tokens,
            chosen.max_num_batched_tokens if chosen else None,
        ),
        "; ".join(losers) or "no other value was better",
    )


def _memory(experiment: Experiment, chosen: Limits | None) -> DecisionStep:
    problem = experiment.problem
    current = problem.current.gpu_memory_utilization_percent
    value = chosen.gpu_memory_utilization_percent if chosen else None
    told = "as the target has it" if value == current else _change(current, value)
    peak = max(
        (result.engine.kv_usage_peak_fraction or 0.0 for result in experiment.probes), default=0.0
    )
    why = f"the KV cache was at most {peak:.0%} full" if peak else "KV usage was not measured"
    return DecisionStep("gpu_memory_utilization", told, why)


def _chunked(problem: Problem, chosen: Limits | None) -> DecisionStep:
    value = chosen.enable_chunked_prefill if chosen else None
    if value == problem.current.enable_chunked_prefill:
        return DecisionStep("enable_chunked_prefill", "as the target has it", "not varied")
    return DecisionStep("enable_chunked_prefill", "on" if value else "off", "better in the race")


def _change(current: int | None, chosen: int | None) -> str:
    if chosen is None:
        return f"{current}: no value meets the SLA"
    return f"{current}: kept" if chosen == current else f"{current} → {chosen}"


def name_binding(limiting: ProbeResult | None, chosen: Limits | None) -> str:
    """What stops more load, in a few words."""
    if limiting is None:
        return ""
    bound = binding(limiting)
    name = str(bound.slo) if bound else limiting.reason
    cap = limiting.engine.running_max
    if chosen is not None and cap is not None and cap >= chosen.max_num_seqs:
        name += f", with all {chosen.max_num_seqs} sequences of max_num_seqs in use"
    if limiting.engine.preemptions:
        name += f", with {limiting.engine.preemptions} preemptions (KV capacity)"
    return name
