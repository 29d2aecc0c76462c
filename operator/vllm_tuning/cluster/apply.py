"""All writes: the effects of a decision, its announcements, its status.

Each may be done twice with the result of one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from vllm_tuning.api.benchmark import QUEUE_LABEL
from vllm_tuning.api.status import VLLMTuningStatus
from vllm_tuning.cluster.client import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    TRIALS,
    TUNINGS,
    Cluster,
    Resource,
)
from vllm_tuning.cluster.errors import AlreadyExists, Conflict, NameTaken, NotFound, Refused
from vllm_tuning.reconcile.effects import (
    About,
    Announcement,
    CreateRun,
    DeleteJob,
    DeleteTrial,
    Effect,
    ExpireJob,
    PatchTarget,
    RecordTrial,
    RequeueJob,
)
from vllm_tuning.reconcile.names import API_VERSION, KIND_TUNING, digest
from vllm_tuning.reconcile.observed import Body

log = logging.getLogger(__name__)

COMPONENT: Final = "vllm-tuning-operator"
MAX_EVENT_MESSAGE: Final = 1024


async def perform(cluster: Cluster, effect: Effect) -> None:
    """Do what a decision asks for. Raises ``cluster.errors``."""
    match effect:
        case CreateRun(config_map=config_map, job=job):
            await _create_ours(cluster, CONFIG_MAPS, config_map)
            await _create_ours(cluster, JOBS, job)
        case DeleteJob(namespace=namespace, name=name, uid=uid):
            try:
                await cluster.delete(JOBS, namespace, name, uid=uid)
            except Conflict:
                return  # another Job of that name: not the one that was to go
            await cluster.delete(CONFIG_MAPS, namespace, name)
        case ExpireJob(namespace=namespace, name=name, seconds=seconds):
            await _expire(cluster, namespace, name, seconds)
        case RequeueJob(namespace=namespace, name=name, queue=queue):
            body = {"metadata": {"labels": {QUEUE_LABEL: queue}}}
            await cluster.merge(JOBS, namespace, name, body)
        case RecordTrial(body=body):
            await _record_trial(cluster, body)
        case DeleteTrial(namespace=namespace, name=name):
            await cluster.delete(TRIALS, namespace, name)
        case PatchTarget(namespace=namespace, name=name, operations=operations):
            await cluster.patch(DEPLOYMENTS, namespace, name, operations)


async def announce(
    cluster: Cluster, tuning: Body, target: Body | None, announcement: Announcement
) -> None:
    """Write a Kubernetes event. Its name follows from its content: told again, it is told once."""
    about = tuning if announcement.about is About.TUNING else target
    if about is None:
        return
    kind, version = (KIND_TUNING, API_VERSION) if about is tuning else ("Deployment", "apps/v1")
    metadata = about["metadata"]
    content = [
        metadata["uid"],
        announcement.reason,
        announcement.message,
        metadata.get("generation"),
    ]
    now = cluster.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{metadata['name'][:230]}.{digest(content, 16)}",
            "namespace": metadata["namespace"],
        },
        "involvedObject": {
            "apiVersion": version,
            "kind": kind,
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": "Warning" if announcement.warning else "Normal",
        "reason": announcement.reason,
        "message": announcement.message[:MAX_EVENT_MESSAGE],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        await cluster.create(EVENTS, metadata["namespace"], body)
    except (AlreadyExists, Refused):
        return  # told before; or the namespace is going away, and nobody reads it any more


async def write_status(cluster: Cluster, tuning: Body, status: VLLMTuningStatus) -> bool:
    """Write the whole status if it differs. Returns whether it did; ``NotFound`` counts as no.

    What the API server's schema does not know is dropped without a word; it is logged here.

    Raises:
        GuardFailed: the tuning changed since it was read. Without this a second operator, paused
            between its read and its write, would take back what was written ahead of a patch.
    """
    wanted = status.to_object()
    if wanted == (tuning.get("status") or {}):
        return False
    metadata = tuning["metadata"]
    operations = (
        {
            "op": "test",
            "path": "/metadata/resourceVersion",
            "value": metadata["resourceVersion"],
        },
        {"op": "add", "path": "/status", "value": wanted},
    )
    try:
        stored = await cluster.patch(
            TUNINGS, metadata["namespace"], metadata["name"], operations, subresource="/status"
        )
    except NotFound:
        return False
    if lost := dropped(wanted, stored.get("status") or {}):
        log.warning(
            "status_pruned",
            extra={
                "tuning": f"{metadata['namespace']}/{metadata['name']}",
                "fields": ", ".join(f"status.{path}" for path in lost),
                "advice": "the cluster's CRDs are older than the operator: apply those of its "
                "release",
            },
        )
    return True


def dropped(wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths of fields that were written and are not stored, lists item by item."""
    found: list[str] = []
    for key, value in wanted.items():
        if key not in stored:
            found.append(key)
        elif isinstance(value, Mapping):
            found += (f"{key}.{path}" for path in dropped(value, stored[key]))
        elif isinstance(value, list):
            pairs = zip(value, stored[key], strict=False)
            maps = [(new, old) for new, old in pairs if isinstance(new, Mapping)]
            found += (f"{key}[].{path}" for new, old in maps for path in dropped(new, old))
    return tuple(dict.fromkeys(found))


async def _create_ours(cluster: Cluster, resource: Resource, body: Body) -> None:
    metadata = body["metadata"]
    try:
        await cluster.create(resource, metadata["namespace"], body)
    except AlreadyExists:
        found = await cluster.get(resource, metadata["namespace"], metadata["name"])
        if found is not None and _owner(found) != _owner(body):
            raise NameTaken(
                f"{body['kind']} {metadata['name']} exists and was not made for this VLLMTuning: "
                "delete or rename it"
            ) from None


async def _expire(cluster: Cluster, namespace: str, name: str, seconds: int) -> None:
    with suppress(NotFound):
        await cluster.merge(JOBS, namespace, name, {"spec": {"ttlSecondsAfterFinished": seconds}})
    await cluster.delete(CONFIG_MAPS, namespace, name)


async def _record_trial(cluster: Cluster, body: Body) -> None:
    metadata = body["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    with suppress(AlreadyExists):
        await cluster.create(TRIALS, namespace, _without_status(body))
    await cluster.patch(
        TRIALS,
        namespace,
        name,
        ({"op": "add", "path": "/status", "value": body["status"]},),
        subresource="/status",
    )


def _without_status(body: Body) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "status"}


def _owner(body: Mapping[str, Any]) -> str | None:
    for owner in body["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            uid: str = owner["uid"]
            return uid
    return None
