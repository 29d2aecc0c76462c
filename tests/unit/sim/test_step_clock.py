"""Step times follow the coefficients that were given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from vllm_tuning.bench.sim.cost import Noise, StepClock, StepCost, graph_sizes
from vllm_tuning.bench.sim.memory import EngineSettings
from vllm_tuning.bench.sim.scheduler import Batch

PLAIN = StepCost(
    fixed=5.0,
    per_request=0.1,
    per_context=0.02,
    mixed_fixed=3.0,
    per_token=20.0,
    launch_mixed=2.0,
    launch_eager=13.0,
)
QUIET = Noise(step=0.0)


def clock(cost: StepCost = PLAIN, noise: Noise = QUIET, seed: int = 1) -> StepClock:
    return StepClock(cost, noise, graph_sizes(512), seed=seed)


def decode(requests: int, context: int = 0) -> Batch:
    return Batch(0, tokens=requests, decode_requests=requests, decode_context=context)


def prefill(tokens: int) -> Batch:
    return Batch(0, tokens=tokens, prefill_tokens=tokens, prefill_requests=1)


def test_graph_sizes_are_those_that_vllm_captures():
    assert graph_sizes(16) == (1, 2, 4, 8, 16)
    assert graph_sizes(512)[-17:] == tuple(range(256, 513, 16))
    assert len(graph_sizes(512)) == 51  # as the start log of the H200 counts them
    assert EngineSettings(256, 8192, 4096).largest_graph(512) == 512
    assert EngineSettings(16, 8192, 4096).largest_graph(512) == 32
    assert EngineSettings(256, 64, 4096).largest_graph(512) == 64


def test_a_decode_step_costs_the_same_inside_a_graph_bucket_and_more_beyond():
    times = clock()
    at = {n: times.times(decode(n), 0.0).device for n in (1, 2, 3, 4, 9, 16, 17)}
    assert at[1] == pytest.approx(5.1e-3)
    assert at[3] == at[4]
    assert at[9] == at[16] < at[17]


def test_context_is_paid_per_thousand_tokens():
    times = clock()
    step = times.times(decode(8, 100_000), 0.0).device - times.times(decode(8), 0.0).device
    assert step == pytest.approx(2e-3)


def test_prefill_that_fits_no_graph_is_launched_kernel_by_kernel():
    times = clock()
    assert times.times(prefill(512), 0.0).launch == pytest.approx(2e-3)
    assert times.times(prefill(513), 0.0).launch == pytest.approx(13e-3)
    assert times.times(prefill(512), 0.0).device == pytest.approx((3 + 0.512 * 20) * 1e-3)


def test_padding_rounds_a_mixed_step_up():
    padded = clock(replace(PLAIN, pad_tokens=256))
    assert padded.times(prefill(257), 0.0).device == padded.times(prefill(512), 0.0).device


def test_a_heated_device_prefills_slower_and_cools_down():
    hot = clock(replace(PLAIN, throttle=0.4, heat_seconds=0.1))
    first = hot.times(prefill(512), 0.0).device
    for _ in range(60):
        last = hot.times(prefill(512), 0.0).device
    # Fully heated it would be 40 % slower; a step is only partly compute.
    assert 1.15 < last / first < 1.4
    for _ in range(200):
        hot.times(decode(1), 0.0)
    assert hot.times(prefill(512), 0.0).device == pytest.approx(first, rel=0.01)


def test_experts_saturate():
    moe = clock(replace(PLAIN, per_request=0.0, expert_saturation=10.0, expert_tokens=8.0))
    one, eight, many = (moe.times(decode(n), 0.0).device for n in (1, 8, 256))
    assert one < eight < many
    assert many == pytest.approx(15e-3, rel=1e-3)


def test_a_slow_host_is_slow_for_its_share_of_time():
    noise = Noise(step=0.0, slow_factor=2.0, slow_share=0.4, slow_seconds=1.0)
    shares = []
    for seed in range(30):
        slow = clock(noise=noise, seed=seed)
        launches = [slow.times(prefill(1024), at).launch for at in np.arange(0.0, 60.0, 0.1)]
        assert set(np.round(launches, 6)) <= {13e-3, 26e-3}
        shares.append(float(np.mean(np.array(launches) > 20e-3)))
    assert np.mean(shares) == pytest.approx(0.4, abs=0.12)
    assert np.std(shares) > 0.1  # windows differ


def test_step_noise_has_the_spread_that_was_asked():
    noisy = clock(noise=Noise(step=0.05))
    values = np.array([noisy.times(decode(8), 0.0).device for _ in range(4000)])
    assert values.std() / values.mean() == pytest.approx(0.05, rel=0.1)


def test_drift_wanders_slowly():
    drifting = clock(noise=Noise(step=0.0, drift=0.05, drift_seconds=10.0))
    values = np.array([drifting.times(decode(8), 0.0).device for _ in range(20_000)])
    steps = np.abs(np.diff(values)) / values.mean()
    assert steps.max() < 0.02
    assert 0.01 < values.std() / values.mean() < 0.1


def test_the_same_seed_gives_the_same_times():
    noise = Noise(step=0.05, window=0.1, slow_factor=2, slow_share=0.5, drift=0.02)
    first, second = clock(noise=noise, seed=9), clock(noise=noise, seed=9)
    for at in range(50):
        assert first.times(prefill(600), at) == second.times(prefill(600), at)
