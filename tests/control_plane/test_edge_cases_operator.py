"""Edge cases of the operator itself: two of it, and an API server that has a bad day.

Each needs an operator of its own; being killed is in ``test_operator_life``.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.cluster_fixtures.cluster import Cluster
from tests.control_plane.whole_life import begin, check_applied, follow
from tests.operator_process import Operator, a_target, a_tuning
from tests.played_node import NO_IMAGE, PlayedNode
from vllm_tuning.cluster.client import LEASES
from vllm_tuning.cluster.client import Cluster as Client
from vllm_tuning.controller.lease import Lease

pytestmark = pytest.mark.control_plane

PATIENCE = 6
"""Seconds that a run waits for a GPU."""


def test_edge_05_two_operators_at_once_do_everything_once(
    control_plane: Cluster, namespace: str, tmp_path: Path
) -> None:
    """Each has a lease of its own, as if the one of a dead pod had run out while it still lives."""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    second = Operator(control_plane, namespace, folders[1], NO_IMAGE, "--lease-name=second")
    first = Operator(control_plane, namespace, folders[0], NO_IMAGE)
    with second, first:
        node = PlayedNode(first)
        second.proxy.logs = node.log
        begin(first)
        follow(first, node)
        first.wait(lambda: len(first.items("leases")) == 2, "both leases")
        for proxy in (first.proxy, second.proxy):
            first.wait(lambda seen=proxy.requests: looked_at_trials(seen), "both to have worked")
        first.proxy.accepted = [*first.proxy.accepted, *second.proxy.accepted]
        check_applied(first)


def test_edge_05_what_an_operator_saw_before_another_wrote_is_not_written_over_it(
    operator: Operator,
) -> None:
    """The operator is held at its first write, and somebody else changes the tuning meanwhile."""
    found: list[object] = []

    def before(method: str, path: str, _: bytes) -> None:
        if method == "PATCH" and "/vllmtunings/llama/status" in path:
            found.append(operator.get("vllmtunings", "llama").get("status"))
            if len(found) == 1:
                operator.annotate("vllmtunings", "llama", "example.com/changed", "meanwhile")

    operator.proxy.before = before
    begin(operator)
    operator.wait(lambda: operator.conditions("llama"), "a status")
    assert found[:2] == [None, None]  # the first was refused; the second knows of the change


@pytest.mark.parametrize("ahead", [timedelta(hours=-1), timedelta(hours=1)], ids=str)
def test_edge_36_deadlines_go_by_the_control_planes_clock(
    operator: Operator, ahead: timedelta
) -> None:
    """To the operator the control plane's clock goes wrong by an hour: the proxy moves all times.

    By its own clock the operator would give the run up at once, or in an hour. The scheduler is the
    real one, and there is no such GPU.
    """
    operator.kill()
    operator.proxy.skew = ahead
    target = a_target("llama", NO_IMAGE)
    target["spec"]["replicas"] = 0
    container = target["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"example.com/gpu": "1"}}
    operator.apply(target, a_tuning("llama", budget={"scheduleDeadlineSeconds": PATIENCE}))
    operator.start()

    began = operator.wait(lambda: job_starts(operator), "the Job to begin")[0]
    operator.wait_for("llama", "Stalled", "True", "GaveUpWaitingForGPU")

    status = operator.get("vllmtunings", "llama")["status"]
    waited = moment(status["run"]["completionTime"]) - moment(began)
    assert timedelta(seconds=PATIENCE) <= waited < timedelta(minutes=30)
    changes = [moment(c["lastTransitionTime"]) for c in status["conditions"]]
    assert all(abs(change - moment(began)) < timedelta(minutes=30) for change in changes)


async def test_edge_36_a_lease_is_judged_by_its_renewals_and_not_by_its_times(
    client: Client, namespace: str
) -> None:
    """Another holder's clock goes an hour slow: its lease seems to have run out long ago."""
    seen: list[bool] = []
    spec: dict[str, Any] = {"holderIdentity": "other", "leaseDurationSeconds": 1}
    body = {"metadata": {"name": "skewed", "namespace": namespace}, "spec": spec}
    await client.create(LEASES, namespace, body)
    ours = asyncio.create_task(Lease(client, namespace, "skewed").acquire())
    for _ in range(8):
        spec["renewTime"] = stamp(client.now() - timedelta(hours=1))
        await client.merge(LEASES, namespace, "skewed", {"spec": spec})
        await asyncio.sleep(0.5)  # the holder's own pace
        seen.append(ours.done())
    assert not any(seen)

    await asyncio.wait_for(ours, 60)  # renewed no more

    taken = await client.get(LEASES, namespace, "skewed")
    assert taken is not None
    assert taken["spec"]["holderIdentity"] != "other"


def job_starts(operator: Operator) -> list[str]:
    starts = (job.get("status", {}).get("startTime") for job in operator.items("jobs"))
    return [start for start in starts if start]


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def stamp(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def looked_at_trials(requests: list[tuple[str, str]]) -> bool:
    return any(path.endswith("/vllmtrials") for _, path in requests)


def test_edge_36_throttled_cut_off_and_told_that_its_watches_are_too_old(
    operator: Operator,
) -> None:
    """The proxy answers what an overloaded API server answers; everything else is the real one."""
    told: Counter[str] = Counter()

    def before(method: str, path: str, _: bytes) -> web.Response | None:
        watch = "watch=true" in path
        kind = path.partition("?")[0].rpartition("/")[2]
        if "/leases" in path or "/log" in path:
            return None
        if watch and told[f"gone {kind}"] < 1:
            told[f"gone {kind}"] += 1
            gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
            return web.Response(text=f"{json.dumps(gone)}\n", content_type="application/json")
        if method == "POST" and kind in ("jobs", "vllmtrials") and told[f"500 {kind}"] < 1:
            told[f"500 {kind}"] += 1
            return web.json_response({"message": "etcdserver: leader changed"}, status=500)
        if method == "PATCH" and "/deployments/" in path and told["429"] < 2:
            told["429"] += 1
            return web.json_response(
                {"message": "too many requests"}, status=429, headers={"Retry-After": "1"}
            )
        return None

    operator.proxy.before = before
    operator.kill()  # its successor finds nothing but trouble from the first request on
    node = PlayedNode(operator)
    begin(operator)
    follow(operator, node)
    check_applied(operator)
    assert told["429"] == 2
    assert told["500 jobs"] == told["500 vllmtrials"] == 1
    assert {f"gone {kind}" for kind in ("vllmtunings", "deployments", "jobs", "pods")} <= set(told)
