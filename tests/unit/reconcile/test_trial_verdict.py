"""A load that needs several arrival seeds passes only with all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.reconcile.bench_events import BETTER, a_probe, probe_result
from vllm_tuning.api.trial import TrialOutcome
from vllm_tuning.reconcile.trial_verdict import best_load, by_load, measured
from vllm_tuning.tuning.model import SLO, Metric, ProbeResult, Purpose, SLOResult, Verdict


def seed(rate: float, verdict: Verdict, *, sure: float = 600.0) -> ProbeResult:
    """Return one arrival seed of a confirmation; ``sure``: independent requests it is worth."""
    probe = replace(a_probe("p", BETTER, Purpose.CONFIRM, rate), decide=True, alpha=0.01)
    result = probe_result(probe, verdict)
    few_errors = SLO(metric=Metric.ERROR_RATE, max_percent=5)
    slo = SLOResult(few_errors, 1.0, verdict=verdict, effective_count=sure)
    return replace(result, slos=(slo,))


@pytest.mark.parametrize(
    ("seeds", "outcome", "best"),
    [
        ([seed(20, Verdict.PASS), seed(20, Verdict.PASS)], TrialOutcome.SUCCEEDED, "20"),
        ([seed(20, Verdict.PASS), seed(20, Verdict.FAIL)], TrialOutcome.SLO_VIOLATED, None),
        (
            [seed(20, Verdict.PASS), seed(20, Verdict.FAIL), *[seed(18, Verdict.UNDECIDED)] * 2],
            TrialOutcome.SUCCEEDED,
            "18",
        ),
        ([seed(18, Verdict.UNDECIDED, sure=20)] * 2, TrialOutcome.INCONCLUSIVE, None),
        ([seed(18, Verdict.INVALID)], TrialOutcome.INCONCLUSIVE, None),
    ],
)
def test_seeds_count_together(seeds, outcome, best):
    loads = by_load(seeds)
    assert measured(loads)[0] is outcome
    found = best_load(loads)
    assert (found and found.requests_per_second) == best
