"""The started server: engine, metrics, hook and routes, wired from what the command line said."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from vllm_tuning.bench.sim.assemble import assemble
from vllm_tuning.bench.sim.environment import Simulation
from vllm_tuning.bench.sim.exposition import EngineMetrics
from vllm_tuning.bench.sim.hook import Hook
from vllm_tuning.bench.sim.live import LiveEngine
from vllm_tuning.bench.sim.memory import EngineSettings, MemoryPlan
from vllm_tuning.bench.sim.server import Api, ServerOptions

DEFAULT_MODEL = "Qwen/Qwen3-0.6B"
"""What vLLM serves if it is given no model."""


@dataclass(frozen=True, slots=True)
class Started:
    """A server that is ready to serve; ``engine.run()`` makes it move."""

    engine: LiveEngine
    app: web.Application


def build(
    known: argparse.Namespace,
    environment: Mapping[str, str],
    simulation: Simulation,
    settings: EngineSettings,
    memory: MemoryPlan,
) -> Started:
    """Wire a server that has passed its start."""
    core = assemble(
        simulation.parameters, settings, memory, seed=simulation.seed, track_decoding=True
    )
    options = _options(known, environment)
    metrics = EngineMetrics(
        options.models[0], _cache_config(settings, memory), settings.max_model_len
    )
    directory = environment.get("TUNING_HOOK_DIR")
    hook = Hook(core.scheduler, settings, Path(directory)) if directory else None
    engine = LiveEngine(core, metrics, simulation.faults, hook)
    api = Api(
        engine,
        metrics,
        settings,
        memory,
        options,
        seed=simulation.seed,
        reset_cache=core.scheduler.pool.reset_cache,
    )
    return Started(engine, api.application())


def _options(known: argparse.Namespace, environment: Mapping[str, str]) -> ServerOptions:
    model = known.model or DEFAULT_MODEL
    key = environment.get("VLLM_API_KEY")
    return ServerOptions(
        models=known.served_model_name or [model],
        root=model,
        api_keys=known.api_key or ([key] if key else []),
        dev_mode=environment.get("VLLM_SERVER_DEV_MODE") == "1",
        track_load=bool(known.enable_server_load_tracking),
        force_usage=bool(known.enable_force_include_usage),
        prompt_details=bool(known.enable_prompt_tokens_details),
        max_queued_requests=int(known.max_num_queued_reqs) if known.max_num_queued_reqs else None,
    )


def _cache_config(settings: EngineSettings, memory: MemoryPlan) -> dict[str, str]:
    """Labels of ``vllm:cache_config_info``: those that anybody reads."""
    return {
        "block_size": str(settings.block_size),
        "cache_dtype": "auto",
        "enable_prefix_caching": str(settings.enable_prefix_caching),
        "gpu_memory_utilization": str(settings.gpu_memory_utilization),
        "kv_cache_max_concurrency": str(memory.kv_tokens / settings.max_model_len),
        "kv_cache_memory_bytes": str(settings.kv_cache_memory_bytes),
        "kv_cache_size_tokens": str(memory.kv_tokens),
        "num_gpu_blocks": str(memory.blocks),
        "num_gpu_blocks_override": str(settings.num_gpu_blocks_override),
        "prefix_caching_hash_algo": "sha256",
        "sliding_window": "None",
    }
