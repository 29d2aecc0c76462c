"""Each cause of INVALID, produced for real."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest

from vllm_tuning.bench.gpu_activity import summarize_gpu
from vllm_tuning.bench.gpu_processes import engine_processes
from vllm_tuning.bench.validity import ValidityLimits
from vllm_tuning.tuning.model import (
    SLO,
    ClosedLoad,
    GPUActivity,
    Lengths,
    Metric,
    OpenLoad,
    Verdict,
    Workload,
)

from .conftest import TinyEngine, stream_all, until
from .probing import UNHURRIED, measure, probe, problem
from .test_driver import driving


@asynccontextmanager
async def meanwhile(act):
    task = asyncio.create_task(act)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def served(engine: TinyEngine, count: int) -> None:
    await until(lambda: len(engine.served) >= count)


def assert_invalid(result, reason: str) -> None:
    assert (result.verdict, result.reason) == (Verdict.INVALID, reason), result.message


TIGHT = (SLO(Metric.TTFT, 95, 500),)


async def stall(engine: TinyEngine) -> None:
    """What a process does that shares the client's core, or its interpreter's lock."""
    await served(engine, 3)
    while True:
        time.sleep(0.25)  # noqa: ASYNC251 - the fault itself
        await asyncio.sleep(0.15)


async def test_late_sends(tiny_engine):
    engine = await tiny_engine()
    async with meanwhile(stall(engine)):
        asked = probe(OpenLoad(40.0), stop_on_fail=False)
        result, _ = await measure(engine, asked, of=problem(slos=TIGHT), limits=ValidityLimits())
    assert_invalid(result, "SendLateness")
    assert result.send_lateness_p99_ms > 100


async def test_slow_client(tiny_engine):
    engine = await tiny_engine()
    async with meanwhile(stall(engine)):
        # A closed loop has no schedule to be late for; its chunks wait all the same.
        asked = probe(ClosedLoad(4), stop_on_fail=False)
        result, _ = await measure(engine, asked, of=problem(slos=TIGHT), limits=ValidityLimits())
    assert_invalid(result, "ClientLag")


async def test_a_client_at_the_end_of_its_core(tiny_engine):
    engine = await tiny_engine()

    async def burn():
        while True:  # never long enough to be late, and never at rest
            end = time.process_time() + 0.001
            while time.process_time() < end:
                pass
            await asyncio.sleep(0)

    asked = probe(OpenLoad(10.0), stop_on_fail=False)
    calm, _ = await measure(engine, asked)
    # The limit is set by the calm client, so that a starved machine asks the same of both.
    limits = replace(UNHURRIED, cpu_fraction=2 * calm.client_cpu_fraction)
    async with meanwhile(burn()):
        result, _ = await measure(engine, asked, limits=limits)
    assert_invalid(result, "ClientCPU")


async def test_lost_responses(tiny_engine):
    async def lose(engine, item, reader, writer):
        # What a proxy does that forgets a response: the engine is done, nobody hears of it.
        engine.finish(item)
        await reader.read()

    engine = await tiny_engine(behave=lambda item: lose if item.number % 10 == 9 else stream_all)
    result, _ = await measure(engine, probe(OpenLoad(40.0), stop_on_fail=False))
    assert_invalid(result, "LostResponses")


async def test_warm_prefix_cache(tiny_engine):
    async def warm(engine, item, reader, writer):
        engine.prefix_hits += len(item.prompt) // 2
        await stream_all(engine, item, reader, writer)

    engine = await tiny_engine(behave=lambda _: warm)
    result, _ = await measure(engine, probe(OpenLoad(40.0)))
    assert_invalid(result, "PrefixHitMismatch")
    assert "50.0%" in result.message


async def test_a_declared_prefix_that_the_cache_serves_is_valid(tiny_engine):
    async def cached(engine, item, reader, writer):
        # 16-token blocks of what all prompts share, as vLLM counts.
        ahead = zip(item.prompt, engine.served[0].prompt, strict=True)
        same = next((at for at, (mine, first) in enumerate(ahead) if mine != first), 0)
        engine.prefix_hits += same // 16 * 16 if item.number else 0
        await stream_all(engine, item, reader, writer)

    engine = await tiny_engine(behave=lambda _: cached)
    workload = Workload(Lengths(200), Lengths(4), shared_prefix_percent=50)
    result, _ = await measure(engine, probe(OpenLoad(40.0)), of=problem(workload=workload))
    assert result.verdict is not Verdict.INVALID, result.message
    assert result.engine.prefix_hit_fraction == pytest.approx(96 / 200, abs=0.01)


async def test_restarted_engine(tiny_engine):
    engine = await tiny_engine()

    async def restart():
        await served(engine, 30)
        engine.restart()

    async with meanwhile(restart()):
        result, _ = await measure(engine, probe(OpenLoad(40.0)))
    assert_invalid(result, "EngineRestarted")


async def test_restarted_engine_by_the_hooks_record(tiny_engine):
    engine = await tiny_engine()
    pids = iter([100, 200])

    async def hook():
        return [{"rank": 0, "pid": next(pids), "window": 1, "windows": {}}]

    result, _ = await measure(engine, probe(OpenLoad(40.0)), hook_record=hook)
    assert_invalid(result, "EngineRestarted")


async def test_hung_engine_that_still_answers_health(tiny_engine):
    engine = await tiny_engine()

    async def hang():
        await served(engine, 20)
        engine.hung.set()

    async with meanwhile(hang()):
        result, _ = await measure(
            engine,
            probe(OpenLoad(40.0), window_seconds=30.0, stop_on_fail=False),
            limits=replace(UNHURRIED, hang_seconds=1.5, quiet_seconds=1.0),
        )
    assert_invalid(result, "EngineHung")
    assert result.seconds < 20
    async with (
        aiohttp.ClientSession() as session,
        session.get(engine.address.url("/health")) as response,
    ):
        assert response.status == 200


async def test_engine_that_answers_nothing_any_more(tiny_engine):
    engine = await tiny_engine()

    async def die():
        await served(engine, 20)
        engine.metrics_down = True
        engine.hung.set()

    async with meanwhile(die()):
        result, _ = await measure(
            engine,
            probe(OpenLoad(40.0), window_seconds=30.0, stop_on_fail=False),
            limits=replace(UNHURRIED, hang_seconds=1.5, quiet_seconds=1.0),
        )
    assert_invalid(result, "EngineUnreachable")


async def test_engine_that_exits(tiny_engine):
    engine = await tiny_engine()

    async def exit_():
        await served(engine, 20)
        await engine.stop()

    async with meanwhile(exit_()):
        short = replace(UNHURRIED, quiet_seconds=1.0)
        result, _ = await measure(engine, probe(OpenLoad(40.0)), limits=short)
    assert_invalid(result, "EngineUnreachable")


async def test_second_process_loading_the_server(tiny_engine):
    engine = await tiny_engine()

    async def other():
        async with driving(engine.address, outputs=2) as driver:
            await served(engine, 5)
            driver.start_closed(2)
            await asyncio.sleep(60)

    async with meanwhile(other()):
        short = replace(UNHURRIED, quiet_seconds=1.0)
        result, _ = await measure(engine, probe(OpenLoad(20.0)), limits=short)
    assert_invalid(result, "OtherLoad")


async def test_load_that_was_there_before(tiny_engine):
    engine = await tiny_engine(first_seconds=0.01, gap_seconds=0.5)
    async with driving(engine.address, outputs=100, deadline=60) as other:
        other.start_closed(1)
        await served(engine, 1)
        short = replace(UNHURRIED, quiet_seconds=1.0)
        result, _ = await measure(engine, probe(OpenLoad(20.0)), limits=short)
    assert_invalid(result, "OtherLoad")
    assert result.sent == 0


async def test_metrics_page_of_another_server(tiny_engine):
    async def elsewhere(engine, item, reader, writer):
        await stream_all(engine, item, reader, writer)
        engine.finished["length"] = 1

    engine = await tiny_engine(behave=lambda _: elsewhere)
    engine.finished["length"] = 1
    result, _ = await measure(engine, probe(OpenLoad(40.0)))
    assert_invalid(result, "MetricsMismatch")


@pytest.mark.parametrize("state", ["SwThermalSlowdown", "HwSlowdown", "HwPowerBrakeSlowdown"])
async def test_gpu_slowdown(tiny_engine, state):
    engine = await tiny_engine()
    asked = []

    async def gpu(start, end):
        asked.append((start, end))
        return GPUActivity("NVML", throttled=state)

    began = time.time()
    result, _ = await measure(engine, probe(OpenLoad(40.0), window_seconds=0.5), gpu_samples=gpu)
    assert_invalid(result, "GPUSlowdown")
    [(start, end)] = asked
    assert began < start < end < time.time()
    assert end - start == pytest.approx(0.5, abs=0.01)


async def test_another_process_on_the_gpu(tiny_engine):
    engine = await tiny_engine()
    began = time.time()
    # As the launcher tells of an H200 on which a second process works, by pids of its own choice
    # (tests/gpu makes that process).
    started = [working(began + 1, {"231": 96})]

    async def gpu(start, end):
        shared = [working(start + 1 + at / 10, {"231": 60, "4711": 35}) for at in range(5)]
        return summarize_gpu(shared, start, end + 1, engine=engine_processes(started, began))

    result, _ = await measure(engine, probe(OpenLoad(40.0), window_seconds=0.5), gpu_samples=gpu)
    assert_invalid(result, "OtherGPUProcess")
    assert "35 % of the time" in result.message


def working(at: float, percents: dict[str, int]) -> dict[str, object]:
    return {"time": at, "device": 0, "process_sm_percent": percents}


async def test_a_software_power_cap_is_normal(tiny_engine):
    engine = await tiny_engine()

    async def gpu(start, end):
        return GPUActivity("NVML", throttled="SwPowerCap")

    result, _ = await measure(engine, probe(OpenLoad(40.0), window_seconds=0.5), gpu_samples=gpu)
    assert result.verdict is not Verdict.INVALID, result.message
    assert result.gpu.throttled == "SwPowerCap"
