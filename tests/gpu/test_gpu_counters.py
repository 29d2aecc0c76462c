"""The launcher's sampler on a real data-centre GPU."""

import os
import time

import pytest

from vllm_tuning.bench.gpu_activity import summarize_gpu
from vllm_tuning.bench.launcher.gpu import Sampler, open_devices

pytestmark = pytest.mark.gpu


def test_samples_have_units_and_gpm_follows_after_the_first():
    devices, missing = open_devices(os.environ)
    assert missing is None
    assert devices[0].describe()["memory_bytes"] > 1 << 30
    sampler = Sampler(devices)
    began = time.time()
    sampler.begin()
    while len(samples := sampler.since(began)) < 4 * len(devices):
        time.sleep(0.1)
    last = samples[-1]
    assert 0 < last["memory_used_bytes"] < devices[0].describe()["memory_bytes"]
    assert 10 < last["power_watts"] < 2000
    assert 100 < last["sm_clock_megahertz"] < 5000
    assert 0 <= last["gpu_utilization_percent"] <= 100
    if devices[0].describe()["gpm"]:
        assert 0 <= last["dram_active_percent"] <= 100
        assert "dram_active_percent" not in samples[0]
    activity = summarize_gpu(samples, began, time.time())
    assert activity.power_watts > 10
