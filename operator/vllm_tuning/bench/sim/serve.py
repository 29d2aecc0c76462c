"""One life of the simulated server: parse, start (or fail as vLLM does), serve, stop."""

from __future__ import annotations

import argparse
import asyncio
import signal
import ssl
from collections.abc import Callable, Mapping, Sequence

from aiohttp import web

from vllm_tuning.bench.sim.application import DEFAULT_MODEL, Started, build
from vllm_tuning.bench.sim.arguments import parser, read, resolve
from vllm_tuning.bench.sim.environment import Simulation, from_environment
from vllm_tuning.bench.sim.live import EngineDeadError
from vllm_tuning.bench.sim.memory import (
    EngineSettings,
    StartRefusal,
    check_rules,
    memory_taken,
    out_of_memory,
    plan_memory,
)
from vllm_tuning.bench.sim.startlog import StartLog


def serve(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the server until it is told to stop; return the exit code that vLLM would have.

    ``argv`` is what stands behind ``vllm serve``.

    Raises:
        SystemExit: with code 2, by argparse.
        ValueError: a ``SIMULATE_*`` variable has no sense.
    """
    known = read(argv)
    simulation = from_environment(environment)
    if simulation.faults.fail_start == "args":
        parser().error("unrecognized arguments: --not-a-flag")
    log = StartLog()
    log.arguments(known.model or DEFAULT_MODEL, known.given)
    settings = resolve(known, simulation.parameters)
    refusal = check_rules(settings)
    if refusal is not None:
        log.refused(refusal)
        return 1
    log.config(simulation.parameters, settings)
    memory = _injected(simulation, settings) or plan_memory(simulation.parameters, settings)
    if isinstance(memory, StartRefusal):
        log.refused(memory)
        return 1
    log.loading(simulation.parameters, settings)
    started = build(known, environment, simulation, settings, memory)
    life = _Life(known, simulation, started, log)
    return asyncio.run(life.run(lambda seconds: log.memory(settings, memory, seconds)))


def _injected(simulation: Simulation, settings: EngineSettings) -> StartRefusal | None:
    """The failure that the environment asked for."""
    match simulation.faults.fail_start:
        case "oom":
            return out_of_memory(simulation.parameters, settings)
        case "env":
            return memory_taken(simulation.parameters, settings)
        case _:
            return None


class _Life:
    """From the first second of waiting to the exit code."""

    def __init__(
        self,
        known: argparse.Namespace,
        simulation: Simulation,
        started: Started,
        log: StartLog,
    ) -> None:
        self._known = known
        self._simulation = simulation
        self._started = started
        self._log = log
        self._stopped = asyncio.Event()

    async def run(self, announce: Callable[[float], None]) -> int:
        """Start within the time asked, serve until a signal or the engine's death."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(name, self._stopped.set)
        hangs = self._simulation.faults.fail_start == "hang"
        seconds = self._simulation.start_seconds
        if await self._stopped_within(None if hangs else seconds):
            return 0
        announce(seconds)
        runner = web.AppRunner(
            self._started.app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0
        )
        await runner.setup()
        try:
            return await self._serve(runner)
        finally:
            await runner.cleanup()

    async def _serve(self, runner: web.AppRunner) -> int:
        known = self._known
        host = known.host or "0.0.0.0"  # noqa: S104 - vLLM's default
        try:
            await web.TCPSite(runner, host, known.port, ssl_context=_tls(known)).start()
        except OSError as error:
            self._log.plain(f"OSError: {error}")
            return 1
        scheme = "https" if known.ssl_certfile else "http"
        self._log.serving(f"{scheme}://{host}:{known.port}")
        engine = asyncio.create_task(self._started.engine.run())
        stop = asyncio.create_task(self._stopped.wait())
        await asyncio.wait({engine, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not engine.done():
            engine.cancel()
            return 0
        if isinstance(engine.exception(), EngineDeadError):
            self._log.died()
            return 1
        await engine  # a fault of the simulation itself: let it be seen
        return 1

    async def _stopped_within(self, seconds: float | None) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return False
        return True


def _tls(known: argparse.Namespace) -> ssl.SSLContext | None:
    if not known.ssl_certfile:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(known.ssl_certfile, known.ssl_keyfile)
    return context
