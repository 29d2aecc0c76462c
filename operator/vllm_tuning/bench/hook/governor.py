"""Applies limits to one scheduler, never above what it started with, and keeps its record.

The scheduler's attributes are the same in vLLM 0.11 to 0.33 but for ``max_num_active_reqs`` (from
0.31, the admission cap apart from the size of the runner's buffers).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .record import Record

LOOK_INTERVAL_SECONDS = 0.005
"""Least time between two looks at ``limits.json``.

A step is rarely shorter, and a look costs a system call.
"""


class Governor:
    """Stands beside one scheduler.

    After an error of its own it stops governing and says so in the record.
    """

    def __init__(self, scheduler: Any, directory: Path) -> None:
        self._limits_path = directory / "limits.json"
        self._looked = float("-inf")
        self._version: tuple[int, int] | None = None
        self._pending: dict[str, Any] = {}
        self._held: list[Any] = []
        self._broken = False
        self._appliers: dict[str, Callable[[Any, Any], bool]] = {
            # The token budget before chunked prefill, whose rule depends on it.
            "seqs": self._apply_seqs,
            "tokens": self._apply_tokens,
            "long_prefill_token_threshold": self._apply_threshold,
            "chunked": self._apply_chunked,
            "kv_blocks": self._apply_kv_blocks,
        }
        kind = type(scheduler)
        self._record = Record(directory, _rank(scheduler), f"{kind.__module__}.{kind.__qualname__}")
        self._guarded(lambda: self._begin(scheduler))

    def before_step(self, scheduler: Any) -> None:
        """Read the limits when they changed and apply what can be applied now."""
        if self._broken:
            return
        now = time.monotonic()
        if now - self._looked >= LOOK_INTERVAL_SECONDS:
            self._looked = now
            self._guarded(self._look)
        if self._pending:
            self._guarded(lambda: self._apply(scheduler))

    def after_step(self, scheduler: Any, output: Any) -> None:
        """Record what the step scheduled."""
        if self._broken:
            return
        tokens = output.total_num_scheduled_tokens
        if tokens:
            self._guarded(
                lambda: self._record.count(len(scheduler.running), tokens, _preempted(output))
            )

    def went_idle(self) -> None:
        """Nothing runs: the record of what ended must not wait for the next step."""
        if not self._broken:
            self._guarded(self._record.flush)

    def _begin(self, scheduler: Any) -> None:
        config = scheduler.scheduler_config
        self._record.started = {
            "seqs": getattr(scheduler, "max_num_active_reqs", scheduler.max_num_running_reqs),
            "tokens": scheduler.max_num_scheduled_tokens,
            "long_prefill_token_threshold": config.long_prefill_token_threshold,
            "chunked": config.enable_chunked_prefill,
            "kv_blocks": scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1,
        }
        self._record.applied = dict(self._record.started)
        self._record.write()

    def _look(self) -> None:
        try:
            status = os.stat(self._limits_path)  # noqa: PTH116 - half the cost of Path.stat, in the engine's loop
        except FileNotFoundError:
            return
        version = (status.st_mtime_ns, status.st_ino)
        if version == self._version:
            return
        wanted = json.loads(self._limits_path.read_text())
        self._version = version
        self._record.flush()
        self._record.enter_window(int(wanted["window"]))
        applied, started = self._record.applied, self._record.started
        limits = {
            name: started[name] if wanted.get(name) is None else wanted[name] for name in started
        }
        self._pending = {name: value for name, value in limits.items() if value != applied[name]}
        self._record.pending = list(self._pending)
        self._record.error = None
        self._record.write()

    def _apply(self, scheduler: Any) -> None:
        done = [
            name for name, value in self._pending.items() if self._appliers[name](scheduler, value)
        ]
        for name in done:
            del self._pending[name]
        if done:
            self._record.pending = list(self._pending)
            self._record.write()

    def _apply_seqs(self, scheduler: Any, wanted: int) -> bool:
        wanted = min(wanted, self._record.started["seqs"])
        if len(scheduler.running) > wanted:
            return False  # the scheduler asserts running <= max_num_running_reqs after each step
        if hasattr(scheduler, "max_num_active_reqs"):
            scheduler.max_num_active_reqs = wanted
        else:
            scheduler.max_num_running_reqs = wanted
        self._record.applied["seqs"] = wanted
        return True

    def _apply_tokens(self, scheduler: Any, wanted: int) -> bool:
        wanted = min(wanted, self._record.started["tokens"])
        scheduler.max_num_scheduled_tokens = wanted
        self._record.applied["tokens"] = wanted
        return True

    def _apply_threshold(self, scheduler: Any, wanted: int) -> bool:
        if scheduler.running:
            return False
        scheduler.scheduler_config.long_prefill_token_threshold = wanted
        self._record.applied["long_prefill_token_threshold"] = wanted
        return True

    def _apply_chunked(self, scheduler: Any, wanted: bool) -> bool:
        if scheduler.running:
            return False
        longest = scheduler.vllm_config.model_config.max_model_len
        if not wanted and scheduler.max_num_scheduled_tokens < longest:
            self._record.error = (
                f"chunked prefill stays on: off, a prompt of {longest} tokens would never fit into "
                f"a step of {scheduler.max_num_scheduled_tokens}"
            )
            return True
        config = scheduler.scheduler_config
        config.enable_chunked_prefill = wanted
        if hasattr(config, "chunked_prefill_enabled"):  # what 0.11 looks at
            config.chunked_prefill_enabled = wanted
        self._record.applied["chunked"] = wanted
        return True

    def _apply_kv_blocks(self, scheduler: Any, wanted: int) -> bool:
        """Take blocks out of the pool, or give them back, so that ``wanted`` are usable."""
        if scheduler.running:
            return False
        pool = scheduler.kv_cache_manager.block_pool
        wanted = min(wanted, self._record.started["kv_blocks"])
        excess = self._record.started["kv_blocks"] - wanted - len(self._held)
        if excess > pool.get_num_free_blocks():
            return False  # blocks whose freeing is delayed
        if excess > 0:
            self._held.extend(pool.get_new_blocks(excess))
        elif excess < 0:
            pool.free_blocks(self._held[excess:])
            del self._held[excess:]
        self._record.applied["kv_blocks"] = wanted
        return True

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:  # noqa: BLE001 - nothing of ours may stop the engine
            self._broken = True
            self._record.error = f"{type(error).__name__}: {error}"
            try:
                self._record.write()
            except OSError:
                return


def _rank(scheduler: Any) -> int:
    """The data-parallel rank.

    From 0.13 on, cores of a dense model all have rank 0 and an index of their own.
    """
    parallel = scheduler.vllm_config.parallel_config
    index = getattr(parallel, "data_parallel_index", None)
    return int(index if index is not None else parallel.data_parallel_rank)


def _preempted(output: Any) -> int | None:
    if not hasattr(output, "preempted_req_ids"):
        return None
    return len(output.preempted_req_ids or ())
