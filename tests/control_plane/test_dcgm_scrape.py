"""GPU activity from the node's DCGM exporter, in the trial of a probe that had none of its own.

API server, operator and the exporter's page are real; the node and its pods are played.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cluster_fixtures.cluster import Cluster
from tests.dcgm_exporter import DCGMExporter
from tests.operator_process import Operator, a_tuning
from tests.played_node import NO_IMAGE, PlayedNode, a_played_target, whole_run
from tests.rest import MERGE_PATCH, path_of
from vllm_tuning.tuning.run import Event, ProbeEnded, RunSpec

pytestmark = pytest.mark.control_plane

SECONDS = 6.0
"""Length of the probes' windows."""


@pytest.fixture
def exporter() -> Iterator[DCGMExporter]:
    with DCGMExporter(collect_seconds=0.5) as running:
        yield running


@pytest.fixture
def operator(
    control_plane: Cluster, namespace: str, tmp_path: Path, exporter: DCGMExporter
) -> Iterator[Operator]:
    options = (
        f"--dcgm-namespace={namespace}",
        f"--dcgm-port={exporter.port}",
        "--dcgm-scrape-seconds=0.2",
    )
    with Operator(control_plane, namespace, tmp_path, NO_IMAGE, *options) as running:
        yield running


@pytest.fixture
def gpu_node(operator: Operator) -> Iterator[str]:
    """A node that takes no other pods, and the exporter's pod on it."""
    name = f"{operator.namespace}-gpu"
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    operator.must("POST", "api/v1/nodes", {**node, "spec": {"unschedulable": True}})
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "dcgm-exporter", "labels": {"app": "nvidia-dcgm-exporter"}},
        "spec": {
            "nodeName": name,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "exporter", "image": NO_IMAGE}],
        },
    }
    operator.must("POST", path_of("pods", operator.namespace), pod)
    status = {"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}
    path = path_of("pods", operator.namespace, "dcgm-exporter")
    operator.must("PATCH", f"{path}/status", status, MERGE_PATCH)
    yield name
    operator.rest.request("DELETE", f"api/v1/nodes/{name}")


def points(operator: Operator) -> list[dict[str, Any]]:
    return [
        point
        for trial in operator.items("vllmtrials")
        for point in trial.get("status", {}).get("points", ())
    ]


def test_a_probe_without_counters_is_diagnosed_by_its_nodes_exporter(
    operator: Operator, exporter: DCGMExporter, gpu_node: str
) -> None:
    began: list[float] = []

    def script(spec: RunSpec) -> Sequence[Event]:
        began.append(time.time())
        return [
            replace(
                event,
                result=replace(
                    event.result, measured_from=began[0] + 1.0, measured_seconds=SECONDS
                ),
            )
            if isinstance(event, ProbeEnded)
            else event
            for event in whole_run(spec)
        ]

    node = PlayedNode(operator, script)
    node.places = lambda _: gpu_node
    node.hold_after = 2  # the first probe has not ended before its windows have passed
    target = a_played_target("llama", resources={"limits": {"nvidia.com/gpu": "1"}})
    operator.apply(target, a_tuning("llama"))

    def windows_have_passed() -> bool:
        node.step()
        for pod in operator.items("pods", labelSelector="vllmtuning.io/tuning=llama"):
            exporter.pod = (operator.namespace, pod["metadata"]["name"])
        return bool(began and exporter.served) and exporter.served[-1] > began[0] + SECONDS + 2

    operator.wait(windows_have_passed, "pages of the exporter over the windows", seconds=120)
    node.hold_after = None

    def ended() -> bool:
        node.step()
        return operator.conditions("llama").get("RecommendationProvided", ("",))[0] == "True"

    operator.wait(ended, "the recommendation", seconds=120)
    found = points(operator)
    assert len(found) == 3
    for point in found:
        assert point["bottleneck"] == "MemoryBandwidthBound"
        assert point["bottleneckEvidence"].startswith("memory 63 %, tensor 3 %, engine 99 %")
        assert "(DCGM)" in point["bottleneckEvidence"]
        assert '"source":"DCGM"' in point["answer"]

    # What was joined is kept: another operator has none of those pages.
    operator.kill()
    operator.start()
    operator.annotate("vllmtunings", "llama", "note", "look again")
    operator.wait_for("llama", "RecommendationProvided", "True")
    assert points(operator) == found
