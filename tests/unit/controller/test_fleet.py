"""The fleet's observer against real HTTP servers that play vLLM's metrics page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web

from tests.metrics_page import PlayedEngine
from tests.unit.reconcile.builders import a_deployment, policy
from vllm_tuning.api.policy import LiveState
from vllm_tuning.cluster.client import EVENTS
from vllm_tuning.cluster.scrape import MAX_PAGE_BYTES, NoPage, PageAddress, Scraper, open_scraper
from vllm_tuning.controller.fleet import FleetObserver
from vllm_tuning.reconcile.fleet import find_members
from vllm_tuning.reconcile.live import LiveVerdict

TTFT = {"metric": "TTFT", "percentile": 95, "maxMilliseconds": 250}
REF = ("serving", "llama")


@pytest.fixture
async def engine() -> AsyncIterator[PlayedEngine]:
    async with PlayedEngine() as played:
        yield played


@pytest.fixture
async def scraper() -> AsyncIterator[Scraper]:
    async with open_scraper() as opened:
        yield opened


class PodsAndEvents:
    """The calls that the observer makes to the API server."""

    def __init__(self) -> None:
        self.pods = [a_pod("a")]
        self.events: list[dict[str, Any]] = []

    def now(self) -> datetime:
        return datetime(2026, 11, 29, 12, tzinfo=UTC)

    async def list(self, *_: Any, **__: Any) -> list[dict[str, Any]]:
        return self.pods

    async def create(self, resource: Any, _: str, body: dict[str, Any]) -> dict[str, Any]:
        assert resource is EVENTS
        self.events.append(body)
        return body


def a_pod(uid: str, ip: str = "127.0.0.1") -> dict[str, Any]:
    return {
        "metadata": {
            "name": uid,
            "uid": uid,
            "labels": {"pod-template-hash": "1"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "llama-1"}],
        },
        "status": {"podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]},
    }


class Looker:
    def __init__(self, engine: PlayedEngine, scraper: Scraper, **spec: Any) -> None:
        self.cluster = PodsAndEvents()
        self.policies = [policy("p", defaults={"slos": [TTFT]}, **spec)]
        body = a_deployment(args=["/model", f"--port={engine.port}"])
        self.members = find_members([body], (), self.policies, {})
        self.observer = FleetObserver(self.cluster, scraper)  # type: ignore[arg-type] # two calls

    async def look(self) -> LiveVerdict:
        return (await self.observer.look(self.members, self.policies))[REF]


async def test_a_verdict_is_about_what_happened_since_the_first_look(
    engine: PlayedEngine, scraper: Scraper
):
    looker = Looker(engine, scraper)
    engine.ttft = [9.0] * 1000  # long ago
    first = await looker.look()
    assert (first.state, first.message) == (
        LiveState.UNKNOWN,
        "its pods were read only once so far",
    )
    engine.ttft += [0.05] * 100
    assert (await looker.look()).state is LiveState.MEETING
    engine.ttft += [0.9] * 50
    missed = await looker.look()
    assert missed.state is LiveState.MISSING
    assert "p95 TTFT ≤ 250 ms: 67% within" in missed.message
    engine.ttft = [0.05] * 2000  # the engine began anew: all of this came after it
    assert (await looker.look()).state is LiveState.MEETING


async def test_a_deployment_is_told_when_it_begins_to_miss_and_when_it_recovers(
    engine: PlayedEngine, scraper: Scraper
):
    looker = Looker(engine, scraper)
    for seconds in (0.05, 0.05, 0.9, 0.9, 0.05, 0.05):
        engine.ttft += [seconds] * (3000 if seconds == 0.05 else 2000)
        await looker.look()
        if seconds == 0.05:
            looker.observer._histories.clear()  # a window later
            await looker.look()
            engine.ttft += [seconds] * 100
            await looker.look()
    told = [(e["reason"], e["type"], e["involvedObject"]["kind"]) for e in looker.cluster.events]
    assert told == [
        ("SLAMissed", "Warning", "Deployment"),
        ("SLAHeldAgain", "Normal", "Deployment"),
    ]


async def test_an_audit_tells_no_deployment(engine: PlayedEngine, scraper: Scraper):
    looker = Looker(engine, scraper, enforcement="Audit")
    await looker.look()
    engine.ttft = [0.9] * 100
    assert (await looker.look()).state is LiveState.MISSING
    assert looker.cluster.events == []


async def test_one_pod_that_can_not_be_read_makes_the_deployment_unknown_and_is_left_alone(
    engine: PlayedEngine, scraper: Scraper
):
    looker = Looker(engine, scraper)
    engine.answer = web.Response(status=500)
    verdict = await looker.look()
    assert verdict.state is LiveState.UNKNOWN
    assert "1 of 1 pods can not be read" in verdict.message
    assert "status 500" in verdict.message
    await looker.look()
    assert engine.asked == 1


async def test_a_deployment_without_a_ready_pod_is_unknown(engine: PlayedEngine, scraper: Scraper):
    looker = Looker(engine, scraper)
    looker.cluster.pods = []
    assert (await looker.look()).message == "no pod is ready"


async def test_no_page_is_followed_elsewhere_or_read_without_end(
    engine: PlayedEngine, scraper: Scraper
):
    address = PageAddress("a", "127.0.0.1", engine.port)
    engine.answer = web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"})
    moved = (await scraper.read([address]))["a"]
    assert isinstance(moved, NoPage)
    assert "status 302" in moved.message
    engine.answer = web.Response(body=b"x" * (MAX_PAGE_BYTES + 1))
    long = (await scraper.read([address]))["a"]
    assert isinstance(long, NoPage)
    assert "longer than" in long.message
    closed = PageAddress("b", "127.0.0.1", 1)
    assert isinstance((await scraper.read([closed]))["b"], NoPage)
    assert PageAddress("c", "fd00::7", 8000, tls=True).url == "https://[fd00::7]:8000/metrics"
