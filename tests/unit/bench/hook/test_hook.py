"""The hook on a scheduler with the names of vLLM's: what it changes, when, and what it records."""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from vllm_tuning.bench.hook.governor import LOOK_INTERVAL_SECONDS, Governor
from vllm_tuning.bench.hook.install import install
from vllm_tuning.bench.hook.record import KEPT_WINDOWS
from vllm_tuning.bench.launcher.hookfiles import checked_limits, read_records, write_limits


class Pool:
    """As vLLM's ``BlockPool``; the null block is one of ``num_gpu_blocks``."""

    def __init__(self, blocks):
        self.num_gpu_blocks = blocks + 1
        self.free = list(range(blocks))

    def get_num_free_blocks(self):
        return len(self.free)

    def get_new_blocks(self, count):
        if count > len(self.free):
            raise ValueError("Cannot get that many free blocks from the pool")
        taken, self.free = self.free[:count], self.free[count:]
        return taken

    def free_blocks(self, blocks):
        self.free.extend(blocks)


@dataclass
class Output:
    total_num_scheduled_tokens: int
    preempted_req_ids: set = field(default_factory=set)


def scheduler_class(*, active=True, preemptions=True):
    """A scheduler that goes by the same attributes as vLLM's, and asserts like it."""

    class Scheduler:
        def __init__(self, seqs=16, tokens=256, rank=0):
            self.vllm_config = SimpleNamespace(
                parallel_config=SimpleNamespace(data_parallel_index=rank, data_parallel_rank=0),
                model_config=SimpleNamespace(max_model_len=128),
            )
            self.scheduler_config = SimpleNamespace(
                long_prefill_token_threshold=0, enable_chunked_prefill=True
            )
            self.kv_cache_manager = SimpleNamespace(block_pool=Pool(100))
            self.max_num_running_reqs = seqs
            if active:
                self.max_num_active_reqs = seqs
            self.max_num_scheduled_tokens = tokens
            self.running = []
            self.waiting = []

        def schedule(self, throttle_prefills=False):
            cap = self.max_num_active_reqs if active else self.max_num_running_reqs
            while self.waiting and len(self.running) < cap:
                self.running.append(self.waiting.pop())
            assert len(self.running) <= self.max_num_running_reqs
            output = Output(min(len(self.running) * 20, self.max_num_scheduled_tokens))
            if not preemptions:
                del output.preempted_req_ids
            return output

        def update_from_output(self, output, finished=0):
            del self.running[:finished]

    return Scheduler


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    """Each step looks: the tests' steps are shorter than any engine's."""
    monkeypatch.setattr("vllm_tuning.bench.hook.governor.LOOK_INTERVAL_SECONDS", 0.0)


@pytest.fixture(params=[True, False], ids=["0.31 and later", "before 0.31"])
def scheduler(request, tmp_path):
    kind = scheduler_class(active=request.param)
    install(kind, tmp_path)
    return kind()


def limit(directory, **limits):
    write_limits(directory, checked_limits(limits))


def record(directory, rank=0):
    return next(r for r in read_records(directory) if r["rank"] == rank)


def step(scheduler, finished=0):
    scheduler.update_from_output(scheduler.schedule(), finished)


def run_dry(scheduler):
    """Step until nothing runs; the idle engine's record is written."""
    while scheduler.running or scheduler.waiting:
        step(scheduler, finished=1)


def test_a_record_lies_there_before_the_first_step(scheduler, tmp_path):
    found = record(tmp_path)
    assert found["started"] == {
        "seqs": 16,
        "tokens": 256,
        "long_prefill_token_threshold": 0,
        "chunked": True,
        "kv_blocks": 100,
    }
    assert found["steps"] == 0
    assert found["scheduler"].endswith("Scheduler")


def test_limits_bind_and_the_record_shows_it(scheduler, tmp_path):
    limit(tmp_path, window=1, seqs=3, tokens=50)
    scheduler.waiting = list(range(10))
    run_dry(scheduler)
    found = record(tmp_path)
    assert found["applied"]["seqs"] == 3
    assert found["windows"]["1"]["running_max"] == 3
    assert found["windows"]["1"]["scheduled_tokens_max"] == 50
    limit(tmp_path, window=2)
    scheduler.waiting = list(range(10))
    run_dry(scheduler)
    found = record(tmp_path)
    assert found["applied"] == found["started"]
    assert found["windows"]["2"]["running_max"] == 10
    assert found["running_max"] == 10


def test_never_above_what_the_engine_started_with(scheduler, tmp_path):
    limit(tmp_path, window=1, seqs=1000, tokens=100_000, kv_blocks=10_000)
    scheduler.waiting = list(range(30))
    run_dry(scheduler)
    assert record(tmp_path)["applied"] == record(tmp_path)["started"]
    assert record(tmp_path)["running_max"] == 16


def test_a_lower_cap_waits_until_no_more_run(scheduler, tmp_path):
    scheduler.waiting = list(range(8))
    step(scheduler)
    limit(tmp_path, window=1, seqs=4)
    step(scheduler)
    assert record(tmp_path)["pending"] == ["seqs"]
    step(scheduler, finished=4)
    step(scheduler)
    assert record(tmp_path)["pending"] == []
    assert record(tmp_path)["applied"]["seqs"] == 4


