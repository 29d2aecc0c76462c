"""Policies on a real API server: the operator's own reads, decisions and writes, call by call."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.control_plane.api_server import APIServer
from tests.control_plane.objects import TTFT, concerning, tuning
from tests.operator_process import a_target
from tests.played_node import NO_IMAGE
from vllm_tuning.cluster.client import JOBS, Cluster
from vllm_tuning.cluster.gather import Gatherer, Key
from vllm_tuning.cluster.logs import BenchLogs
from vllm_tuning.controller.policies import PolicyWatcher
from vllm_tuning.controller.reconcile import Reconciler
from vllm_tuning.reconcile.observed import Settings

pytestmark = pytest.mark.control_plane


async def reconcile(client: Cluster, namespace: str) -> None:
    """Let the operator look once at the tuning ``chat``."""
    settings = Settings(bench_image="bench:1")
    gatherer = Gatherer(client, BenchLogs(client), settings, lambda _: None)
    await Reconciler(client, gatherer).reconcile(Key(namespace, "chat"))


@pytest.fixture
def policed(server: APIServer, namespace: str) -> Any:
    """Create a suspended tuning, and policies that go with the test."""
    made: list[str] = []

    def make(body: dict[str, Any], **spec: Any) -> None:
        server.create(namespace, body)
        made.append(body["metadata"]["name"])
        server.create(namespace, tuning(suspend=True, **spec))

    yield make
    for name in made:
        server.delete(namespace, f"vsp/{name}")


def conditions(body: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in body["status"]["conditions"]}


def sources(body: dict[str, Any]) -> dict[str, str]:
    return {note["field"]: note["source"] for note in body["status"]["effective"]["sources"]}


async def test_a_policy_brings_the_sla_and_bounds_the_rest(
    server: APIServer, client: Cluster, namespace: str, policed: Any
) -> None:
    body = concerning(
        namespace,
        defaults={"slos": [TTFT]},
        overrides={"maxMode": "Manual", "budget": {"gpuSeconds": 60}},
    )
    policed(body, slos=None, updatePolicy={"mode": "Auto"})

    await reconcile(client, namespace)
    await PolicyWatcher(client, (), lambda _: None).poll()

    found = server.get(namespace, "vt/chat")
    effective = found["status"]["effective"]
    assert effective["slos"] == [TTFT]
    assert effective["updatePolicy"]["mode"] == "Manual"
    assert effective["budget"]["gpuSeconds"] == 60
    assert sources(found)["slos"] == sources(found)["updatePolicy.mode"] == "Policy"
    assert conditions(found)["PolicyCompliant"] == ("True", "NarrowedByPolicies")
    status = server.get(namespace, f"vsp/{namespace}")["status"]
    assert (status["matched"], status["unknown"], status["violating"]) == (1, 1, 0)
    assert conditions({"status": status})["Programmed"] == ("True", "Programmed")


async def test_without_its_policy_a_tuning_has_no_sla(
    server: APIServer, client: Cluster, namespace: str, policed: Any
) -> None:
    policed(concerning(namespace, defaults={"slos": [TTFT]}), slos=None)
    await reconcile(client, namespace)
    assert conditions(server.get(namespace, "vt/chat"))["Accepted"] == ("True", "Accepted")

    assert server.delete(namespace, f"vsp/{namespace}").ok
    await reconcile(client, namespace)

    found = server.get(namespace, "vt/chat")
    assert conditions(found)["Accepted"] == ("False", "Invalid")
    assert "PolicyCompliant" not in conditions(found)


async def test_a_policy_that_warns_tells_the_tuning_and_changes_nothing(
    server: APIServer, client: Cluster, namespace: str, policed: Any
) -> None:
    body = concerning(namespace, enforcement="Warn", overrides={"maxMode": "Manual"})
    policed(body, updatePolicy={"mode": "Auto"})

    await reconcile(client, namespace)
    await PolicyWatcher(client, (), lambda _: None).poll()

    found = server.get(namespace, "vt/chat")
    assert found["status"]["effective"]["updatePolicy"]["mode"] == "Auto"
    assert conditions(found)["PolicyCompliant"] == ("False", "ExceedsPolicies")
    told = server.must("get", "events", "-n", namespace, "-o", "jsonpath={.items[*].message}")
    assert f"Auto should be Manual by VLLMSLAPolicy {namespace}" in told
    status = server.get(namespace, f"vsp/{namespace}")["status"]
    assert [violator["name"] for violator in status["violators"]] == ["chat"]


async def test_a_changed_policy_wakes_the_tunings(
    server: APIServer, client: Cluster, namespace: str, policed: Any
) -> None:
    woken: list[Key] = []
    policed(concerning(namespace, overrides={"maxMode": "Manual"}))
    watcher = PolicyWatcher(client, (namespace,), woken.append)
    await watcher.poll()
    await watcher.poll()
    assert woken == []

    server.patch(namespace, f"vsp/{namespace}", {"spec": {"overrides": {"maxMode": "Auto"}}})
    await watcher.poll()

    assert woken == [Key(namespace, "chat")]


async def test_a_policys_windows_hold_back_a_run_and_say_when_the_next_one_opens(
    server: APIServer, client: Cluster, namespace: str, policed: Any
) -> None:
    now = datetime.now(UTC)
    later = now + timedelta(hours=6)
    window = {"start": later.strftime("%H:%M"), "durationMinutes": 60}
    policed(concerning(namespace, overrides={"windows": [window]}))
    server.create(namespace, a_target("chat", NO_IMAGE))
    server.patch(namespace, "vt/chat", {"spec": {"suspend": False}})

    await reconcile(client, namespace)

    found = server.get(namespace, "vt/chat")
    assert conditions(found)["Progressing"] == ("True", "WaitingForWindow")
    opens = later.strftime("%A %Y-%m-%dT%H:%MZ")
    assert any(f"opens on {opens}" in c["message"] for c in found["status"]["conditions"])
    assert found["status"]["effective"]["windows"] == [{"policy": namespace, "windows": [window]}]
    assert server.must("get", "jobs", "-n", namespace, "-o", "name") == ""


async def test_policies_say_where_and_how_urgently_a_job_waits_and_when_it_may_come_again(
    server: APIServer, client: Cluster, namespace: str, policed: Any
) -> None:
    second = f"{namespace}-second"
    bounds = {"afterDays": 30, "cooldownSeconds": 3600}
    lowest = "system-node-critical"  # one that every cluster has
    policed(
        concerning(
            namespace,
            priority=1,
            overrides={
                "benchmark": {"queueName": "night", "priorityClassName": lowest},
                "retunePolicy": bounds,
            },
        ),
        benchmark={"queueName": "mine"},
        retunePolicy={"afterDays": 90, "onDrift": "Measure"},
    )
    other = concerning(namespace, overrides={"benchmark": {"queueName": "day"}})
    server.create(namespace, other | {"metadata": {"name": second}})
    server.create(namespace, a_target("chat", NO_IMAGE))
    server.patch(namespace, "vt/chat", {"spec": {"suspend": False}})
    try:
        for _ in range(3):  # what is known of the traffic is noted before the Job is made
            await reconcile(client, namespace)
        await PolicyWatcher(client, (namespace,), lambda _: None).poll()
        overruled = server.get(namespace, f"vsp/{second}")
    finally:
        server.delete(namespace, f"vsp/{second}")

    (job,) = await client.list(JOBS, namespace)
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "night"
    assert job["spec"]["template"]["spec"]["priorityClassName"] == lowest
    found = server.get(namespace, "vt/chat")
    effective = found["status"]["effective"]
    assert effective["benchmark"] == {"queueName": "night", "priorityClassName": lowest}
    assert effective["retunePolicy"] == bounds | {"onDrift": "Measure"}
    assert sources(found)["benchmark.queueName"] == sources(found)["retunePolicy.afterDays"]
    assert sources(found)["retunePolicy.onDrift"] == "Spec"
    assert conditions(overruled)["Programmed"] == ("False", "Overruled")
    words = [c["message"] for c in overruled["status"]["conditions"] if c["type"] == "Programmed"]
    assert "benchmark.queueName: day excludes night" in words[0]


async def test_an_opted_in_deployment_gets_one_tuning_and_a_users_own_is_left_alone(
    server: APIServer, client: Cluster, namespace: str
) -> None:
    body = concerning(
        namespace,
        defaults={"slos": [TTFT]},
        autoCreate={"selector": {"matchLabels": {"vllmtuning.io/tune": "true"}}},
    )
    server.create(namespace, body)
    for name in ("made", "users"):
        target = a_target(name, NO_IMAGE)
        target["metadata"]["labels"] = {"vllmtuning.io/tune": "true"}
        server.create(namespace, target)
    mine = tuning(targetRef={"name": "users"}, suspend=True)
    server.create(namespace, mine)
    try:
        await PolicyWatcher(client, (namespace,), lambda _: None).poll()
        await PolicyWatcher(client, (namespace,), lambda _: None).poll()
        names = server.must(
            "get", "vt", "-n", namespace, "-o", "jsonpath={.items[*].metadata.name}"
        )
        assert sorted(names.split()) == ["chat", "made"]
        made = server.get(namespace, "vt/made")
        assert made["spec"]["updatePolicy"] == {"mode": "Recommend"}
        assert made["metadata"]["ownerReferences"][0]["name"] == "made"
        assert made["metadata"]["labels"]["vllmtuning.io/created-by-policy"] == namespace
        assert server.get(namespace, "vt/chat")["metadata"]["generation"] == 1
        told = server.must("get", "events", "-n", namespace, "-o", "jsonpath={.items[*].reason}")
        assert told.split().count("TuningCreated") == 1
    finally:
        server.delete(namespace, f"vsp/{namespace}")
