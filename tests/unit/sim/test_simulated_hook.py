"""The real governor on the twin: limits set live hold in every step, and the record proves it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vllm_tuning.bench.sim.assemble import assemble
from vllm_tuning.bench.sim.engine import EngineCore
from vllm_tuning.bench.sim.hook import Hook
from vllm_tuning.bench.sim.memory import EngineSettings, MemoryPlan
from vllm_tuning.bench.sim.parameters import PRESETS
from vllm_tuning.bench.sim.scheduler import Request

SETTINGS = EngineSettings(max_num_seqs=16, max_num_batched_tokens=512, max_model_len=2048)


class Engine:
    """An engine core under the hook, stepped by hand in virtual time."""

    def __init__(self, directory: Path) -> None:
        self.core: EngineCore = assemble(
            PRESETS["tiny"], SETTINGS, MemoryPlan(0, 513, 513 * 16), seed=1, track_decoding=False
        )
        self.directory = directory
        self.hook = Hook(self.core.scheduler, SETTINGS, directory)
        self.now = 0.0
        self.sent = 0

    def limits(self, window: int, **wanted: Any) -> None:
        names = ("seqs", "tokens", "long_prefill_token_threshold", "chunked", "kv_blocks")
        content = {"window": window} | dict.fromkeys(names) | wanted
        partial = self.directory / "partial"
        partial.write_text(json.dumps(content))
        partial.replace(self.directory / "limits.json")
        # The governor looks at most every 5 ms, by a clock that is not the engine's.
        self.hook._governor._looked = 0.0

    def load(self, count: int, prompt: int = 100, output: int = 30) -> None:
        for _ in range(count):
            self.sent += 1
            self.core.submit(Request(self.sent, prompt, output, arrived_at=self.now), self.now)

    def run(self, events: int = 1_000_000) -> None:
        while events and (at := self.core.next_event_at) is not None:
            events -= 1
            self.now = max(self.now, at)
            self.hook.before_step()
            if self.core.advance(self.now) is None and self.core.launched is not None:
                self.hook.after_step(self.core.launched)
        if self.core.idle:
            self.hook.went_idle()

    def record(self) -> dict[str, Any]:
        return json.loads((self.directory / "record-0.json").read_text())


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return Engine(tmp_path)


def test_the_start_is_on_record(engine: Engine):
    record = engine.record()
    assert record["error"] is None
    assert record["applied"] == {
        "seqs": 16, "tokens": 512, "long_prefill_token_threshold": 0, "chunked": True,
        "kv_blocks": 512,
    }  # fmt: skip
    assert record["scheduler"].endswith("SimulatedScheduler")


def test_lower_limits_hold_in_every_step_of_their_window(engine: Engine):
    engine.limits(1)
    engine.load(40)
    engine.run()
    engine.limits(2, seqs=4, tokens=64)
    engine.load(40)
    engine.run()
    engine.limits(3)
    engine.load(40)
    engine.run()
    windows = engine.record()["windows"]
    assert windows["1"]["running_max"] == windows["3"]["running_max"] == 16
    assert windows["1"]["scheduled_tokens_max"] == windows["3"]["scheduled_tokens_max"] == 512
    assert windows["2"]["running_max"] == 4
    assert windows["2"]["scheduled_tokens_max"] == 64
    assert engine.core.idle


def test_limits_never_go_above_those_of_the_start(engine: Engine):
    engine.limits(1, seqs=999, tokens=9999)
    engine.load(40)
    engine.run()
    assert engine.record()["applied"]["seqs"] == 16
    assert engine.record()["windows"]["1"]["scheduled_tokens_max"] <= 512


def test_a_lower_cap_waits_until_no_more_than_that_many_run(engine: Engine):
    engine.load(16, output=200)
    engine.run(events=60)
    assert len(engine.core.scheduler.running) == 16
    engine.limits(1, seqs=2)
    engine.run(events=2)
    assert engine.core.scheduler.limits.seqs == 16
    assert "seqs" in engine.record()["pending"]
    engine.run()
    engine.load(8)
    engine.run()
    assert engine.record()["applied"]["seqs"] == 2


def test_fewer_kv_blocks_preempt_as_a_smaller_cache_would(engine: Engine):
    engine.limits(1)
    engine.load(16, prompt=200, output=200)
    engine.run()
    assert engine.record()["windows"]["1"]["preemptions"] == 0
    engine.limits(2, kv_blocks=100)
    engine.load(16, prompt=200, output=200)
    engine.run()
    window = engine.record()["windows"]["2"]
    assert window["preemptions"] > 0
    assert window["running_max"] <= 100 * 16 // 200
    assert engine.core.scheduler.pool.held == 412
