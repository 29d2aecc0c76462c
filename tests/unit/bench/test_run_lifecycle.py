"""Whole runs against the simulated engine: stopped, resumed, out of budget, with a dying engine."""

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.bench.launcher.ports import free_port
from tests.unit.bench.simulated_engine import vllm_command
from vllm_tuning.bench.loop import blame_engine, check_record, distinct
from vllm_tuning.bench.main import run_bench
from vllm_tuning.bench.meter import Meter
from vllm_tuning.bench.session import LauncherAddress, connect, local_launcher
from vllm_tuning.engine.failures import StartDiagnosis
from vllm_tuning.tuning.model import (
    SLO,
    Budget,
    ClosedLoad,
    Ending,
    EngineDeltas,
    EngineFacts,
    Lengths,
    Limits,
    Metric,
    Objective,
    Probe,
    ProbeResult,
    Problem,
    Purpose,
    Space,
    Start,
    StartResult,
    Verdict,
    Workload,
)
from vllm_tuning.tuning.run import (
    EVENT,
    RUN_SPEC,
    SUMMARY,
    ProbeBegan,
    ProbeEnded,
    RunFailed,
    RunSpec,
    RunStarted,
    StartBegan,
    StartEnded,
)


def problem(seconds=600.0):
    return Problem(
        slos=(SLO(Metric.TTFT, 95, max_milliseconds=5000),),
        objective=Objective.MAX_RATE,
        workload=Workload(Lengths(64), Lengths(8)),
        current=Limits(2, 2048),
        space=Space(),
        budget=Budget(gpu_seconds=seconds, deadline_seconds=seconds),
        quick=True,
    )


class Lines:
    """A stream that hands each event to whoever waits for it."""

    def __init__(self):
        self.events = []
        self._arrived = asyncio.Event()

    def write(self, line):
        self.events.append(EVENT.validate_json(line))
        self._arrived.set()

    def flush(self):
        pass

    async def next(self):
        self._arrived.clear()
        await self._arrived.wait()

    async def until(self, kind):
        while not self.of(kind):
            await self.next()

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def spec_for(directory, **changes):
    """A run's spec for a launcher of its own."""
    env = {**os.environ, "SIMULATE_PRESET": "tiny", **changes.pop("env", {})}
    command = [vllm_command(directory), "serve", "m", "--max-num-seqs=2"]
    async with local_launcher(command, env=env) as address:
        yield replace(
            RunSpec("run", 1, problem()),
            launcher_url=address.url,
            token_file=str(address.token_file),
            engine_port=free_port(),
            **changes,
        )


async def stop_after(kind, spec):
    """Run until an event of that kind, then stop the run from outside."""
    lines = Lines()
    task = asyncio.ensure_future(run_bench(spec, lines))
    await lines.until(kind)
    task.cancel()
    assert await task == 1
    return lines


async def test_a_stopped_run_resumes_without_measuring_anything_twice(tmp_path):
    async with spec_for(tmp_path) as spec:
        first = await stop_after(ProbeEnded, spec)
        assert [event.seq for event in first.events] == list(range(1, len(first.events) + 1))
        assert first.events[-1].reason == "Terminated"
        answers = tuple(e.result for e in first.events if isinstance(e, StartEnded | ProbeEnded))

        again = await stop_after(ProbeBegan, replace(spec, attempt=2, previous=answers))
        assert again.of(RunStarted)[0].replayed == len(answers) == 2
        assert again.of(StartBegan)[0].start == first.of(StartBegan)[0].start
        assert again.of(ProbeBegan)[0].probe.id != first.of(ProbeBegan)[0].probe.id


async def test_the_budget_is_hard_and_its_end_is_an_answer(tmp_path):
    """A start that outlasts the budget is cut off where the budget ends."""
    async with spec_for(tmp_path, env={"SIMULATE_START_SECONDS": "100000"}) as spec:
        lines = Lines()
        assert await run_bench(replace(spec, problem=problem(20.0)), lines) == 0
        ended = lines.events[-1]
        assert isinstance(lines.events[-2], StartBegan)
        assert ended.recommendation.ending is Ending.BUDGET_EXHAUSTED
        assert ended.recommendation.limits is None
        assert ended.engine_seconds >= 20.0


async def test_an_engine_that_keeps_dying_ends_the_run(tmp_path):
    async with spec_for(tmp_path, env={"SIMULATE_CRASH_AFTER_REQUESTS": "16"}) as spec:
        lines = Lines()
        status = await run_bench(spec, lines)
        last = lines.events[-1]
        if status == 0:  # the search gave up on INVALID probes first
            assert last.recommendation.limits is None
        else:
            assert last.reason == "EngineUnstable"
        assert all(e.result.verdict is not Verdict.PASS for e in lines.of(ProbeEnded))


