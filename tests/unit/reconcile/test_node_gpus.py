"""Filling a probe's gaps from the pages of the node's DCGM exporter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.reconcile.bench_events import a_whole_run
from vllm_tuning.engine.dcgm import read_gpus
from vllm_tuning.reconcile.node_gpus import NodeGPUs, Page, complete, gpu_count, has_gpus, own_gpus
from vllm_tuning.reconcile.observed import BenchLog
from vllm_tuning.tuning.model import Bottleneck, GPUActivity
from vllm_tuning.tuning.run import ProbeEnded, RunEnded, RunStarted

START, SECONDS = 1000.0, 30.0
POD: dict[str, Any] = {
    "metadata": {"namespace": "serving", "name": "bench-x"},
    "spec": {
        "initContainers": [
            {"name": "tools"},
            {"name": "engine", "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "4"}}},
        ],
        "containers": [{"name": "bench"}],
    },
}
OURS = ',container="engine",namespace="serving",pod="bench-x"'


def device(uuid="GPU-a", labels=OURS, *, memory=0.6, tensor=0.1, power=500.0) -> str:
    head = f'{{gpu="0",UUID="{uuid}",modelName="NVIDIA A100",Hostname="n1"{labels}}}'
    lines = [f"DCGM_FI_DEV_POWER_USAGE{head} {power}"]
    if memory is not None:
        lines += [
            f"DCGM_FI_PROF_DRAM_ACTIVE{head} {memory}",
            f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{head} {tensor}",
        ]
    return "\n".join(lines) + "\n"


def pages(*devices: str, every: float = 2.0, changes: float = 2.0) -> NodeGPUs:
    """Pages over two minutes around the windows; all values move a little every ``changes`` s."""
    found = []
    at = START - 60
    while at <= START + 60:
        power = 500 + (at - START) // changes
        text = "".join(devices).replace(" 500.0", f" {power}")
        found.append(Page(at, read_gpus(text)))
        at += every
    return NodeGPUs(every, tuple(found))


def a_log(gpu: GPUActivity | None = None, uuids: tuple[str, ...] = ()) -> BenchLog:
    """A whole run whose probes were measured in the same 30 s."""
    events: list[Any] = []
    for event in a_whole_run():
        match event:
            case ProbeEnded(result=result):
                result = replace(result, gpu=gpu, measured_from=START, measured_seconds=SECONDS)
                events.append(replace(event, result=result))
            case RunStarted():
                events.append(replace(event, gpus=uuids))
            case RunEnded(recommendation=found):
                # The last probe's, pooled with an earlier one.
                confirmed = replace(result, message="pooled")
                events.append(replace(event, recommendation=replace(found, result=confirmed)))
            case _:
                events.append(event)
    return BenchLog(tuple(events), complete=True)


def probes(log: BenchLog) -> list[Any]:
    return [event.result for event in log.events if isinstance(event, ProbeEnded)]


def test_a_probe_without_counters_gets_them_and_its_bottleneck():
    for result in probes(complete(a_log(), POD, pages(device()))):
        assert result.gpu == GPUActivity(
            source="DCGM",
            dram_active_percent=pytest.approx(60),
            tensor_active_percent=pytest.approx(10),
            power_watts=result.gpu.power_watts,
        )
        assert 500 <= result.gpu.power_watts <= 515
        assert result.bottleneck is Bottleneck.MEMORY_BANDWIDTH
        assert "(DCGM)" in result.bottleneck_evidence


def test_only_gaps_are_filled():
    nvml = GPUActivity("NVML", power_watts=321.0, memory_utilization_percent=70)
    result = probes(complete(a_log(nvml), POD, pages(device())))[0]
    assert result.gpu.source == "NVML+DCGM"
    assert (result.gpu.power_watts, result.gpu.memory_utilization_percent) == (321.0, 70)
    assert result.gpu.dram_active_percent == pytest.approx(60)


def test_what_the_launcher_measured_stays():
    gpm = GPUActivity("GPM", dram_active_percent=30, tensor_active_percent=80)
    log = a_log(gpm)
    assert complete(log, POD, pages(device())) == log


def test_the_recommendation_shows_the_same_activity_and_keeps_its_own_figures():
    log = complete(a_log(), POD, pages(device()))
    [ended] = [event for event in log.events if isinstance(event, RunEnded)]
    shown = ended.recommendation.result
    assert shown.gpu == probes(log)[-1].gpu is not None
    assert shown.bottleneck is Bottleneck.MEMORY_BANDWIDTH
    assert shown.message == "pooled"


@pytest.mark.parametrize(
    ("node", "told"),
    [
        (NodeGPUs(2.0, problem="no pod of the exporter on node n1"), "no pod of the exporter"),
        (NodeGPUs(2.0), "no page was read"),
        (pages(device(labels="", uuid="GPU-x"), device(labels=OURS.replace("bench-x", "other"))),
         "which devices are the benchmark pod's own"),
        (pages(device(), changes=1e9), "never changed"),
        (pages(device(), changes=30.0), "up to 32 s old, too old for 30 s"),
        (pages(device(), device(labels=OURS.replace("bench-x", "neighbour"))),
         "which devices are the benchmark pod's own"),
    ],
    ids=["no exporter", "no page", "others' devices", "frozen", "slow", "shared"],
)  # fmt: skip
def test_what_cannot_be_used_is_told(node, told):
    for result in probes(complete(a_log(), POD, node)):
        assert result.gpu is None
        assert result.bottleneck is Bottleneck.UNKNOWN
        assert told in result.bottleneck_evidence


def test_an_exporter_without_profiling_fields_gives_what_it_has():
    result = probes(complete(a_log(), POD, pages(device(memory=None))))[0]
    assert result.gpu.power_watts > 0
    assert result.gpu.dram_active_percent is None
    assert result.bottleneck is Bottleneck.UNKNOWN
    assert "DCGM_FI_PROF" in result.bottleneck_evidence


def test_values_from_outside_the_windows_do_not_count():
    early = read_gpus(device(memory=0.9))
    found = pages(device(memory=0.5))
    mixed = tuple(Page(page.at, early) if page.at < START else page for page in found.pages)
    result = probes(complete(a_log(), POD, replace(found, pages=mixed)))[0]
    assert result.gpu.dram_active_percent == pytest.approx(50)


def test_several_devices_are_averaged():
    node = pages(device("GPU-a", memory=0.4), device("GPU-b", memory=0.6))
    result = probes(complete(a_log(), POD, node))[0]
    assert result.gpu.dram_active_percent == pytest.approx(50)


def read(*devices: str):
    return read_gpus("".join(devices))


def test_the_pods_devices():
    other = device("GPU-b", OURS.replace("bench-x", "other"))
    assert [g.identity.uuid for g in own_gpus(read(device(), other), POD)] == ["GPU-a"]
    renamed = ',pod="dcgm-1",namespace="gpu",exported_pod="bench-x",exported_namespace="serving"'
    assert own_gpus(read(device(labels=renamed)), POD)
    # The exporter's mapping has gaps: then the launcher's UUIDs tell.
    unnamed = read(device("GPU-a", ""), other)
    assert [g.identity.uuid for g in own_gpus(unnamed, POD, frozenset({"GPU-a"}))] == ["GPU-a"]
    assert own_gpus(unnamed, POD) == ()
    # No names at all, and one device for a pod with one device: it can be no other.
    assert own_gpus(read(device("GPU-a", "")), POD)
    assert own_gpus(read(device("GPU-a", ""), device("GPU-b", "")), POD) == ()


def test_a_mig_instance_is_known_by_its_pod_and_never_by_its_cards_uuid():
    parts = read(
        device(labels=',GPU_I_PROFILE="3g.71gb",GPU_I_ID="1"' + OURS),
        device(labels=',GPU_I_PROFILE="3g.71gb",GPU_I_ID="2"'),
    )
    assert [g.identity.mig_instance for g in own_gpus(parts, POD)] == ["1"]
    unnamed = read(
        device(labels=',GPU_I_ID="1"'), device(labels=',GPU_I_ID="2"'), device(labels="")
    )
    assert own_gpus(unnamed, POD, frozenset({"GPU-a"})) == ()


def test_devices_of_a_pod():
    assert (gpu_count(POD), has_gpus(POD)) == (1, True)
    assert not has_gpus({"metadata": {}, "spec": {"containers": [{"name": "bench"}]}})
    assert has_gpus({"metadata": {}, "spec": {"resourceClaims": [{"name": "gpu"}]}})
