"""One engine start: from the plan to a server that is as intended, or to a typed failure."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, replace

import aiohttp

from vllm_tuning.bench.intent import check_intent
from vllm_tuning.bench.launcher_client import (
    EngineState,
    LauncherClient,
    LauncherInfo,
    LauncherUnreachableError,
)
from vllm_tuning.bench.live_limits import LiveLimits
from vllm_tuning.bench.load.server import ServerAddress
from vllm_tuning.bench.plan import HOST, StartPlan, plan_start
from vllm_tuning.engine.failures import diagnose_start
from vllm_tuning.engine.metrics import read_page
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.engine.startlog import StartFacts, read_start_log
from vllm_tuning.tuning.model import (
    EngineFacts,
    FailureKind,
    Start,
    StartFailure,
    StartResult,
)

POLL_SECONDS = 0.25
LAUNCHER_RETURN_SECONDS = 120.0
"""How long a container that the kubelet restarts may be away."""
_MARGIN_SECONDS = 30.0
"""Over the launcher's own time-out: it kills first."""


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """A started engine."""

    start: Start
    facts: EngineFacts
    server: ServerAddress
    instance: str
    """Of the launcher that started it."""
    live: LiveLimits | None
    """``None`` without hook, or when it was not proven."""


class Starter:
    """Starts the engine of one launcher, again and again, always after stopping the last one."""

    def __init__(
        self,
        launcher: LauncherClient,
        info: LauncherInfo,
        http: aiohttp.ClientSession,
        *,
        port: int,
        timeout_seconds: float,
    ) -> None:
        self._launcher = launcher
        self._info = info
        self._http = http
        self._port = port
        self._timeout_seconds = timeout_seconds
        self._version: str | None = None

    def plan(self, start: Start) -> StartPlan | Refusal:
        """Work out the command line of ``start``; a new nonce each time."""
        return plan_start(
            self._info.argv,
            start.limits,
            nonce=f"vllm-tuning-{secrets.token_hex(6)}",
            port=self._port,
            env=self._info.env,
            version=self._version,
        )

    async def start(
        self, start: Start, plan: StartPlan | Refusal
    ) -> tuple[StartResult, RunningEngine | None]:
        """Stop what runs and start anew; the seconds include the stop, the start and the proof."""
        clock = asyncio.get_running_loop().time
        began = clock()
        outcome = await self._start(start, plan)
        seconds = clock() - began
        if isinstance(outcome, StartFailure):
            return StartResult(start, seconds, failure=outcome), None
        return StartResult(start, seconds, facts=outcome.facts), outcome

    async def stop(self) -> None:
        """End the engine."""
        await self._launcher.stop()

    async def _start(self, start: Start, plan: StartPlan | Refusal) -> RunningEngine | StartFailure:
        if isinstance(plan, Refusal):
            return StartFailure(FailureKind.BAD_ARGUMENTS, plan.reason, plan.message)
        await self._launcher.stop()
        await self._launcher.start(
            argv=plan.argv,
            env=plan.env,
            hook=start.hook,
            port=self._port,
            nonce=plan.nonce,
            timeout_seconds=self._timeout_seconds,
        )
        state = await self._follow()
        if isinstance(state, StartFailure):
            return state
        log = await self._launcher.log()
        if state.state != "ready":
            return _failure(log, state)
        said = read_start_log(log)
        self._version = said.version or self._version
        server = ServerAddress(f"http://{HOST}:{self._port}", plan.model)
        facts = await self._facts(said, server)
        if (mismatch := check_intent(plan.limits, said)) is not None:
            return mismatch
        live, why_not = await self._live(server, facts) if start.hook else (None, "no hook")
        if start.hook:
            facts = replace(facts, live_limits=why_not)
        return RunningEngine(start, facts, server, state.instance, live)

    async def _follow(self) -> EngineState | StartFailure:
        """Wait until the start has ended, one way or the other."""
        async with asyncio.timeout(self._timeout_seconds + _MARGIN_SECONDS):
            while True:
                try:
                    state = await self._launcher.engine()
                except LauncherUnreachableError:
                    return await self._container_restarted()
                if state.instance != self._info.instance:
                    return await self._container_restarted()
                if state.state != "starting":
                    return state
                await asyncio.sleep(POLL_SECONDS)

    async def _container_restarted(self) -> StartFailure:
        """The launcher died with the engine.

        In a container, the kernel kills all of it for memory.
        """
        self._info = await self._launcher.wait(LAUNCHER_RETURN_SECONDS)
        return StartFailure(
            FailureKind.ENVIRONMENT,
            "EngineContainerRestarted",
            "the engine's container was restarted during the start, most often because it exceeded "
            "its memory limit: see the pod's last state and raise the limit",
        )

    async def _facts(self, said: StartFacts, server: ServerAddress) -> EngineFacts:
        """Join the start log with the labels of ``vllm:cache_config_info``."""
        labels = await self._cache_config(server)
        blocks, block_size = _int(labels, "num_gpu_blocks"), _int(labels, "block_size")
        capacity = _int(labels, "kv_cache_size_tokens")
        if capacity is None and blocks is not None and block_size is not None:
            # The last resort: too much for models with several kinds of attention.
            capacity = blocks * block_size
        caching = labels.get("enable_prefix_caching")
        return EngineFacts(
            version=said.version,
            kv_cache_tokens=said.kv_cache_tokens or capacity,
            block_size=block_size,
            max_model_len=said.max_model_len,
            max_num_seqs=said.max_num_seqs,
            max_num_batched_tokens=said.max_num_batched_tokens,
            non_default_args=said.non_default_args,
            prefix_caching=said.prefix_caching if caching is None else caching == "True",
            data_parallel_ranks=said.data_parallel_ranks,
            graph_tokens=said.graph_tokens,
            live_limits="this start has no hook",
        )

    async def _cache_config(self, server: ServerAddress) -> dict[str, str]:
        try:
            async with self._http.get(server.url("/metrics"), timeout=_METRICS_TIMEOUT) as response:
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError):
            return {}
        return dict(read_page(text, model=server.model).cache_config)

    async def _live(
        self, server: ServerAddress, facts: EngineFacts
    ) -> tuple[LiveLimits | None, str | None]:
        live = LiveLimits(
            self._launcher,
            server,
            self._http,
            ranks=facts.data_parallel_ranks,
            max_model_len=facts.max_model_len,
        )
        why_not = await live.prove()
        return (None, why_not) if why_not is not None else (live, None)


_METRICS_TIMEOUT = aiohttp.ClientTimeout(total=10)


def _failure(log: str, state: EngineState) -> StartFailure:
    diagnosis = diagnose_start(
        log,
        exit_code=state.exit_code,
        timed_out=state.timed_out,
        host_oom_kills=state.host_oom_kills,
    )
    message = diagnosis.message
    if state.timed_out and state.detail is not None:
        message = f"{message} ({state.detail})"
    return StartFailure(
        kind=FailureKind(diagnosis.kind),
        reason=diagnosis.reason,
        message=message,
        hint=diagnosis.hint,
        log_tail=diagnosis.excerpt,
    )


def _int(labels: dict[str, str], name: str) -> int | None:
    text = labels.get(name, "")
    return int(text) if text.isdigit() else None
