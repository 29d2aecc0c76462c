"""A simulated server inside the test's own event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from vllm_tuning.bench.sim.application import build
from vllm_tuning.bench.sim.arguments import read, resolve
from vllm_tuning.bench.sim.environment import from_environment
from vllm_tuning.bench.sim.live import LiveEngine
from vllm_tuning.bench.sim.memory import MemoryPlan, plan_memory

FAST = {"SIMULATE_PRESET": "tiny", "SIMULATE_CAPACITY_FACTOR": "10"}


@asynccontextmanager
async def serving(
    *argv: str, environment: Mapping[str, str] = FAST
) -> AsyncIterator[tuple[TestClient[Any, Any], LiveEngine]]:
    """Serve ``model m`` with these flags until the block ends."""
    known = read(["m", *argv])
    simulation = from_environment(environment)
    settings = resolve(known, simulation.parameters)
    memory = plan_memory(simulation.parameters, settings)
    assert isinstance(memory, MemoryPlan), memory
    started = build(known, environment, simulation, settings, memory)
    server = TestServer(started.app)
    await server.start_server()
    client = TestClient(server)
    running = asyncio.create_task(started.engine.run())
    try:
        yield client, started.engine
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()


async def events(response: ClientResponse) -> list[Any]:
    """Parse a stream of server-sent events; the terminal one stays text."""
    text = (await response.read()).decode()
    assert text.endswith("\n\n")
    datas = [line.removeprefix("data: ") for line in text.split("\n\n")[:-1]]
    return [data if data == "[DONE]" else json.loads(data) for data in datas]


async def until(condition: Any, seconds: float = 10.0) -> None:
    """Wait until ``condition()`` is true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - nothing tells us when it changes
            await asyncio.sleep(0.005)
