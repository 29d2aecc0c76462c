"""What bound a load point: the windows measured on an H200, and the rules one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.diagnosis.windows import load_windows
from vllm_tuning.tuning.diagnosis import diagnose, diagnosed
from vllm_tuning.tuning.model import (
    Bottleneck,
    EngineDeltas,
    GPUActivity,
    Limits,
    OpenLoad,
    Probe,
    ProbeResult,
    Purpose,
    Verdict,
)

WINDOWS = {window.number: window for window in load_windows()}


@pytest.mark.parametrize(
    ("number", "what", "bottleneck"),
    [
        (34, "prefill alone", Bottleneck.COMPUTE),
        (35, "8 requests decoding", Bottleneck.MEMORY_BANDWIDTH),
        (36, "64 requests decoding", Bottleneck.MEMORY_BANDWIDTH),
        (37, "256 requests decoding, at the ridge", Bottleneck.UNKNOWN),
        (3, "one client", Bottleneck.MEMORY_BANDWIDTH),
        (5, "16 clients: twice as many gained 53 %", Bottleneck.MEMORY_BANDWIDTH),
        (8, "128 clients: twice as many gained 6 %", Bottleneck.COMPUTE),
        (9, "256 clients", Bottleneck.COMPUTE),
        (14, "50 req/s, far beyond the knee", Bottleneck.COMPUTE),
        (24, "the same under a budget of 512 tokens", Bottleneck.SCHEDULER),
        (1006, "a cap of 48: 64 gained 23 %", Bottleneck.SCHEDULER),
        (1005, "a cap of 64: 96 gained 14 %", Bottleneck.SCHEDULER),
        (1004, "a cap of 96: 128 gained nothing", Bottleneck.KV_CAPACITY),
        (1003, "a cap of 128: 256 lost 6 %", Bottleneck.KV_CAPACITY),
        (44, "blocks held back live", Bottleneck.KV_CAPACITY),
    ],
)
def test_h200_windows(number, what, bottleneck):
    found = diagnose(WINDOWS[number].result)
    assert found.bottleneck is bottleneck, f"{what}: {found.evidence}"


def test_a_growing_batch_moves_from_memory_to_compute_and_never_back():
    order = [Bottleneck.MEMORY_BANDWIDTH, Bottleneck.UNKNOWN, Bottleneck.COMPUTE]
    for sweep in ((3, 4, 5, 6, 7, 8, 9), (10, 11, 12, 13, 14), (15, 16, 17, 18, 19)):
        found = [order.index(diagnose(WINDOWS[n].result).bottleneck) for n in sweep]
        assert found == sorted(found)


@pytest.mark.parametrize(
    "absent",
    [
        ("tensor_active_percent",),
        ("dram_active_percent",),
        ("dram_active_percent", "tensor_active_percent", "sm_active_percent"),
    ],
)
def test_fewer_counters_lose_verdicts_and_change_none(absent):
    for window in WINDOWS.values():
        full = diagnose(window.result).bottleneck
        less = replace(window.result, gpu=replace(window.result.gpu, **dict.fromkeys(absent)))
        assert diagnose(less).bottleneck in {full, Bottleneck.UNKNOWN}


PROBE = Probe("p", Purpose.SEARCH, Limits(64, 2048), OpenLoad(10), seed=1, window_seconds=10)
MEMORY = GPUActivity("GPM", dram_active_percent=60, tensor_active_percent=10, sm_active_percent=70)
COMPUTE = GPUActivity("GPM", dram_active_percent=30, tensor_active_percent=70)


def result(engine=None, gpu=None, verdict=Verdict.PASS, reason="WithinSLO", message=""):
    return ProbeResult(
        PROBE, verdict, reason, message, seconds=1, engine=engine or EngineDeltas(), gpu=gpu
    )


def test_the_client_comes_before_everything_else():
    late = result(
        EngineDeltas(preemptions=9),
        COMPUTE,
        verdict=Verdict.INVALID,
        reason="ClientLag",
        message="the client's event loop was 80 ms late",
    )
    found = diagnose(late)
    assert found.bottleneck is Bottleneck.CLIENT
    assert found.evidence == "the client's event loop was 80 ms late"


def test_a_probe_that_is_no_data_has_no_bottleneck():
    found = diagnose(result(gpu=COMPUTE, verdict=Verdict.INVALID, reason="EngineRestarted"))
    assert found.bottleneck is Bottleneck.UNKNOWN
    assert "EngineRestarted" in found.evidence


def test_a_full_cache_without_a_queue_is_no_bottleneck():
    full = EngineDeltas(kv_usage_peak_fraction=0.99, waiting_mean=0.2, preemptions=0)
    assert diagnose(result(full, MEMORY)).bottleneck is Bottleneck.MEMORY_BANDWIDTH
    queued = replace(full, waiting_mean=3.0, running_max=40, queue_seconds_mean=0.25)
    found = diagnose(result(queued, MEMORY))
    assert found.bottleneck is Bottleneck.KV_CAPACITY
    assert found.evidence == (
        "KV cache 99% full at its peak; at most 40 of 64 sequences ran; "
        "3.0 requests wait on average (250 ms of queue a request)"
    )


def test_a_saturated_tensor_pipe_comes_before_the_limits():
    queued = EngineDeltas(running_mean=64, waiting_mean=20)
    busy = replace(COMPUTE, tensor_active_percent=84)
    assert diagnose(result(queued, busy)).bottleneck is Bottleneck.COMPUTE
    assert diagnose(result(queued, COMPUTE)).bottleneck is Bottleneck.SCHEDULER


@pytest.mark.parametrize(
    ("engine", "held"),
    [
        (EngineDeltas(running_mean=63, waiting_mean=5), True),
        (EngineDeltas(running_mean=63, waiting_mean=0.5), False),
        (EngineDeltas(running_mean=50, waiting_mean=5), False),
        # All requests in flight fit under the cap: they wait for something else.
        (EngineDeltas(running_mean=60, waiting_mean=2), False),
        (EngineDeltas(running_mean=10, waiting_mean=5, tokens_per_step=2000), True),
        (EngineDeltas(running_mean=10, waiting_mean=5, tokens_per_step=1500), False),
        # Two engines of 64 each: 70 running is neither's cap.
        (EngineDeltas(running_mean=70, waiting_mean=5, engines=2), False),
        (EngineDeltas(running_mean=127, waiting_mean=5, engines=2), True),
    ],
)
def test_a_limit_binds_where_it_is_filled_while_requests_wait(engine, held):
    found = diagnose(result(engine, MEMORY)).bottleneck
    assert found is (Bottleneck.SCHEDULER if held else Bottleneck.MEMORY_BANDWIDTH)


def test_without_a_gpu_it_says_what_is_missing():
    found = diagnose(result())
    assert found.bottleneck is Bottleneck.UNKNOWN
    assert found.evidence == (
        "missing: GPU counters (NVML with GPM, or a DCGM exporter); missing: the engine's metrics"
    )


def test_memory_in_use_all_the_time_is_a_weak_sign_and_told_as_one():
    nvml = GPUActivity("NVML", memory_utilization_percent=80)
    found = diagnose(result(gpu=nvml))
    assert found.bottleneck is Bottleneck.MEMORY_BANDWIDTH
    assert "weak sign" in found.evidence
    lower = diagnose(result(gpu=replace(nvml, memory_utilization_percent=60)))
    assert lower.bottleneck is Bottleneck.UNKNOWN
    assert lower.evidence.startswith("missing: activity of memory (DRAM) and tensor pipe")


def test_a_gpu_that_waits_is_bound_by_nothing_it_has():
    idle = GPUActivity(
        "DCGM", dram_active_percent=12, tensor_active_percent=2, sm_active_percent=20
    )
    found = diagnose(result(EngineDeltas(tokens_per_step=4), idle))
    assert found.bottleneck is Bottleneck.UNKNOWN
    assert "waits for work" in found.evidence
    assert "most SMs idle" in found.evidence
    assert "(DCGM)" in found.evidence


def test_a_power_cap_is_told():
    capped = replace(COMPUTE, throttled="SwPowerCap 93 %")
    assert "SwPowerCap 93 %" in diagnose(result(gpu=capped)).evidence


def test_a_result_carries_its_diagnosis():
    found = diagnosed(result(gpu=MEMORY))
    assert found.bottleneck is Bottleneck.MEMORY_BANDWIDTH
    assert found.bottleneck_evidence == (
        "memory 60 %, tensor 10 %, SM 70 % active (GPM); missing: the engine's metrics"
    )
