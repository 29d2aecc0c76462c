"""Samples of a span of time as one value."""

from vllm_tuning.bench.gpu_activity import summarize_gpu


def sample(time, device=0, **values):
    return {"time": time, "device": device, **values}


def test_no_samples_no_value():
    assert summarize_gpu([], 0, 100) is None
    assert summarize_gpu([sample(5, power_watts=1)], 10, 20) is None


def test_means_over_time_and_gpus_without_the_second_that_reaches_back():
    samples = [
        sample(10.5, power_watts=9999, dram_active_percent=0.0),
        sample(12, power_watts=500, dram_active_percent=40.0, memory_used_bytes=10),
        sample(12, device=1, power_watts=700, dram_active_percent=60.0, memory_used_bytes=20),
    ]
    found = summarize_gpu(samples, 10, 20)
    assert found.source == "GPM"
    assert (found.power_watts, found.dram_active_percent, found.memory_used_bytes) == (600, 50, 15)
    assert found.sm_active_percent is None


def test_without_gpm_the_source_is_nvml():
    found = summarize_gpu([sample(12, memory_utilization_percent=30)], 10, 20)
    assert (found.source, found.memory_utilization_percent) == ("NVML", 30)


def test_throttling_is_told_by_its_share():
    capped = [sample(12 + i / 10, throttle_reasons=0x4 if i < 9 else 0) for i in range(10)]
    assert summarize_gpu(capped, 10, 20).throttled == "SwPowerCap 90 %"
    hot = [sample(12, throttle_reasons=0x4 | 0x40)]
    assert summarize_gpu(hot, 10, 20).throttled == "SwPowerCap 100 %, HwThermalSlowdown 100 %"
    rare = [sample(12 + i / 100, throttle_reasons=0x4 if i == 0 else 0) for i in range(100)]
    assert summarize_gpu(rare, 10, 20).throttled is None
