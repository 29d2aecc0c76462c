"""From what was measured to a recommendation, or to an honest ending without one."""

from __future__ import annotations

from dataclasses import dataclass, field

from vllm_tuning.tuning.calibrate import Calibration
from vllm_tuning.tuning.confirm import Confirmation
from vllm_tuning.tuning.decisions import decide_in_order, name_binding
from vllm_tuning.tuning.experiment import Experiment
from vllm_tuning.tuning.gain import Carried, Gain, gain_at_load, gain_in_load, replicas_for
from vllm_tuning.tuning.model import (
    Bounds,
    Ending,
    Limits,
    Load,
    Objective,
    OpenLoad,
    ParameterChoice,
    ProbeResult,
    Problem,
    Recommendation,
    SLOMargin,
    Verdict,
)
from vllm_tuning.tuning.text import describe, load_text


@dataclass(slots=True)
class Findings:
    """What the search knows when it ends, whatever the reason."""

    experiment: Experiment
    calibration: Calibration | None = None
    chosen: Limits | None = None
    """The best limits of the race, confirmed or not."""
    lost: dict[Limits, str] = field(default_factory=dict)
    limiting: ProbeResult | None = None
    """A load point just beyond what ``chosen`` carries."""
    nearest_miss: ProbeResult | None = None
    equals: list[Limits] = field(default_factory=list)
    """Configurations that noise does not tell from ``chosen``."""
    unbounded_tokens: int | None = None
    """The token budget that the model prefers when bounds are ignored."""
    chosen_load: Carried | None = None
    """What the race believes ``chosen`` to carry."""
    baseline_load: Carried | None = None
    """The same of the current limits; ``None`` = not measured."""
    chosen_results: list[ProbeResult] = field(default_factory=list)
    """Of ``chosen`` at a given load."""
    baseline_results: list[ProbeResult] = field(default_factory=list)
    """The same of the current limits; empty where they do not meet the SLA."""
    baseline: ProbeResult | None = None
    before: ProbeResult | None = None
    confirmation: Confirmation | None = None
    kept: str = ""
    """Why the current limits are kept though others did a little better; then they are ``chosen``,
    and the gain is that of the others."""
    gain: Gain | None = None


def confirmed(findings: Findings) -> Recommendation:
    """Make the recommendation of a confirmed result: ``Recommended`` or ``NoImprovement``."""
    problem = findings.experiment.problem
    confirmation = findings.confirmation
    if confirmation is None or confirmation.load is None or confirmation.result is None:
        raise AssertionError("only a confirmed result is a recommendation")
    limits, result = confirmation.limits, confirmation.result
    gain = findings.gain or _gain(findings, result)
    carried = load_text(confirmation.load)
    if no_gain := findings.kept or _no_gain(problem, limits, gain):
        who = "The current limits are confirmed" if findings.kept else "Confirmed"
        message = f"{no_gain} {who} at {carried}."
        return _filled(findings, Ending.NO_IMPROVEMENT, message, load=confirmation.load,
        result=result, gain=gain)  # fmt: skip
    against = _told_gain(gain) if gain is not None else _without_gain(findings)
    message = f"{describe(limits)} confirmed at {carried} on a fresh start ({against})."
    replicas = _replicas(problem, confirmation.load)
    if replicas is not None and problem.workload.rate_per_second:
        message += (
            f" The workload's {problem.workload.rate_per_second:.4g} requests/s need "
            f"{replicas} replica{'s' if replicas > 1 else ''}."
        )
    if problem.quick:
        message += " Quick run: the same rules on shorter windows."
    return _filled(
        findings,
        Ending.RECOMMENDED,
        message,
        limits=limits,
        load=confirmation.load,
        result=result,
        gain=gain,
        parameters=_parameters(findings, limits),
    )


def keep_current(findings: Findings) -> bool:
    """Turn to the current limits if the race's loads show too little gain over them.

    What the user keeps is then confirmed, and not what is not recommended.
    """
    problem, chosen = findings.experiment.problem, findings.chosen
    if chosen is None or chosen == problem.current or not too_little(findings):
        return False
    findings.gain = gain_of_loads(findings)
    findings.kept = _no_gain(problem, chosen, findings.gain)
    findings.lost[chosen] = findings.kept
    findings.chosen, findings.chosen_load = problem.current, findings.baseline_load
    return True


