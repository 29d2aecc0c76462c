"""The live-limits hook on the simulated scheduler.

The governor of ``bench.hook`` is the one that runs in vLLM. It knows the engine's scheduler by a
handful of attributes, and this adapter gives the twin those names: what tests exercise here is the
code that production trials run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from vllm_tuning.bench.hook.governor import Governor
from vllm_tuning.bench.sim.kv import BlockPool
from vllm_tuning.bench.sim.memory import EngineSettings
from vllm_tuning.bench.sim.scheduler import Batch, Request, Scheduler


class _Config:
    """vLLM's ``scheduler_config``: the two switches that may change live."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    @property
    def long_prefill_token_threshold(self) -> int:
        return self._scheduler.limits.long_prefill_token_threshold

    @long_prefill_token_threshold.setter
    def long_prefill_token_threshold(self, value: int) -> None:
        self._scheduler.limits = replace(self._scheduler.limits, long_prefill_token_threshold=value)

    @property
    def enable_chunked_prefill(self) -> bool:
        return self._scheduler.limits.chunked

    @enable_chunked_prefill.setter
    def enable_chunked_prefill(self, value: bool) -> None:
        self._scheduler.limits = replace(self._scheduler.limits, chunked=value)


class _Pool:
    """vLLM's ``block_pool``: blocks are taken out of it and given back by the piece."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self.num_gpu_blocks = pool.total + 1

    def get_num_free_blocks(self) -> int:
        return self._pool.free

    def get_new_blocks(self, count: int) -> list[int]:
        self._pool.hold_back(self._pool.held + count)
        return [0] * count

    def free_blocks(self, blocks: list[int]) -> None:
        self._pool.hold_back(self._pool.held - len(blocks))


@dataclass(frozen=True, slots=True)
class _Manager:
    block_pool: _Pool


@dataclass(frozen=True, slots=True)
class _Parallel:
    data_parallel_index: int = 0


@dataclass(frozen=True, slots=True)
class _Model:
    max_model_len: int


@dataclass(frozen=True, slots=True)
class _Vllm:
    model_config: _Model
    parallel_config: _Parallel = _Parallel()


class SimulatedScheduler:
    """The twin under the names that vLLM's scheduler has."""

    def __init__(self, scheduler: Scheduler, settings: EngineSettings) -> None:
        self._scheduler = scheduler
        self.scheduler_config = _Config(scheduler)
        self.kv_cache_manager = _Manager(_Pool(scheduler.pool))
        self.vllm_config = _Vllm(_Model(settings.max_model_len))

    @property
    def running(self) -> dict[Request, None]:
        """Requests that run."""
        return self._scheduler.running

    @property
    def max_num_running_reqs(self) -> int:
        """The cap on them."""
        return self._scheduler.limits.seqs

    @property
    def max_num_active_reqs(self) -> int:
        """The same: this twin has no buffers apart from it."""
        return self._scheduler.limits.seqs

    @max_num_active_reqs.setter
    def max_num_active_reqs(self, value: int) -> None:
        self._scheduler.limits = replace(self._scheduler.limits, seqs=value)

    @property
    def max_num_scheduled_tokens(self) -> int:
        """The token budget."""
        return self._scheduler.limits.tokens

    @max_num_scheduled_tokens.setter
    def max_num_scheduled_tokens(self, value: int) -> None:
        self._scheduler.limits = replace(self._scheduler.limits, tokens=value)


@dataclass(frozen=True, slots=True)
class _Output:
    total_num_scheduled_tokens: int
    preempted_req_ids: tuple[object, ...]


class Hook:
    """A governor beside the simulated scheduler."""

    def __init__(self, scheduler: Scheduler, settings: EngineSettings, directory: Path) -> None:
        self._scheduler = SimulatedScheduler(scheduler, settings)
        self._governor = Governor(self._scheduler, directory)

    def before_step(self) -> None:
        """Apply what ``limits.json`` wants, as far as it can be applied now."""
        self._governor.before_step(self._scheduler)

    def after_step(self, batch: Batch) -> None:
        """Record what was scheduled."""
        output = _Output(batch.tokens, tuple(request.id for request in batch.preempted))
        self._governor.after_step(self._scheduler, output)

    def went_idle(self) -> None:
        """Write the record out: no step follows."""
        self._governor.went_idle()
