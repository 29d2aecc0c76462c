"""Probes of the simulated engine over HTTP: vLLM's own pages, texts and ways to die."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import aiohttp
import pytest

from vllm_tuning.bench.load.server import ServerAddress
from vllm_tuning.tuning.model import SLO, ClosedLoad, Lengths, Metric, OpenLoad, Verdict, Workload

from .probing import UNHURRIED, measure, probe, problem

WORKLOAD = Workload(Lengths(64, cv_percent=30), Lengths(8, cv_percent=30))
# Other work on the machine must not make these probes INVALID, so no bound is tight.
LOOSE = problem(slos=(SLO(Metric.TTFT, 95, 60_000),), workload=WORKLOAD)


@dataclass
class Simulated:
    address: ServerAddress


@asynccontextmanager
async def simulated(port: int, *flags: str, **environment: str) -> AsyncIterator[Simulated]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vllm_tuning", "simulate", "tiny", "--port", str(port), *flags,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        engine = Simulated(ServerAddress(f"http://127.0.0.1:{port}", "tiny"))
        await ready(engine, process)
        yield engine
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def ready(engine: Simulated, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(120), aiohttp.ClientSession() as session:
        while True:
            assert process.returncode is None, "the simulated engine did not start"
            try:
                async with session.get(engine.address.url("/health")) as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.1)


@pytest.mark.parametrize("load", [OpenLoad(10.0), ClosedLoad(4)])
async def test_a_probe_of_it_is_valid_and_both_sides_count_the_same(unused_tcp_port, load):
    async with simulated(unused_tcp_port) as engine:
        asked = probe(load, window_seconds=2.0)
        result, _ = await measure(engine, asked, of=LOOSE)
    assert result.verdict is not Verdict.INVALID, result.message
    assert result.failed == 0
    assert result.engine.steps > 0
    assert result.engine.prefix_hit_fraction == pytest.approx(0, abs=0.03)
    assert 0 < result.engine.kv_usage_peak_fraction < 1


async def test_a_shared_prefix_is_served_as_declared(unused_tcp_port):
    shared = Workload(Lengths(256), Lengths(4), shared_prefix_percent=50)
    async with simulated(unused_tcp_port, "--enable-prefix-caching") as engine:
        asked = probe(OpenLoad(10.0), window_seconds=2.0)
        result, _ = await measure(engine, asked, of=problem(slos=LOOSE.slos, workload=shared))
    assert result.verdict is not Verdict.INVALID, result.message
    assert result.engine.prefix_hit_fraction == pytest.approx(0.5, abs=0.03)


async def test_it_hangs(unused_tcp_port):
    async with simulated(unused_tcp_port, SIMULATE_HANG_AFTER="20") as engine:
        result, _ = await measure(
            engine,
            probe(OpenLoad(20.0), window_seconds=30.0, stop_on_fail=False),
            of=LOOSE,
            limits=replace(UNHURRIED, hang_seconds=3.0, quiet_seconds=1.0),
        )
    assert (result.verdict, result.reason) == (Verdict.INVALID, "EngineHung"), result.message


async def test_it_crashes(unused_tcp_port):
    async with simulated(unused_tcp_port, SIMULATE_CRASH_AFTER_REQUESTS="20") as engine:
        result, _ = await measure(
            engine,
            probe(OpenLoad(20.0), window_seconds=4.0),
            of=LOOSE,
            limits=replace(UNHURRIED, hang_seconds=3.0, quiet_seconds=1.0),
        )
    assert (result.verdict, result.reason) == (Verdict.INVALID, "EngineUnreachable"), result.message
    assert result.failed > 0
