"""The in-process server answers starts and probes like a real one, only sooner."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.simulated_bench import TINY
from vllm_tuning.bench.sim.inprocess import SimulatedServer
from vllm_tuning.bench.sim.parameters import PRESETS
from vllm_tuning.tuning.model import (
    Budget,
    ClosedLoad,
    FailureKind,
    Lengths,
    Limits,
    OpenLoad,
    Probe,
    ProbeResult,
    Purpose,
    Start,
    Verdict,
    Workload,
)

LIMITS = Limits(32, 512)
PROBLEM = replace(TINY, current=LIMITS, budget=Budget(1e9, 1e9))


def started(limits: Limits = LIMITS, *, hook: bool = True, seed: int = 1, **options: object):
    server = SimulatedServer(PRESETS["tiny"], seed=seed, **options)  # type: ignore[arg-type]
    result = server.start(Start("s", Purpose.SEARCH, limits, hook=hook))
    assert result.facts is not None
    return server


def probe(load: OpenLoad | ClosedLoad, limits: Limits = LIMITS, **options: object) -> Probe:
    settings = {"seed": 3, "window_seconds": 6.0, "windows": 2, "stop_on_fail": False} | options
    return Probe("p", Purpose.SEARCH, limits, load, **settings)  # type: ignore[arg-type]


def measure(server: SimulatedServer, load: OpenLoad | ClosedLoad, **options: object) -> ProbeResult:
    return server.run(probe(load, **options), PROBLEM)  # type: ignore[arg-type]


def test_a_light_load_looks_well_and_an_impossible_one_fails():
    server = started()
    light = measure(server, OpenLoad(10))
    heavy = measure(server, OpenLoad(400))
    assert (light.verdict, light.reason) == (Verdict.UNDECIDED, "LooksWithinSLO")
    assert light.goodput_fraction == 1.0
    assert light.request_rate == pytest.approx(10, rel=0.2)
    assert light.output_tokens_per_second == pytest.approx(16 * light.request_rate, rel=0.1)
    assert heavy.verdict is Verdict.FAIL
    assert heavy.engine.waiting_max > 10
    assert heavy.engine.running_max == 32


def test_only_a_deciding_probe_passes():
    result = measure(started(), OpenLoad(20), decide=True, window_seconds=60.0, windows=2)
    assert result.verdict is Verdict.PASS


def test_a_failing_probe_stops_early_if_it_may():
    server = started()
    whole = measure(server, OpenLoad(400))
    early = measure(server, OpenLoad(400), stop_on_fail=True)
    assert early.verdict is Verdict.FAIL
    assert early.measured_seconds < whole.measured_seconds


def test_limits_set_live_act_like_those_of_a_start():
    live = measure(started(), ClosedLoad(16), limits=Limits(4, 128))
    fresh = measure(started(Limits(4, 128), hook=False), ClosedLoad(16), limits=Limits(4, 128))
    assert live.engine.hook_running_max == fresh.engine.running_max == 4
    assert live.engine.hook_scheduled_tokens_max <= 128
    assert live.ttft.p50 == pytest.approx(fresh.ttft.p50, rel=0.1)
    assert live.output_tokens_per_second == pytest.approx(fresh.output_tokens_per_second, rel=0.05)


def test_without_the_hook_nothing_is_set_live():
    server = started(hook=False)
    with pytest.raises(RuntimeError, match="without the hook"):
        measure(server, OpenLoad(10), limits=Limits(4, 128))


def test_a_lower_memory_share_is_held_back_live_like_a_smaller_cache():
    share, workload = 17, Workload(Lengths(400), Lengths(200))
    problem = replace(PROBLEM, workload=workload)
    limits = Limits(64, 512, gpu_memory_utilization_percent=share)
    parameters = replace(PRESETS["tiny"], model_max_len=1024)
    results = []
    for begin, hook in ((Limits(64, 512), True), (limits, False)):
        server = SimulatedServer(parameters, seed=1)
        assert server.start(Start("s", Purpose.SEARCH, begin, hook=hook)).facts
        asked = probe(ClosedLoad(64), limits, window_seconds=30.0, windows=1)
        results.append(server.run(asked, problem))
    live, fresh = results
    assert live.engine.preemptions > 0
    assert live.engine.preemptions == pytest.approx(fresh.engine.preemptions, rel=0.2)
    assert live.engine.running_max == pytest.approx(fresh.engine.running_max, abs=1)


def test_the_same_seed_answers_alike_and_another_card_does_not():
    def one(seed: int) -> ProbeResult:
        return measure(started(seed=seed), OpenLoad(40))

    assert one(5) == one(5)
    assert one(5).ttft.mean != one(6).ttft.mean


def test_a_start_that_cannot_be_is_a_typed_failure():
    server = SimulatedServer(PRESETS["tiny"])
    result = server.start(Start("s", Purpose.SEARCH, Limits(64, 32), hook=True))
    assert result.facts is None
    assert result.failure is not None
    assert (result.failure.kind, result.failure.reason) == (
        FailureKind.INFEASIBLE, "BudgetBelowSeqs",
    )  # fmt: skip
    assert result.failure.hint == 64
    with pytest.raises(RuntimeError, match="no engine runs"):
        measure(server, OpenLoad(1))


def test_a_shared_prefix_is_found_in_the_cache():
    workload = replace(PROBLEM.workload, input_tokens=Lengths(160), shared_prefix_percent=50)
    problem = replace(PROBLEM, workload=workload)
    hit = started().run(probe(OpenLoad(20)), problem)
    off = started(enable_prefix_caching=False).run(probe(OpenLoad(20)), problem)
    assert hit.engine.prefix_hit_fraction == pytest.approx(80 / 160, abs=0.03)
    assert off.engine.prefix_hit_fraction is None
    assert hit.ttft.p50 < off.ttft.p50


def test_every_request_is_accounted_for():
    result = measure(started(), OpenLoad(200))
    assert result.sent == result.completed + result.cancelled + result.failed
    assert result.cancelled > 0
    closed = measure(started(), ClosedLoad(8))
    assert closed.engine.running_max <= 8


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_starts_with_the_engines_defaults_and_serves(preset: str):
    parameters = PRESETS[preset]
    server = SimulatedServer(parameters, seed=2)
    begun = server.start(Start("s", Purpose.BASELINE, Limits(64, 2048), hook=False))
    assert begun.facts is not None, begun.failure
    result = server.run(
        Probe("p", Purpose.BASELINE, Limits(64, 2048), ClosedLoad(4), 1, 20.0), PROBLEM
    )
    assert result.completed > 20
    assert 0 < result.ttft.p50 < 1000
    assert np.isfinite(result.tpot.p95)


def test_a_burst_is_sent_at_once_and_waited_for():
    server = started()
    few = server.burst(LIMITS, PROBLEM, requests=32, seed=1)
    many = server.burst(LIMITS, PROBLEM, requests=320, seed=1)
    assert 5 * few < many < 12 * few  # ten rounds of all 32 sequences
    assert server.engine_seconds == pytest.approx(
        PRESETS["tiny"].start_seconds + few + many, rel=1e-6
    )
    flat_out = server.run(probe(ClosedLoad(64)), PROBLEM)
    assert 320 / many == pytest.approx(flat_out.request_rate, rel=0.2)
