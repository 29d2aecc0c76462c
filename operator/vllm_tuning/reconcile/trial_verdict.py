"""What the probes of a trial say together."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_tuning.api.trial import TrialOutcome
from vllm_tuning.api.values import LoadPoint
from vllm_tuning.reconcile import convert
from vllm_tuning.tuning.experiment import load_value
from vllm_tuning.tuning.model import Load, ProbeResult, Verdict
from vllm_tuning.tuning.pool import pool


def measured(results: Sequence[ProbeResult]) -> tuple[TrialOutcome, str]:
    """Judge by the best verdict; in the race that verdict is provisional, which the points say."""
    for verdict, outcome in (
        (Verdict.PASS, TrialOutcome.SUCCEEDED),
        (Verdict.UNDECIDED, TrialOutcome.INCONCLUSIVE),
        (Verdict.FAIL, TrialOutcome.SLO_VIOLATED),
    ):
        for result in reversed(results):
            if result.verdict is verdict:
                return outcome, result.message
    return TrialOutcome.INCONCLUSIVE, results[-1].message


def by_load(results: Sequence[ProbeResult]) -> list[ProbeResult]:
    """Return one result per load, in the order of measuring.

    A load that must pass with several arrival seeds has not passed where one of them failed.
    """
    groups: dict[Load, list[ProbeResult]] = {}
    for result in results:
        if result.verdict is not Verdict.INVALID:
            groups.setdefault(result.probe.load, []).append(result)
    return [_judged(group) for group in groups.values()] or list(results)


def _judged(results: Sequence[ProbeResult]) -> ProbeResult:
    last = results[-1]
    if not last.probe.decide or all(result.verdict is Verdict.PASS for result in results):
        return last
    failed = next((result for result in results if result.verdict is Verdict.FAIL), None)
    if len(results) == 1 or failed:
        return failed or last
    return pool(results, alpha=last.probe.alpha)


def best_load(results: Sequence[ProbeResult]) -> LoadPoint | None:
    """Return the highest load that passed; ``results`` are those of ``by_load``."""
    passed = [result.probe.load for result in results if result.verdict is Verdict.PASS]
    if not passed:
        return None
    return convert.load(max(passed, key=load_value))
