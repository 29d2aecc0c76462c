"""The run: ask the search, start or probe, tell it the answer, and say everything as it happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vllm_tuning.bench.events import EventLog
from vllm_tuning.bench.gpu_activity import summarize_gpu
from vllm_tuning.bench.gpu_processes import LOOK_BACK_SECONDS, Processes, engine_processes
from vllm_tuning.bench.launcher_client import (
    LauncherClient,
    LauncherInfo,
    LauncherUnreachableError,
)
from vllm_tuning.bench.meter import Meter
from vllm_tuning.bench.probe import LiveProgress, run_probe
from vllm_tuning.bench.starts import LAUNCHER_RETURN_SECONDS, RunningEngine, Starter
from vllm_tuning.engine.failures import StartDiagnosis, diagnose_start
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.engine.redact import redact_argv
from vllm_tuning.tuning import run as wire
from vllm_tuning.tuning.model import (
    Answer,
    Done,
    GPUActivity,
    Probe,
    ProbeResult,
    Recommendation,
    Start,
    StartResult,
    Verdict,
)
from vllm_tuning.tuning.search import Search

MAX_LOST_ENGINES = 3
"""An engine that dies under load more often is no basis for a recommendation."""


class RunFailedError(Exception):
    """The run cannot come to an answer. ``reason`` is CamelCase and stable."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Run:
    """One attempt at one run."""

    def __init__(
        self,
        spec: wire.RunSpec,
        launcher: LauncherClient,
        info: LauncherInfo,
        *,
        starter: Starter,
        events: EventLog,
        meter: Meter,
        search: Search | None = None,
    ) -> None:
        self._spec = spec
        self._launcher = launcher
        self._info = info
        self._starter = starter
        self._events = events
        self._meter = meter
        self._search = search or Search(spec.problem)
        self._engine: RunningEngine | None = None
        self._engine_on_gpus: Processes = {}
        self._lost_engines = 0

    async def run(self) -> Recommendation:
        """Go on until the search is done or the budget is spent. Raises ``RunFailedError``."""
        replayed = self._search.replay(distinct(self._spec.previous))
        self._events.write(
            lambda seq, time: wire.RunStarted(
                seq,
                time,
                run_id=self._spec.run_id,
                attempt=self._spec.attempt,
                original_argv=redact_argv(self._info.argv),
                replayed=replayed,
                gpus=tuple(gpu["uuid"] for gpu in self._info.gpus if gpu.get("uuid")),
            )
        )
        while not isinstance(question := self._search.ask(), Done):
            answer = await self._answer_in_time(question)
            if answer is None:
                return self._search.stop(
                    "the budget or the deadline was spent during a measurement"
                ).recommendation
            self._search.tell(answer)
        return question.recommendation

    async def _answer_in_time(self, question: Start | Probe) -> Answer | None:
        """The answer, or ``None`` when the budget ends first."""
        try:
            async with asyncio.timeout(self._meter.left_seconds) as limit:
                if isinstance(question, Start):
                    return (await self._start(question))[0]
                return await self._probe(question)
        except TimeoutError:
            if limit.expired():
                return None
            raise

    async def _start(self, start: Start) -> tuple[StartResult, RunningEngine | None]:
        self._engine = None
        plan = self._starter.plan(start)
        argv = () if isinstance(plan, Refusal) else redact_argv(plan.argv)
        self._events.write(lambda seq, time: wire.StartBegan(seq, time, start, argv))
        began = time.time()
        result, engine = await self._starter.start(start, plan)
        self._engine = engine
        if engine is not None and self._info.gpus:
            samples = await self._launcher.gpu_samples(began - LOOK_BACK_SECONDS)
            self._engine_on_gpus = engine_processes(samples, began)
        self._events.write(
            lambda seq, time: wire.StartEnded(seq, time, result, self._meter.engine_seconds)
        )
        return result, engine

    async def _probe(self, probe: Probe) -> ProbeResult:
        engine = await self._server()
        self._events.write(lambda seq, time: wire.ProbeBegan(seq, time, probe))
        result = await self._limits_in_force(engine, probe) or await run_probe(
            probe,
            problem=self._search.problem,
            server=engine.server,
            on_progress=lambda progress: self._tell_progress(probe, progress),
            hook_record=self._hook_record,
            gpu_samples=self._gpu_activity,
        )
        result = check_record(result)
        died = await self._death(engine)
        if died is not None:
            self._engine = None
            result = blame_engine(result, died)
        self._events.write(
            lambda seq, time: wire.ProbeEnded(seq, time, result, self._meter.engine_seconds)
        )
        return result

    async def _server(self) -> RunningEngine:
        """The engine that the open probe expects; started again when it died or a run resumes."""
        if self._engine is not None and await self._death(self._engine) is None:
            return self._engine
        wanted = self._search.server
        if wanted is None:
            raise RunFailedError("NoServer", "the search asks for a probe before any start")
        result, engine = await self._start(wanted)
        if engine is None:
            failure = result.failure
            why = f"{failure.reason}: {failure.message}" if failure else "unknown"
            raise RunFailedError("EngineLost", f"the engine did not start again: {why}")
        return engine

    async def _limits_in_force(self, engine: RunningEngine, probe: Probe) -> ProbeResult | None:
        """Put the probe's limits in force; an INVALID result when they are not."""
        clock = asyncio.get_running_loop().time
        began = clock()
        why_not = await _put_in_force(engine, probe)
        if why_not is None:
            return None
        seconds = clock() - began
        return ProbeResult(probe, Verdict.INVALID, "LimitsNotInForce", why_not, seconds=seconds)

    async def _death(self, engine: RunningEngine) -> StartDiagnosis | None:
        """Why the engine is no longer there, or ``None`` when it is."""
        try:
            state = await self._launcher.engine()
        except LauncherUnreachableError:
            await self._launcher.wait(LAUNCHER_RETURN_SECONDS)
            state = await self._launcher.engine()
        if state.instance == engine.instance and state.state == "ready":
            return None
        self._lost_engines += 1
        if state.instance != engine.instance:
            died = StartDiagnosis(
                "Environment",
                "EngineContainerRestarted",
                "the engine's container was restarted: see the pod's last state",
            )
        else:
            died = diagnose_start(
                await self._launcher.log(),
                exit_code=state.exit_code,
                host_oom_kills=state.host_oom_kills,
            )
        if self._lost_engines > MAX_LOST_ENGINES:
            raise RunFailedError(
                "EngineUnstable", f"the engine died {self._lost_engines} times: {died.message}"
            )
        return died

    def _tell_progress(self, probe: Probe, progress: LiveProgress) -> None:
        self._events.write(
            lambda seq, time: wire.Progress(
                seq,
                time,
                probe_id=probe.id,
                phase=progress.phase,
                completed=progress.completed,
                in_flight=progress.in_flight,
                ttft_p95_ms=progress.ttft_p95_ms,
                tpot_p95_ms=progress.tpot_p95_ms,
                engine_seconds=self._meter.engine_seconds,
            )
        )

    async def _hook_record(self) -> list[dict[str, Any]] | None:
        if self._engine is None or self._engine.live is None:
            return None
        return await self._launcher.records()

    async def _gpu_activity(self, begin: float, end: float) -> GPUActivity | None:
        if not self._info.gpus:
            return None
        samples = await self._launcher.gpu_samples(begin)
        return summarize_gpu(samples, begin, end, engine=self._engine_on_gpus)