def _no_gain(problem: Problem, limits: Limits, gain: Gain | None) -> str:
    """Say why what was found is no improvement; empty if it is one."""
    if limits == problem.current:
        return "The current limits are the best found."
    if gain is None:
        return ""
    told = f"{describe(limits)}: {_told_gain(gain)} against the current limits"
    if gain.percent <= 0.0:
        return f"{describe(limits)} carries no more than the current limits."
    if gain.percent < problem.minimum_gain_percent:
        return f"{told}, below the least gain of {problem.minimum_gain_percent:g} %."
    if gain.low is not None and gain.low < 0.0:
        return f"{told}, which noise does not tell from none."
    return ""


def _told_gain(gain: Gain) -> str:
    told = f"{gain.percent:+.1f} %"
    return told if gain.range is None else f"{told}, {gain.range[0]:+.0f} to {gain.range[1]:+.0f}"


def _replicas(problem: Problem, load: Load) -> int | None:
    """Replicas for the workload's own rate, where the load was not given but found."""
    rate = problem.workload.rate_per_second
    if problem.objective is not Objective.MAX_RATE or not rate or not isinstance(load, OpenLoad):
        return None
    return replicas_for(rate, load.rate_per_second)


def _without_gain(findings: Findings) -> str:
    """Say why there is no gain to tell: what was not measured is not called bad."""
    if findings.baseline_load is None and findings.baseline is None:
        return "the current limits were not measured"
    return "the current limits met the SLA at no load that was tried"


def unconfirmed(findings: Findings, ending: Ending, message: str) -> Recommendation:
    """End without a recommendation, but with all that is known."""
    return _filled(findings, ending, message)


def _filled(
    findings: Findings,
    ending: Ending,
    message: str,
    *,
    limits: Limits | None = None,
    load: Load | None = None,
    result: ProbeResult | None = None,
    gain: Gain | None = None,
    parameters: tuple[ParameterChoice, ...] = (),
) -> Recommendation:
    experiment = findings.experiment
    if experiment.cut_short and ending is not Ending.BUDGET_EXHAUSTED:
        message += " The budget ended the search before it was complete."
    if experiment.notes:
        message = " ".join([message, *experiment.notes])
    return Recommendation(
        ending=ending,
        message=message,
        limits=limits,
        parameters=parameters,
        load=load,
        result=result,
        baseline=findings.baseline,
        before=findings.before,
        margins=margins_of(result) if result else (),
        gain_percent=round(gain.percent, 1) if gain is not None else None,
        gain_range_percent=gain.range if gain is not None else None,
        replicas=_replicas(experiment.problem, load) if load is not None else None,
        binding_limit=name_binding(findings.limiting, findings.chosen),
        nearest_miss=findings.nearest_miss,
        decisions=decide_in_order(
            experiment, findings.calibration, findings.chosen, findings.lost, findings.limiting
        ),
        engine_starts=len(experiment.starts),
        probes=len(experiment.probes),
        engine_seconds=round(experiment.spent_seconds * experiment.problem.gpus, 1),
    )


def _gain(findings: Findings, result: ProbeResult) -> Gain | None:
    """Over the baseline: in load, in throughput, or in latency saved at the rate.

    Loads are compared as the race saw them, on one server and by one standard; the confirmed load
    backs off from it.
    """
    objective = findings.experiment.problem.objective
    if objective is not Objective.MAX_RATE:
        return gain_at_load(objective, findings.chosen_results, findings.baseline_results, result)
    return gain_of_loads(findings)


def too_little(findings: Findings) -> bool:
    """Whether the race's loads show less than the least gain that is asked for."""
    gain = gain_of_loads(findings)
    return gain is not None and gain.percent < findings.experiment.problem.minimum_gain_percent


