"""Put a started engine together from what it simulates and how it was started."""

from __future__ import annotations

import math

import numpy as np

from vllm_tuning.bench.sim.cost import StepClock, graph_sizes
from vllm_tuning.bench.sim.engine import EngineCore
from vllm_tuning.bench.sim.kv import BlockPool
from vllm_tuning.bench.sim.memory import EngineSettings, MemoryPlan
from vllm_tuning.bench.sim.parameters import EngineParameters
from vllm_tuning.bench.sim.scheduler import Scheduler, SchedulerLimits


def started_limits(settings: EngineSettings) -> SchedulerLimits:
    """The limits that the start itself sets; live limits never go above them."""
    return SchedulerLimits(
        seqs=settings.active_seqs,
        tokens=settings.max_num_batched_tokens,
        long_prefill_token_threshold=settings.long_prefill_token_threshold,
        chunked=settings.enable_chunked_prefill,
    )


def assemble(
    parameters: EngineParameters,
    settings: EngineSettings,
    memory: MemoryPlan,
    *,
    seed: int,
    track_decoding: bool,
    card_seed: int | None = None,
) -> EngineCore:
    """Build the core of a started engine; ``seed`` draws its noise, ``card_seed`` its card."""
    pool = BlockPool(max(1, memory.blocks - 1), prefix_caching=settings.enable_prefix_caching)
    scheduler = Scheduler(
        started_limits(settings),
        pool,
        block_size=settings.block_size,
        reserve_full_prompt=parameters.reserve_full_prompt,
        track_decoding=track_decoding,
    )
    graphs = graph_sizes(settings.largest_graph(parameters.graph_cap))
    spread = parameters.noise.card
    card = np.random.default_rng([seed if card_seed is None else card_seed, 0xCA2D])
    clock = StepClock(
        parameters.cost,
        parameters.noise,
        graphs,
        seed=seed,
        card=math.exp(card.normal(0.0, spread)) if spread else 1.0,
    )
    return EngineCore(
        scheduler,
        clock,
        async_scheduling=settings.async_scheduling,
        host_seconds=parameters.host_seconds,
    )
