"""Whole searches as lines that a person reads: what was asked, why, and what came of it.

``UPDATE_GOLDEN=1 pytest tests/golden`` writes them anew; read the diff before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.toy_engine import ToyEngine, make_problem, run_search
from vllm_tuning.tuning.model import (
    SLO,
    Lengths,
    Limits,
    Metric,
    Objective,
    Workload,
)
from vllm_tuning.tuning.trace import conclusion, trace

HERE = Path(__file__).parent
TPOT = SLO(Metric.TPOT, percentile=95, max_milliseconds=300)
BATCH = Workload(Lengths(512), Lengths(128), arrival="Closed", concurrency=128)
FIXED = Workload(Lengths(512), Lengths(128), rate_per_second=12.0)

CASES = {
    "chat": (make_problem(), ToyEngine()),
    "quick": (make_problem(quick=True, current=Limits(1, 512)), ToyEngine()),
    "tpot-guard": (
        make_problem(slos=(TPOT,), current=Limits(256, 8192)),
        ToyEngine(slo=TPOT, guard=0.2, noise=0.01),
    ),
    "no-improvement": (make_problem(current=Limits(96, 2048)), ToyEngine()),
    "unsatisfiable": (make_problem(), ToyEngine(alone_ms=700.0)),
    "no-live-limits": (make_problem(), ToyEngine(live_limits="engine too old")),
    "out-of-memory": (make_problem(), ToyEngine(largest=Limits(128, 8192))),
    "batch": (
        make_problem(objective=Objective.MAX_THROUGHPUT, slos=(), workload=BATCH),
        ToyEngine(),
    ),
    "least-latency": (
        make_problem(objective=Objective.MIN_LATENCY, workload=FIXED),
        ToyEngine(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_search_reads_as_it_did(name: str):
    problem, engine = CASES[name]
    found, answers = run_search(problem, engine)
    text = "\n".join([*trace(answers), "", *conclusion(found)]) + "\n"
    golden = HERE / "search" / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()
