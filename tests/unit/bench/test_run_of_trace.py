"""A run whose workload is a trace: what cannot be replayed costs no start."""

from __future__ import annotations

import dataclasses
import io

from tests.unit.bench.test_run_lifecycle import problem
from vllm_tuning.bench.main import run_bench
from vllm_tuning.tuning.model import Lengths, Workload
from vllm_tuning.tuning.run import EVENT, RunFailed, RunSpec


async def test_a_trace_that_is_not_the_one_asked_for_ends_the_run_before_any_start(tmp_path):
    path = tmp_path / "trace"
    path.write_text('{"timestamp": 0, "input_length": 9, "output_length": 9}\n')
    asked = problem()
    workload = Workload(Lengths(9), Lengths(9), trace_path=str(path), trace_sha256="0" * 64)
    spec = RunSpec("run", 1, dataclasses.replace(asked, workload=workload))
    said = io.StringIO()
    assert await run_bench(spec, said) == 1  # no launcher answers: it was never asked
    (event,) = [EVENT.validate_json(line) for line in said.getvalue().splitlines()]
    assert isinstance(event, RunFailed)
    assert event.reason == "TraceInvalid"
    assert "has changed since" in event.message
