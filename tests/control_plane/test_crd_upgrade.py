"""What an older version has stored lives on: read, validated, worked on and written by this one.

``previous/`` holds the CRDs of the oldest version that is still supported, as it published them; a
release that gives up an older one copies its ``crds/`` there. The objects are made of those very
schemas, so that no field of them is forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.control_plane.api_server import APIServer, wait_until
from tests.control_plane.filled import (
    JSON,
    fields_of,
    fields_of_schema,
    filled,
    with_arrival,
    without,
)
from tests.control_plane.objects import tuning
from vllm_tuning.api.base import APIModel
from vllm_tuning.api.policy import VLLMSLAPolicy
from vllm_tuning.api.trial import VLLMTrial
from vllm_tuning.api.tuning import VLLMTuning
from vllm_tuning.cluster.client import Cluster
from vllm_tuning.cluster.gather import Gatherer, Key
from vllm_tuning.cluster.logs import BenchLogs
from vllm_tuning.controller.policies import PolicyWatcher
from vllm_tuning.controller.reconcile import Reconciler
from vllm_tuning.reconcile.observed import Settings

pytestmark = pytest.mark.control_plane

PREVIOUS = Path(__file__).with_name("previous")
SCHEMAS: dict[str, JSON] = {
    body["spec"]["names"]["kind"]: body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for body in (YAML(typ="safe").load(path.read_text()) for path in PREVIOUS.iterdir())
}
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "containerName": "vllm"}
NEWER = tuning(windows=[{"start": "22:00", "durationMinutes": 60}])
"""Has a field that the previous version did not know."""
REMOVED = frozenset(
    f".recommendation.{point}.metrics" for point in ("baseline", "confirmed", "nearestMiss")
)
"""Fields of a tuning's status that this version has no more: they stand in the trials."""


def body(kind: str, name: str, arrival: str, spec: JSON) -> JSON:
    """An object that uses every field that goes with an arrival."""
    whole: JSON = {part: filled(SCHEMAS[kind]["properties"][part]) for part in ("spec", "status")}
    whole["spec"] |= spec
    head = {"apiVersion": "vllmtuning.io/v1alpha1", "kind": kind, "metadata": {"name": name}}
    return head | with_arrival(whole, arrival)


def stored_by_the_previous_version(namespace: str) -> dict[str, JSON]:
    """Objects by short kind and name; the cluster-wide ones have names of this test's own."""
    return {
        f"vt/{name}": body(
            "VLLMTuning",
            name,
            arrival,
            {"targetRef": TARGET | {"name": name}},
        )
        for name, arrival in (("open", "Open"), ("closed", "Closed"))
    } | {
        "vtrial/open": body("VLLMTrial", "open", "Open", {}),
        f"vsp/{namespace}-open": body("VLLMSLAPolicy", f"{namespace}-open", "Open", {}),
        f"vsp/{namespace}-closed": body("VLLMSLAPolicy", f"{namespace}-closed", "Closed", {}),
    }


MODELS: dict[str, type[APIModel]] = {"vt": VLLMTuning, "vtrial": VLLMTrial, "vsp": VLLMSLAPolicy}


def knows_windows(server: APIServer) -> bool:
    return server.try_create(NEWER).ok


def apply(server: APIServer, namespace: str, found: JSON) -> str:
    manifest = {key: value for key, value in found.items() if key != "status"}
    return server.must("apply", "-n", namespace, "-f", "-", stdin=json.dumps(manifest))


@pytest.fixture
def upgraded(server: APIServer, namespace: str) -> Iterator[dict[str, JSON]]:
    """The objects, stored under the previous CRDs, with the current ones in their place since."""
    objects = stored_by_the_previous_version(namespace)
    server.must("apply", "--server-side", "--force-conflicts", "-f", str(PREVIOUS))
    try:
        wait_until(lambda: not knows_windows(server))
        for name, found in objects.items():
            apply(server, namespace, found)
            done = server.patch(namespace, name, {"status": found["status"]}, subresource="status")
            assert done.ok, done.words
            assert {part: done.body[part] for part in ("spec", "status")} == {
                part: found[part] for part in ("spec", "status")
            }
        server.install_crds()
        wait_until(partial(knows_windows, server))
        yield objects
    finally:
        server.install_crds()
        for name in objects:
            server.delete(namespace, name)


def test_the_objects_use_every_field_of_the_previous_schemas(namespace: str) -> None:
    objects = stored_by_the_previous_version(namespace).values()
    for kind, schema in SCHEMAS.items():
        used = {path for found in objects if found["kind"] == kind for path in fields_of(found)}
        known = {
            path
            for part in ("spec", "status")
            for path in fields_of_schema(schema["properties"][part], f".{part}")
        }
        assert known <= used, kind


def kept(name: str, found: JSON) -> JSON:
    """What this version still has of a stored object."""
    status = without(found["status"], REMOVED) if name.startswith("vt/") else found["status"]
    return {"spec": found["spec"], "status": status}


async def test_stored_objects_are_read_worked_on_and_applied_again(
    server: APIServer, client: Cluster, namespace: str, upgraded: dict[str, JSON]
) -> None:
    for name, found in upgraded.items():
        stored = server.get(namespace, name)
        assert {part: stored[part] for part in ("spec", "status")} == kept(name, found), name
        read = MODELS[name.partition("/")[0]].from_object(stored).to_object()
        assert {part: read[part] for part in ("spec", "status")} == kept(name, found), name

    await look_once(client, namespace)

    for name, found in upgraded.items():
        stored, before = server.get(namespace, name), kept(name, found)
        assert stored["spec"] == before["spec"], name
        assert stored["metadata"]["generation"] == 1, name
        check_status(name, before["status"], stored["status"])
        assert "created" not in apply(server, namespace, found)
        assert server.get(namespace, name)["spec"] == found["spec"], name
        done = server.patch(namespace, name, {"status": stored["status"]}, subresource="status")
        assert done.ok, done.words


async def look_once(client: Cluster, namespace: str) -> None:
    """Let this version's operator look at all of them."""
    settings = Settings(bench_image="bench:1")
    gatherer = Gatherer(client, BenchLogs(client), settings, lambda _: None)
    reconciler = Reconciler(client, gatherer)
    for name in ("open", "closed"):
        await reconciler.reconcile(Key(namespace, name))
    watcher = PolicyWatcher(client, (namespace,), lambda _: None)
    await watcher.poll()


def check_status(name: str, before: JSON, after: JSON) -> None:
    """What no look can find out again is as it was; what is found out anew is this version's."""
    kind = name.partition("/")[0]
    if kind == "vtrial":
        assert after == before
        return
    types = {condition["type"]: condition for condition in after["conditions"]}
    assert {"Ready", "Accepted"} <= types.keys()
    foreign = before["conditions"][0]
    assert types[foreign["type"]]["reason"] == foreign["reason"] or foreign["type"] == "Ready"
    if kind == "vt":
        remembered: tuple[Any, ...] = ("applied", "history", "recommendation", "rejected", "usage")
        for field in remembered:
            assert after[field] == before[field], field
        assert types["TargetResolved"]["reason"] == "TargetNotFound"
        assert after["answer"].startswith("TargetNotFound: ")
