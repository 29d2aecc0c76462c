"""A simulated server for searches in virtual time: answers ``Start`` and ``Probe`` without waiting.

It goes through the same columns, verdict and rates as the real probe, so a search cannot tell the
two apart but by the clock.
"""

from __future__ import annotations

import io
from dataclasses import replace

from vllm_tuning.bench.probe import IDLE_SECONDS
from vllm_tuning.bench.sim.assemble import assemble, started_limits
from vllm_tuning.bench.sim.engine import EngineCore
from vllm_tuning.bench.sim.memory import (
    EngineSettings,
    MemoryPlan,
    StartRefusal,
    check_rules,
    plan_memory,
)
from vllm_tuning.bench.sim.parameters import EngineParameters
from vllm_tuning.bench.sim.probing import VirtualProbe, load_of
from vllm_tuning.bench.sim.startlog import VERSION, StartLog
from vllm_tuning.bench.sim.virtual import VirtualLoad
from vllm_tuning.engine.failures import diagnose_start
from vllm_tuning.tuning.model import (
    EngineFacts,
    FailureKind,
    Limits,
    Probe,
    ProbeResult,
    Problem,
    Start,
    StartFailure,
    StartResult,
)

BURST_TICK_SECONDS = 0.1
"""How exactly the end of a burst is seen."""

NOISE_STRIDE = 1000
"""Starts that one noise seed has room for: each start draws its own noise."""

FAILED_START_SHARE = 0.6
"""A start that runs out of memory takes this share of one that succeeds."""