def test_what_must_not_change_under_load_waits_for_idleness(scheduler, tmp_path):
    scheduler.waiting = [1]
    step(scheduler)
    limit(tmp_path, window=1, long_prefill_token_threshold=64, chunked=False, kv_blocks=60)
    step(scheduler)
    assert record(tmp_path)["pending"] == ["long_prefill_token_threshold", "chunked", "kv_blocks"]
    assert scheduler.scheduler_config.enable_chunked_prefill
    run_dry(scheduler)
    scheduler.waiting = [1]
    step(scheduler)
    assert scheduler.scheduler_config.long_prefill_token_threshold == 64
    assert not scheduler.scheduler_config.enable_chunked_prefill
    assert len(scheduler.kv_cache_manager.block_pool.free) == 60


def test_blocks_come_back(scheduler, tmp_path):
    pool = scheduler.kv_cache_manager.block_pool
    for window, (blocks, free) in enumerate([(10, 10), (70, 70), (None, 100), (5, 5)]):
        limit(tmp_path, window=window, kv_blocks=blocks)
        scheduler.waiting = [1]
        run_dry(scheduler)
        assert len(pool.free) == free
    assert sorted(set(pool.free)) == sorted(pool.free)


def test_blocks_whose_freeing_is_late_are_waited_for(scheduler, tmp_path):
    pool = scheduler.kv_cache_manager.block_pool
    held = pool.get_new_blocks(80)
    limit(tmp_path, window=1, kv_blocks=10)
    scheduler.waiting = [1]
    run_dry(scheduler)
    assert record(tmp_path)["pending"] == ["kv_blocks"]
    pool.free_blocks(held)
    scheduler.waiting = [1]
    run_dry(scheduler)
    assert len(pool.free) == 10


def test_chunking_is_not_switched_off_where_prompts_would_starve(scheduler, tmp_path):
    limit(tmp_path, window=1, tokens=100, chunked=False)
    scheduler.waiting = [1]
    run_dry(scheduler)
    assert scheduler.scheduler_config.enable_chunked_prefill
    assert "128 tokens" in record(tmp_path)["error"]


def test_an_error_stops_the_hook_and_never_the_engine(scheduler, tmp_path):
    (tmp_path / "limits.json").write_text("{broken")
    scheduler.waiting = list(range(4))
    run_dry(scheduler)
    assert "JSONDecodeError" in record(tmp_path)["error"]


def test_a_subclass_that_replaces_schedule_leaves_no_steps(tmp_path):
    base = scheduler_class()
    install(base, tmp_path)

    class Own(base):
        def schedule(self, throttle_prefills=False):
            return Output(1)

    own = Own()
    step(own)
    assert record(tmp_path)["steps"] == 0
    assert record(tmp_path)["scheduler"].endswith("Own")


def test_a_subclass_that_calls_its_base_is_governed(tmp_path):
    base = scheduler_class()
    install(base, tmp_path)
    install(base, tmp_path)  # vLLM may load a plugin more than once

    class AsyncScheduler(base):
        def schedule(self, throttle_prefills=False):
            return super().schedule(throttle_prefills)

    asynchronous = AsyncScheduler(rank=3)
    asynchronous.waiting = [1]
    step(asynchronous, finished=1)
    assert record(tmp_path, rank=3)["steps"] == 1


def test_engines_that_tell_no_preemptions(tmp_path):
    kind = scheduler_class(preemptions=False)
    install(kind, tmp_path)
    old = kind()
    old.waiting = [1]
    step(old, finished=1)
    assert record(tmp_path)["preemptions"] is None


def test_old_windows_are_forgotten(scheduler, tmp_path):
    for window in range(KEPT_WINDOWS + 3):
        limit(tmp_path, window=window)
        scheduler.waiting = [1]
        run_dry(scheduler)
    assert [int(w) for w in record(tmp_path)["windows"]] == list(range(3, KEPT_WINDOWS + 3))


def test_it_looks_at_the_file_only_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr("vllm_tuning.bench.hook.governor.LOOK_INTERVAL_SECONDS", 3600.0)
    kind = scheduler_class()
    scheduler = kind()
    governor = Governor(scheduler, tmp_path)
    limit(tmp_path, window=1, seqs=1)
    governor.before_step(scheduler)  # the first look
    limit(tmp_path, window=2, seqs=2)
    governor.before_step(scheduler)
    assert scheduler.max_num_active_reqs == 1
    assert LOOK_INTERVAL_SECONDS <= 0.01  # an engine step


def test_the_record_is_written_seldom_under_load(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(
        "vllm_tuning.bench.hook.record.Record.write",
        lambda self: written.append(1) or setattr(self, "_written", float("inf")),
    )
    kind = scheduler_class()
    install(kind, tmp_path)
    scheduler = kind()
    scheduler.waiting = list(range(100))
    before = len(written)
    for _ in range(50):
        step(scheduler)
    assert len(written) == before


def test_without_a_directory_nothing_is_installed(monkeypatch):
    from vllm_tuning.bench.hook import register

    monkeypatch.delenv("TUNING_HOOK_DIR", raising=False)
    register()


def test_an_engine_without_a_v1_scheduler_is_told(tmp_path, monkeypatch):
    import sys

    from vllm_tuning.bench.hook import register

    monkeypatch.setitem(sys.modules, "vllm.v1.core.sched.scheduler", None)
    monkeypatch.setenv("TUNING_HOOK_DIR", str(tmp_path))
    register()
    assert "no V1 scheduler" in json.loads((tmp_path / "record-0.json").read_text())["error"]
