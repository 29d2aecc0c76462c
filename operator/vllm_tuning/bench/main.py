"""One attempt of a run from its spec to its last line and its exit status."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp

from vllm_tuning.bench.events import EventLog, Sink
from vllm_tuning.bench.launcher_client import LauncherError
from vllm_tuning.bench.loop import Run, RunFailedError
from vllm_tuning.bench.meter import Meter
from vllm_tuning.bench.session import LauncherAddress, connect, local_launcher
from vllm_tuning.bench.starts import Starter
from vllm_tuning.bench.termination import write_summary
from vllm_tuning.bench.workload import recorded
from vllm_tuning.tuning.model import Problem, Recommendation
from vllm_tuning.tuning.recorded import TraceError
from vllm_tuning.tuning.run import ENGINE_PORT, RunEnded, RunFailed, RunSpec, Summary
from vllm_tuning.tuning.search import Search

LAUNCHER_SECONDS = 120.0
"""How long the engine's container may start later than the bench's."""


async def run_bench(spec: RunSpec, stream: Sink | None = None, search: Search | None = None) -> int:
    """Run to the end; exit status 0 when the run came to an answer, 1 when it broke.

    ``search`` asks instead of the product's own.

    Every event is a line on ``stream`` (default: stdout); the last one is a ``RunEnded`` or a
    ``RunFailed``, also when the task is cancelled (the pod is evicted), and the same stands in the
    termination message.
    """
    events = EventLog(stream or sys.stdout)
    meter = Meter(spec, asyncio.get_running_loop().time)
    try:
        recommendation = await _run(spec, events, meter, search)
    except asyncio.CancelledError:
        message = "the benchmark was stopped from outside; a new attempt resumes from its answers"
        return _failed(spec, events, meter, "Terminated", message)
    except RunFailedError as error:
        return _failed(spec, events, meter, error.reason, str(error))
    except LauncherError as error:
        return _failed(spec, events, meter, "LauncherLost", str(error))
    except TraceError as error:
        return _failed(spec, events, meter, "TraceInvalid", str(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, the run must end with its last line
        traceback.print_exc(file=sys.stderr)
        return _failed(spec, events, meter, "InternalError", f"{type(error).__name__}: {error}")
    return _ended(spec, events, meter, recommendation)


async def run_here(
    problem: Problem,
    command: Sequence[str],
    stream: Sink,
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    engine_port: int = ENGINE_PORT,
    search: Search | None = None,
) -> int:
    """Run on this machine, without a cluster: ``command`` starts the engine under a launcher.

    As ``run_bench`` for the rest; the engine's output goes to ``log``.
    """
    async with local_launcher(command, env=env, log=log) as address:
        spec = RunSpec(
            run_id="local",
            attempt=1,
            problem=problem,
            launcher_url=address.url,
            token_file=str(address.token_file),
            engine_port=engine_port,
        )
        return await run_bench(spec, stream, search)


async def _run(
    spec: RunSpec, events: EventLog, meter: Meter, search: Search | None
) -> Recommendation:
    recorded(spec.problem.workload)  # a trace that cannot be read shall not cost a start
    address = LauncherAddress(spec.launcher_url, Path(spec.token_file))
    async with connect(address) as launcher, aiohttp.ClientSession() as http:
        info = await launcher.wait(LAUNCHER_SECONDS)
        starter = Starter(
            launcher, info, http, port=spec.engine_port, timeout_seconds=spec.start_timeout_seconds
        )
        run = Run(spec, launcher, info, starter=starter, events=events, meter=meter, search=search)
        return await run.run()


def _ended(spec: RunSpec, events: EventLog, meter: Meter, found: Recommendation) -> int:
    spent = meter.engine_seconds
    events.write(lambda seq, time: RunEnded(seq, time, found, spent))
    write_summary(
        Summary(
            run_id=spec.run_id,
            attempt=spec.attempt,
            reason=found.ending.value,
            message=found.message,
            limits=found.limits,
            load=found.load,
            purpose=found.result.probe.purpose if found.result else None,
            gain_percent=found.gain_percent,
            engine_starts=found.engine_starts,
            probes=found.probes,
            engine_seconds=spent,
        )
    )
    return 0


def _failed(spec: RunSpec, events: EventLog, meter: Meter, reason: str, message: str) -> int:
    spent = meter.engine_seconds
    events.write(lambda seq, time: RunFailed(seq, time, reason, message, spent))
    write_summary(
        Summary(
            run_id=spec.run_id,
            attempt=spec.attempt,
            reason=reason,
            message=message,
            limits=None,
            load=None,
            purpose=None,
            gain_percent=None,
            engine_starts=0,
            probes=0,
            engine_seconds=spent,
        )
    )
    return 1
