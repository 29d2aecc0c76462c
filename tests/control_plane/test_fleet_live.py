"""The live fleet on a real API server: pods that are read, the policy's status, the command."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.control_plane.api_server import APIServer
from tests.control_plane.objects import TTFT, concerning, tuning
from tests.metrics_page import PlayedEngine
from tests.played_node import a_played_target
from tests.rest import MERGE_PATCH, Rest, path_of
from vllm_tuning.cli.main import app
from vllm_tuning.cluster.client import PODS, Cluster
from vllm_tuning.cluster.scrape import open_scraper
from vllm_tuning.controller.fleet import FleetObserver
from vllm_tuning.controller.policies import PolicyWatcher

pytestmark = pytest.mark.control_plane

READY = {
    "phase": "Running",
    "podIP": "127.0.0.1",
    "podIPs": [{"ip": "127.0.0.1"}],
    "conditions": [{"type": "Ready", "status": "True"}],
}


@pytest.fixture
async def engine() -> AsyncIterator[PlayedEngine]:
    async with PlayedEngine() as played:
        yield played


async def test_the_policy_tells_who_misses_its_sla_and_the_command_shows_it(
    server: APIServer, client: Cluster, engine: PlayedEngine, namespace: str
) -> None:
    kubeconfig = server.plane.kubeconfig
    slo = {**TTFT, "maxMilliseconds": 250}
    server.create(namespace, concerning(namespace, defaults={"slos": [slo]}))
    server.create(namespace, a_played_target("chat", args=["/model", f"--port={engine.port}"]))
    server.create(namespace, tuning(suspend=True, slos=None))
    try:
        await ready(client, Rest(kubeconfig), namespace)
        async with open_scraper() as scraper:
            fleet = FleetObserver(client, scraper)

            async def look() -> dict[str, Any]:
                await PolicyWatcher(client, (namespace,), lambda _: None, fleet).poll()
                live: dict[str, Any] = server.get(namespace, f"vsp/{namespace}")["status"]["live"]
                return live

            assert (await look())["unknown"] == 1
            engine.ttft = [0.05] * 60 + [0.9] * 40
            live = await look()
        assert {k: live[k] for k in ("deployments", "missing", "untuned")} == {
            "deployments": 1,
            "missing": 1,
            "untuned": 0,
        }
        assert live["members"][0]["message"].endswith("60% within")
        told = server.must("get", "events", "-n", namespace, "-o", "jsonpath={.items[*].reason}")
        assert told.split().count("SLAMissed") == 1

        options = ["-n", namespace, "--kubeconfig", str(kubeconfig)]
        shown = await run("fleet", "-o", "json", *options)
        (row,) = json.loads(shown)
        assert (row["deployment"], row["tuning"], row["live"]) == ("chat", "chat", "Missing")
        assert "60% within" in (await run("fleet", "--missing", *options)).replace("\n", " ")
    finally:
        server.delete(namespace, f"vsp/{namespace}")


async def run(*args: str) -> str:
    """Run the command in a thread: it has an event loop of its own."""
    done = await asyncio.to_thread(CliRunner().invoke, app, list(args))
    assert done.exit_code == 0, done.output
    return done.stdout


async def ready(client: Cluster, rest: Rest, namespace: str) -> None:
    """Wait for the Deployment's pod, and play the kubelet's part for it."""
    async with asyncio.timeout(60):
        while not (pods := await client.list(PODS, namespace)):  # noqa: ASYNC110 - made elsewhere
            await asyncio.sleep(0.1)
    path = path_of("pods", namespace, pods[0]["metadata"]["name"])
    code, answer = rest.request("PATCH", f"{path}/status", {"status": READY}, MERGE_PATCH)
    assert code < 300, answer
