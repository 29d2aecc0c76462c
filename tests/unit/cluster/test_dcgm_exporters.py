"""Reading the exporter on a benchmark's node: from a real HTTP server, until the bench ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dcgm_exporter import DCGMExporter
from tests.unit.reconcile.builders import ended_pod, running_pod
from vllm_tuning.cluster import exporters as module
from vllm_tuning.cluster.client import PODS
from vllm_tuning.cluster.errors import Refused
from vllm_tuning.cluster.exporters import ExporterAddress, NodeExporters
from vllm_tuning.cluster.scrape import MAX_PAGE_BYTES

WAIT_SECONDS = 30


@pytest.fixture
def exporter() -> Iterator[DCGMExporter]:
    with DCGMExporter() as running:
        yield running


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """A failure is tried again at once; how long it really waits is not the subject here."""
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.01)


class Pods:
    """The one call of the client that is used here."""

    def __init__(self, *pods: dict[str, Any], error: Exception | None = None) -> None:
        self.pods = list(pods)
        self.error = error
        self.asked: list[tuple[Any, ...]] = []

    async def list(self, resource, namespace, *, labels=None, fields=None):
        self.asked.append((resource, namespace, labels, fields))
        if self.error:
            raise self.error
        return self.pods


def an_exporter_pod(phase: str = "Running") -> dict[str, Any]:
    return {
        "metadata": {"name": "dcgm", "uid": "d"},
        "status": {"phase": phase, "podIP": "127.0.0.1"},
    }


def bench(status: dict[str, Any] | None = None, **limits: str) -> dict[str, Any]:
    resources = {"limits": limits or {"nvidia.com/gpu": "1"}}
    return {
        "metadata": {"namespace": "serving", "name": "bench-x", "uid": "u"},
        "spec": {
            "nodeName": "gpu-1",
            "initContainers": [{"name": "engine", "resources": resources}],
            "containers": [{"name": "bench"}],
        },
        "status": running_pod() if status is None else status,
    }


def reader(pods: Pods, port: int) -> NodeExporters:
    address = ExporterAddress("gpu-operator", port=port, scrape_seconds=0.01)
    return NodeExporters(pods, address)  # type: ignore[arg-type] # one method of it


async def until(found: NodeExporters, condition) -> Any:
    """Look at the pod until what was read is as wanted."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition(seen := found.observe(bench())):  # noqa: ASYNC110 - it is polled
            await asyncio.sleep(0.01)
    return seen


async def test_the_node_of_the_benchmark_is_read_until_the_bench_ends(exporter):
    exporter.pod = ("serving", "bench-x")
    pods = Pods(an_exporter_pod("Pending"), an_exporter_pod())
    found = reader(pods, exporter.port)
    seen = await until(found, lambda node: len(node.pages) >= 3)
    assert pods.asked == [(PODS, "gpu-operator", "app=nvidia-dcgm-exporter", "spec.nodeName=gpu-1")]
    [gpu] = seen.pages[-1].gpus
    assert gpu.identity.pod == "bench-x"
    assert gpu.dram_active_percent == pytest.approx(63.4)
    assert [page.at for page in seen.pages] == sorted(page.at for page in seen.pages)

    task = found._followed["u"].task
    ended = found.observe(bench(ended_pod()))
    assert len(ended.pages) >= 3
    await asyncio.wait_for(task, WAIT_SECONDS)
    served = len(exporter.served)
    # What was read stays for probes that are joined later.
    assert len(found.observe(bench(ended_pod())).pages) >= 3
    assert len(exporter.served) == served
    await found.close()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda: (503, {}, b"starting"), "status 503"),
        (lambda: (302, {"Location": "http://169.254.169.254/"}, b""), "status 302"),
        (lambda: (200, {}, b"x" * (MAX_PAGE_BYTES + 1)), "is longer than"),
    ],
    ids=["error", "redirect", "endless"],
)
async def test_an_answer_that_is_no_page_is_told_and_tried_again(exporter, answer, told):
    good, exporter.answer = exporter.answer, answer
    found = reader(Pods(an_exporter_pod()), exporter.port)
    seen = await until(found, lambda node: node.problem)
    assert told in seen.problem
    assert seen.pages == ()
    exporter.answer = good
    seen = await until(found, lambda node: node.pages)
    assert seen.problem == ""
    await found.close()


async def test_an_exporter_that_moved_is_found_again(exporter):
    pods = Pods()
    found = reader(pods, exporter.port)
    seen = await until(found, lambda node: node.problem)
    assert seen.problem == (
        "no running pod with app=nvidia-dcgm-exporter in namespace gpu-operator on node gpu-1"
    )
    pods.pods.append(an_exporter_pod())
    await until(found, lambda node: node.pages)
    await found.close()


async def test_without_the_right_to_look_it_says_so():
    found = reader(Pods(error=Refused("pods is forbidden", doing="GET pods")), 1)
    seen = await until(found, lambda node: node.problem)
    assert "forbidden" in seen.problem
    await found.close()


@pytest.mark.parametrize(
    "pod",
    [bench({}), bench(ended_pod()), bench(cpu="4")],
    ids=["not begun", "already ended", "no GPU"],
)
async def test_nothing_to_read(pod):
    found = reader(Pods(), 1)
    assert found.observe(pod) is None
    await found.close()


async def test_a_pod_that_nobody_looks_at_is_let_go(exporter, monkeypatch):
    found = reader(Pods(an_exporter_pod()), exporter.port)
    await until(found, lambda node: node.pages)
    task = found._followed["u"].task
    monkeypatch.setattr(module, "LEFT_SECONDS", -1.0)
    await asyncio.wait_for(task, WAIT_SECONDS)
    other = bench(cpu="4")
    assert found.observe({**other, "metadata": {**other["metadata"], "uid": "v"}}) is None
    assert not found._followed