async def test_an_engine_killed_between_probes_is_started_again(tmp_path):
    async with spec_for(tmp_path) as spec:
        lines = Lines()
        task = asyncio.ensure_future(run_bench(spec, lines))
        await lines.until(ProbeEnded)
        address = LauncherAddress(spec.launcher_url, Path(spec.token_file))
        async with connect(address) as launcher:
            os.kill((await launcher.engine()).pid, signal.SIGKILL)
        while not any(e.result.verdict is not Verdict.INVALID for e in lines.of(ProbeEnded)[1:]):
            await lines.next()
        task.cancel()
        await task
        starts = [event.start.id for event in lines.of(StartBegan)]
        assert starts == ["s1", "s1"]


async def test_no_launcher_is_told(tmp_path):
    token = tmp_path / "token"
    token.write_text("x")
    lines = Lines()
    spec = RunSpec("run", 1, problem(), launcher_url="http://127.0.0.1:9", token_file=str(token))
    async with asyncio.timeout(60):
        task = asyncio.ensure_future(run_bench(spec, lines))
        await asyncio.sleep(0)
        task.cancel()
        await task
    assert isinstance(lines.events[-1], RunFailed)
    missing = replace(spec, token_file=str(tmp_path / "none"))
    assert await run_bench(missing, lines) == 1
    assert "token" in lines.events[-1].message


async def test_the_command_ends_well_when_the_pod_is_evicted(tmp_path):
    async with spec_for(tmp_path) as spec:
        path = tmp_path / "spec.json"
        path.write_bytes(RUN_SPEC.dump_json(spec))
        message = tmp_path / "message"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "vllm_tuning", "bench", "--spec", str(path),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "TERMINATION_LOG": str(message)},
        )  # fmt: skip
        events = []
        async for line in process.stdout:
            events.append(EVENT.validate_json(line))
            if isinstance(events[-1], StartBegan):
                process.send_signal(signal.SIGTERM)
        assert await process.wait() == 1
        assert events[-1].reason == "Terminated"
        assert SUMMARY.validate_json(message.read_bytes()).reason == "Terminated"


@pytest.mark.parametrize("text", ['{"version": 99}', '{"version": 1}'])
async def test_a_spec_that_is_not_ours_is_refused(tmp_path, text):
    path = tmp_path / "spec.json"
    path.write_text(text)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vllm_tuning", "bench", "--spec", str(path),
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, stderr = await process.communicate()
    assert process.returncode == 2
    assert b"spec.json" in stderr


def start_result(number, seconds=10.0):
    start = Start(f"s{number}", Purpose.SEARCH, Limits(1, 1), hook=True)
    return StartResult(start, seconds, facts=EngineFacts())


def probe_result(seconds=5.0):
    probe = Probe("p1", Purpose.SEARCH, Limits(1, 1), ClosedLoad(1), 1, 1.0)
    return ProbeResult(probe, Verdict.UNDECIDED, "LooksWithinSLO", "", seconds=seconds)


def test_a_start_repeated_by_a_resumed_run_is_replayed_once():
    answers = [start_result(1), probe_result(), start_result(1, 20.0), start_result(2)]
    assert distinct(answers) == [answers[0], answers[1], answers[3]]


def test_out_of_memory_under_load_is_an_answer_and_any_other_death_is_none():
    memory = StartDiagnosis("Infeasible", "OutOfMemory", "no memory")
    assert blame_engine(probe_result(), memory).verdict is Verdict.FAIL
    assert blame_engine(probe_result(), memory).reason == "OutOfMemory"
    crash = StartDiagnosis("Environment", "EngineCrashed", "segfault")
    assert blame_engine(probe_result(), crash).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("running", "tokens", "fits"), [(1, 1, True), (None, None, True), (2, 1, False), (1, 2, False)]
)
def test_a_step_beyond_the_limits_makes_a_probe_invalid(running, tokens, fits):
    seen = EngineDeltas(hook_running_max=running, hook_scheduled_tokens_max=tokens)
    found = check_record(replace(probe_result(), engine=seen))
    assert (found.verdict is not Verdict.INVALID) == fits


def test_the_meter_counts_gpus_and_earlier_attempts():
    now = [100.0]
    budget = Budget(gpu_seconds=400.0, deadline_seconds=1000.0)
    wanted = replace(problem(), gpus=2, budget=budget)
    spec = RunSpec("run", 2, wanted, previous=(start_result(1), probe_result()))
    meter = Meter(spec, lambda: now[0])
    now[0] = 120.0
    assert meter.engine_seconds == 2 * (15.0 + 20.0)
    assert meter.left_seconds == 200.0 - 35.0
    now[0] = 1000.0
    assert meter.left_seconds == 0.0