async def _put_in_force(engine: RunningEngine, probe: Probe) -> str | None:
    started = engine.start.limits
    if probe.limits.gpu_memory_utilization_percent != started.gpu_memory_utilization_percent:
        return "the memory share does not change live"
    if engine.live is not None:
        return await engine.live.apply(probe.limits)
    if started != probe.limits:
        return f"the engine runs with {started} and takes no others live"
    return None


def distinct(answers: Sequence[Answer]) -> list[Answer]:
    """Drop repeated starts: a resumed run starts the engine of an answered question once more."""
    seen: set[str] = set()
    kept: list[Answer] = []
    for answer in answers:
        if isinstance(answer, StartResult):
            if answer.start.id in seen:
                continue
            seen.add(answer.start.id)
        kept.append(answer)
    return kept


def check_record(result: ProbeResult) -> ProbeResult:
    """Hold a probe to the hook's own record: a step beyond its limits makes it INVALID."""
    limits, seen = result.probe.limits, result.engine
    beyond = [
        f"{name} {value} > {cap}"
        for name, value, cap in (
            ("running", seen.hook_running_max, limits.max_num_seqs),
            ("tokens in a step", seen.hook_scheduled_tokens_max, limits.max_num_batched_tokens),
        )
        if value is not None and value > cap
    ]
    if not beyond:
        return result
    message = f"the hook recorded a step beyond the live limits: {', '.join(beyond)}"
    return replace(result, verdict=Verdict.INVALID, reason="LimitsNotInForce", message=message)


def blame_engine(result: ProbeResult, died: StartDiagnosis) -> ProbeResult:
    """A probe during which the engine died.

    Out of device memory at this load with these limits is an answer: FAIL. Any other death says
    nothing about the limits: INVALID.
    """
    fits = died.kind != "Infeasible"
    return replace(
        result,
        verdict=Verdict.INVALID if fits else Verdict.FAIL,
        reason="EngineDied" if fits else died.reason,
        message=f"the engine died under this load: {died.message}",
    )