def gain_of_loads(findings: Findings) -> Gain | None:
    """Return the gain by what the race saw of both; ``None`` = it did not see both."""
    if findings.baseline_load is None or findings.chosen_load is None:
        return None
    fails = findings.before is not None and findings.before.verdict is Verdict.FAIL
    return gain_in_load(findings.chosen_load, findings.baseline_load, baseline_fails=fails)


def margins_of(result: ProbeResult) -> tuple[SLOMargin, ...]:
    """Return the room left to each SLO of a result."""
    margins = []
    for slo in result.slos:
        bound, seen = slo.slo.max_milliseconds, slo.observed_milliseconds
        left = 100.0 * (1.0 - seen / bound) if bound and seen is not None else None
        if bound is None and slo.attainment is not None and slo.slo.max_percent:
            left = 100.0 * (1.0 - (1.0 - slo.attainment) * 100.0 / slo.slo.max_percent)
        margins.append(
            SLOMargin(slo.slo, seen, slo.attainment, round(left, 1) if left is not None else None)
        )
    return tuple(margins)


def _parameters(findings: Findings, chosen: Limits) -> tuple[ParameterChoice, ...]:
    problem = findings.experiment.problem
    current = problem.current
    equals = [limits for limits in findings.equals if limits != chosen] + [chosen]
    choices = []
    if problem.space.max_num_seqs is not None:
        choices.append(
            _choice(
                "max_num_seqs",
                current.max_num_seqs,
                chosen.max_num_seqs,
                [limits.max_num_seqs for limits in equals],
                None,
            )
        )
    if problem.space.max_num_batched_tokens is not None:
        choices.append(
            _choice(
                "max_num_batched_tokens",
                current.max_num_batched_tokens,
                chosen.max_num_batched_tokens,
                [limits.max_num_batched_tokens for limits in equals],
                _cut_off(
                    findings.unbounded_tokens,
                    chosen.max_num_batched_tokens,
                    problem.space.max_num_batched_tokens,
                ),
            )
        )
    share, was = chosen.gpu_memory_utilization_percent, current.gpu_memory_utilization_percent
    if share is not None and share != was:
        choices.append(
            ParameterChoice("gpu_memory_utilization", _fraction(was), f"{share / 100:g}")
        )
    old, new = current.enable_chunked_prefill, chosen.enable_chunked_prefill
    if problem.space.enable_chunked_prefill is not None and old != new:
        choices.append(ParameterChoice("enable_chunked_prefill", _flag(old), _flag(new) or "true"))
    return tuple(choices)


def _choice(
    name: str, current: int, chosen: int, equals: list[int], cut_off: int | None
) -> ParameterChoice:
    return ParameterChoice(
        name=name,
        current=str(current),
        recommended=str(chosen),
        lower_bound=str(min(equals)),
        upper_bound=str(max(equals)),
        uncapped=str(cut_off if cut_off is not None else chosen),
    )


def _cut_off(preferred: int | None, chosen: int, bounds: Bounds) -> int | None:
    """The value beyond the bounds that the model prefers, if bounds stopped the search."""
    if preferred is None:
        return None
    above = bounds.maximum is not None and chosen >= bounds.maximum and preferred > bounds.maximum
    below = bounds.minimum is not None and chosen <= bounds.minimum and preferred < bounds.minimum
    return preferred if above or below else None


def _fraction(percent: int | None) -> str | None:
    return None if percent is None else f"{percent / 100:g}"


def _flag(value: bool | None) -> str | None:
    return None if value is None else str(value).lower()


def refuse(problem: Problem) -> str | None:
    """Say why the problem cannot be measured at all, before anything is started."""
    if problem.objective is Objective.MAX_RATE and not problem.slos:
        return "MaxRateUnderSLO needs at least one SLO: without a bound every load is fine."
    if problem.objective is Objective.MIN_LATENCY and not problem.workload.rate_per_second:
        return "MinLatencyAtRate needs the rate: set the demand in the workload."
    if problem.objective is Objective.MAX_THROUGHPUT and not problem.workload.concurrency:
        return "MaxThroughputAtConcurrency needs the number of clients: set the concurrency."
    return None
