"""A probe on a real socket says what bound it."""

from __future__ import annotations

import time

import pytest

from vllm_tuning.tuning.model import Bottleneck, ClosedLoad, GPUActivity, Limits, OpenLoad, Verdict

from .probing import measure, probe


async def test_clients_that_queue_at_a_full_engine(tiny_engine):
    engine = await tiny_engine(slots=4)
    result, _ = await measure(
        engine, probe(ClosedLoad(24), limits=Limits(4, 2048), window_seconds=2.0)
    )
    assert result.bottleneck is Bottleneck.SCHEDULER, result.bottleneck_evidence
    assert "of 4 sequences run (max_num_seqs)" in result.bottleneck_evidence
    assert result.engine.engines == 1


async def test_the_gpu_of_the_windows_decides_and_their_time_is_told(tiny_engine):
    engine = await tiny_engine()
    asked: list[tuple[float, float]] = []

    async def gpu(start, end):
        asked.append((start, end))
        return GPUActivity("GPM", dram_active_percent=61, tensor_active_percent=7)

    before = time.time()
    result, _ = await measure(engine, probe(OpenLoad(40.0), window_seconds=0.5), gpu_samples=gpu)
    assert result.bottleneck is Bottleneck.MEMORY_BANDWIDTH
    assert result.bottleneck_evidence.startswith("memory 61 %, tensor 7 % active (GPM)")
    [(start, end)] = asked
    assert before < result.measured_from == start < time.time()
    assert result.measured_seconds == pytest.approx(end - start)


async def test_without_counters_it_is_told_that_they_are_missing(tiny_engine):
    engine = await tiny_engine()
    result, _ = await measure(engine, probe(OpenLoad(40.0), window_seconds=0.5))
    assert result.verdict is not Verdict.INVALID
    assert result.bottleneck is Bottleneck.UNKNOWN
    assert result.bottleneck_evidence.startswith("missing: GPU counters")