class SimulatedServer:
    """One virtual card with an engine that can be started again and again."""

    def __init__(
        self,
        parameters: EngineParameters,
        *,
        seed: int = 0,
        max_model_len: int | None = None,
        enable_prefix_caching: bool = True,
        start_seconds: float | None = None,
        noise_seed: int = 0,
    ) -> None:
        """``seed`` draws the card, with ``noise_seed`` the noise; the same calls answer alike."""
        self.parameters = parameters
        self.engine_seconds = 0.0
        """Virtual time spent on starts and probes."""
        self._seed = seed
        self._start_seconds = parameters.start_seconds if start_seconds is None else start_seconds
        self._prefix_caching = enable_prefix_caching
        self._max_model_len = max_model_len or parameters.model_max_len
        self._starts = NOISE_STRIDE * noise_seed
        self._core: EngineCore | None = None
        self._settings: EngineSettings | None = None
        self._memory: MemoryPlan | None = None
        self._hook = False
        self._now = 0.0
        self._next_id = 0

    # --- starts ---------------------------------------------------------------------------------

    def settings_of(self, limits: Limits) -> EngineSettings:
        """Resolve the settings of a start with these limits."""
        share = limits.gpu_memory_utilization_percent
        return EngineSettings(
            max_num_seqs=limits.max_num_seqs,
            max_num_batched_tokens=limits.max_num_batched_tokens,
            max_model_len=self._max_model_len,
            gpu_memory_utilization=0.92 if share is None else share / 100,
            enable_chunked_prefill=limits.enable_chunked_prefill is not False,
            long_prefill_token_threshold=limits.long_prefill_token_threshold or 0,
            enable_prefix_caching=self._prefix_caching,
            async_scheduling=self.parameters.async_scheduling,
            block_size=self.parameters.block_size,
        )

    def start(self, start: Start) -> StartResult:
        """Start the engine, or fail as vLLM would. The former engine is stopped."""
        self._core = None
        self._starts += 1
        settings = self.settings_of(start.limits)
        refusal = check_rules(settings)
        memory = refusal or plan_memory(self.parameters, settings)
        if isinstance(memory, StartRefusal):
            share = FAILED_START_SHARE if memory.in_core else 0.2
            seconds = self._start_seconds * share
            self.engine_seconds += seconds
            return StartResult(start, seconds, failure=_failure(memory))
        self._settings, self._memory, self._hook = settings, memory, start.hook
        self._core = assemble(
            self.parameters,
            settings,
            memory,
            seed=self._seed * 1_000_003 + self._starts,
            card_seed=self._seed,
            track_decoding=False,
        )
        self._now = 0.0
        self.engine_seconds += self._start_seconds
        facts = EngineFacts(
            version=VERSION,
            kv_cache_tokens=memory.kv_tokens,
            block_size=settings.block_size,
            max_model_len=settings.max_model_len,
            max_num_seqs=settings.max_num_seqs,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            prefix_caching=settings.enable_prefix_caching,
            graph_tokens=settings.largest_graph(self.parameters.graph_cap),
            live_limits=None if start.hook else "started without the hook",
        )
        return StartResult(start, self._start_seconds, facts=facts)

    # --- probes ---------------------------------------------------------------------------------

    def run(self, probe: Probe, problem: Problem) -> ProbeResult:
        """Measure one load point on the running engine. Raises as ``begin`` does."""
        virtual = self.begin(probe, problem)
        result = virtual.run()
        self._spend(result.seconds + IDLE_SECONDS, virtual.load)
        return result

    def begin(self, probe: Probe, problem: Problem) -> VirtualProbe:
        """Return a load point that is still to be run, for those who want its requests too.

        Raises:
            RuntimeError: no engine runs, or it would need the hook to take the probe's limits.
            ValueError: the workload is a trace; the twin knows only declared lengths.
        """
        return VirtualProbe(
            probe,
            problem,
            self._ready(probe.limits),
            frontend=self.parameters.frontend,
            origin=self._now,
            first_id=self._next_id,
        )

    def burst(self, limits: Limits, problem: Problem, *, requests: int, seed: int) -> float:
        """Send ``requests`` at once and wait for all: the seconds until the last answer.

        Raises:
            RuntimeError: no engine runs, or it would need the hook to take ``limits``.
        """
        load = load_of(
            self._ready(limits),
            problem.workload,
            seed=seed,
            frontend=self.parameters.frontend,
            origin=self._now,
            first_id=self._next_id,
        )
        load.start_open(iter([0.0] * requests))
        while load.answered < requests:
            load.run_until(load.now + BURST_TICK_SECONDS)
        self._spend(load.now, load)
        return load.now

    def _ready(self, limits: Limits) -> EngineCore:
        """Return the running engine with those limits, and nothing left of the load before."""
        if self._core is None:
            msg = "no engine runs: start one first"
            raise RuntimeError(msg)
        self._apply(self._core, limits)
        self._core.forget()
        self._core.clock.new_window()
        return self._core

    def _spend(self, seconds: float, load: VirtualLoad) -> None:
        self._next_id += load.sent
        self._now += seconds
        self.engine_seconds += seconds

    def _apply(self, core: EngineCore, limits: Limits) -> None:
        """Set the probe's limits live, never above those of the start."""
        assert self._settings is not None
        assert self._memory is not None
        started = started_limits(self._settings)
        wanted = replace(
            started,
            seqs=min(limits.max_num_seqs, started.seqs),
            tokens=min(limits.max_num_batched_tokens, started.tokens),
            long_prefill_token_threshold=limits.long_prefill_token_threshold
            or started.long_prefill_token_threshold,
            chunked=started.chunked
            if limits.enable_chunked_prefill is None
            else limits.enable_chunked_prefill,
        )
        if wanted != started and not self._hook:
            msg = f"the engine was started without the hook: it cannot take {limits} live"
            raise RuntimeError(msg)
        core.scheduler.limits = wanted
        if self._hook:
            core.scheduler.pool.hold_back(self._blocks_to_hold(limits))

    def _blocks_to_hold(self, limits: Limits) -> int:
        """Blocks to keep from the engine so that it has those of a lower memory share."""
        assert self._settings is not None
        assert self._memory is not None
        share = limits.gpu_memory_utilization_percent
        if share is None or share / 100 >= self._settings.gpu_memory_utilization:
            return 0
        smaller = plan_memory(
            self.parameters, replace(self._settings, gpu_memory_utilization=share / 100)
        )
        if isinstance(smaller, StartRefusal):
            msg = f"a memory share of {share} % does not start: {smaller.text}"
            raise RuntimeError(msg)  # noqa: TRY004 - not the argument's type but its value
        return self._memory.blocks - smaller.blocks


def _failure(refusal: StartRefusal) -> StartFailure:
    """Classify the refusal by the text that vLLM would have logged."""
    stream = io.StringIO()
    StartLog(stream).refused(refusal)
    found = diagnose_start(stream.getvalue(), exit_code=1)
    return StartFailure(
        FailureKind(found.kind), found.reason, found.message, found.hint, found.excerpt
    )
