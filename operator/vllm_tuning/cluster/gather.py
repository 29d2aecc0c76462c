"""All reads of one look at one tuning, into one ``Observed``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from vllm_tuning.api.status import AppliedState
from vllm_tuning.cluster.client import (
    CLAIMS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    POLICIES,
    REPLICA_SETS,
    SERVICES,
    TRIALS,
    TUNINGS,
    Cluster,
)
from vllm_tuning.cluster.errors import NotFound, Refused
from vllm_tuning.cluster.exporters import NodeExporters
from vllm_tuning.cluster.logs import BenchLogs
from vllm_tuning.reconcile.names import LABEL_TUNING, label_value
from vllm_tuning.reconcile.node_gpus import complete
from vllm_tuning.reconcile.observed import BenchLog, Body, Observed, Rival, Settings
from vllm_tuning.reconcile.pod_state import holds
from vllm_tuning.reconcile.volumes import claim_names

START_LOG_BYTES: Final = 262_144
"""The line with the flags stands near the beginning of vLLM's log, after any noise of the image."""
MAX_NODES: Final = 8
"""Nodes of a target that are looked at: enough to see whether their GPUs differ."""
MAX_START_LOGS: Final = 3
"""Pods of a roll-out whose logs are read: one speaks for all, three survive a slow starter."""
_IN_FLIGHT: Final = (AppliedState.ROLLING_OUT, AppliedState.RESTORING)


@dataclass(frozen=True, slots=True)
class Key:
    """A tuning by namespace and name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Gatherer:
    """Reads everything that a decision needs. Holds nothing but the logs being followed."""

    def __init__(
        self,
        cluster: Cluster,
        logs: BenchLogs,
        settings: Settings,
        wake: Callable[[Key], None],
        exporters: NodeExporters | None = None,
    ) -> None:
        self._cluster = cluster
        self._logs = logs
        self._settings = settings
        self._wake = wake
        self._exporters = exporters

    async def gather(self, key: Key) -> Observed | None:
        """Look at one tuning; ``None`` = it is gone."""
        namespace = key.namespace
        ours = f"{LABEL_TUNING}={label_value(key.name)}"
        tunings, jobs, pods, trials = await asyncio.gather(
            self._cluster.list(TUNINGS, namespace),
            self._cluster.list(JOBS, namespace, labels=ours),
            self._cluster.list(PODS, namespace, labels=ours),
            self._cluster.list(TRIALS, namespace, labels=ours),
        )
        tuning = next((t for t in tunings if t["metadata"]["name"] == key.name), None)
        if tuning is None:
            return None
        uid = tuning["metadata"]["uid"]
        target_name = tuning["spec"]["targetRef"]["name"]
        target = await self._cluster.get(DEPLOYMENTS, namespace, target_name)
        applying = (tuning.get("status") or {}).get("applied", {}).get("state") in _IN_FLIGHT
        replica_sets, target_pods = await self._target_pods(target, namespace)
        policies = await self._policies()
        return Observed(
            tuning=tuning,
            settings=self._settings,
            rivals=tuple(_rivals(tuning, tunings)),
            target=target,
            target_replica_sets=replica_sets,
            target_pods=target_pods,
            target_logs=await self._start_logs(tuning, target_pods) if applying else {},
            target_nodes=await self._target_nodes(target_pods),
            volume_claims=await self._volume_claims(namespace, target),
            config_maps=await self._config_maps(namespace, target, tuning),
            jobs=tuple(jobs),
            pods=tuple(pods),
            job_warnings=await self._job_warnings(namespace, jobs, pods),
            trials=tuple(t for t in trials if t["spec"]["tuningRef"]["uid"] == uid),
            logs=self._bench_logs(key, pods),
            selecting_service=await self._selecting_service(tuning, namespace),
            policies=policies,
            namespace_labels=await self._namespace_labels(namespace) if policies else {},
        )

    def _bench_logs(self, key: Key, pods: Iterable[Body]) -> dict[str, BenchLog]:
        found = {}
        for pod in pods:
            log = self._logs.observe(pod, lambda: self._wake(key))
            gpus = self._exporters.observe(pod) if self._exporters else None
            if log is not None:
                found[pod["metadata"]["uid"]] = complete(log, pod, gpus) if gpus else log
        return found

    async def _target_pods(
        self, target: Body | None, namespace: str
    ) -> tuple[tuple[Body, ...], tuple[Body, ...]]:
        """Read the target's pods: what they run on, and how far a roll-out is."""
        if target is None:
            return (), ()
        selector = selector_text(target["spec"].get("selector") or {})
        replica_sets, pods = await asyncio.gather(
            self._cluster.list(REPLICA_SETS, namespace, labels=selector),
            self._cluster.list(PODS, namespace, labels=selector),
        )
        uid = target["metadata"]["uid"]
        owned = tuple(rs for rs in replica_sets if _owned_by(rs, {uid}))
        sets = {rs["metadata"]["uid"] for rs in owned}
        return owned, tuple(pod for pod in pods if _owned_by(pod, sets))

    async def _start_logs(self, tuning: Body, pods: Iterable[Body]) -> dict[str, str]:
        container = tuning["status"]["applied"]["container"]
        started = [pod for pod in pods if _has_started(pod, container)]
        youngest = sorted(started, key=lambda p: str(p["metadata"]["creationTimestamp"]))[
            -MAX_START_LOGS:
        ]
        found = {}
        for pod in youngest:
            name = pod["metadata"]["name"]
            text = await self._cluster.read_log(
                pod["metadata"]["namespace"], name, container, limit_bytes=START_LOG_BYTES
            )
            if text is not None:
                found[name] = text
        return found

    async def _target_nodes(self, pods: Iterable[Body]) -> tuple[Mapping[str, str], ...]:
        """Read the nodes of the target's pods; the right to do so is optional."""
        named = ((pod.get("spec") or {}).get("nodeName") for pod in pods)
        names = sorted({name for name in named if name})[:MAX_NODES]
        try:
            nodes = [await self._cluster.get(NODES, None, name) for name in names]
        except Refused:
            return ()
        return tuple(dict(node["metadata"].get("labels") or {}) for node in nodes if node)

    async def _volume_claims(self, namespace: str, target: Body | None) -> dict[str, Body]:
        """Read the claims that the target mounts; an older role may not allow it."""
        found: dict[str, Body] = {}
        names = claim_names(target["spec"]["template"]["spec"]) if target else ()
        with suppress(Refused):
            for name in names:
                body = await self._cluster.get(CLAIMS, namespace, name)
                if body is not None:
                    found[name] = body
        return found

    async def _config_maps(
        self, namespace: str, target: Body | None, tuning: Body
    ) -> dict[str, Mapping[str, str]]:
        found: dict[str, Mapping[str, str]] = {}
        names = set(_config_map_names(target)) if target else set()
        if trace := (tuning["spec"].get("workload") or {}).get("traceRef"):
            names.add(trace["name"])
        for name in sorted(names):
            body = await self._cluster.get(CONFIG_MAPS, namespace, name)
            if body is not None:
                found[name] = body.get("data") or {}
        return found

    async def _policies(self) -> tuple[Body, ...]:
        """Read all policies; where the operator serves some namespaces only, it may not see any."""
        try:
            return tuple(await self._cluster.list(POLICIES, None))
        except (Refused, NotFound):
            return ()

    async def _namespace_labels(self, namespace: str) -> Mapping[str, str]:
        try:
            body = await self._cluster.get(NAMESPACES, None, namespace)
        except Refused:
            return {}
        return dict((body or {}).get("metadata", {}).get("labels") or {})

    async def _job_warnings(
        self, namespace: str, jobs: Iterable[Body], pods: Iterable[Body]
    ) -> dict[str, str]:
        """Read why a Job has no pod, or why its pod's containers do not start: events tell."""
        pods = tuple(pods)
        found = {}
        for job in jobs:
            metadata = job["metadata"]
            if (job.get("status") or {}).get("conditions"):
                continue
            own = [pod for pod in pods if _owned_by(pod, {metadata["uid"]})]
            if own and not _waits_for_containers(own[-1]):
                continue
            about = own[-1]["metadata"]["uid"] if own else metadata["uid"]
            events = await self._cluster.list(
                EVENTS, namespace, fields=f"involvedObject.uid={about},type=Warning"
            )
            if events:
                last = max(
                    events, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or "")
                )
                found[metadata["name"]] = last.get("message", "")
        return found

    async def _selecting_service(self, tuning: Body, namespace: str) -> str | None:
        labels = (tuning["spec"].get("benchmark") or {}).get("labels")
        if not labels:
            return None
        for service in await self._cluster.list(SERVICES, namespace):
            selector = service["spec"].get("selector")
            if selector and all(labels.get(key) == value for key, value in selector.items()):
                name: str = service["metadata"]["name"]
                return name
        return None


def _rivals(tuning: Body, tunings: Iterable[Body]) -> Iterable[Rival]:
    target, uid = tuning["spec"]["targetRef"]["name"], tuning["metadata"]["uid"]
    for other in tunings:
        metadata = other["metadata"]
        same = other["spec"]["targetRef"]["name"] == target and metadata["uid"] != uid
        if same and not metadata.get("deletionTimestamp"):
            created = datetime.fromisoformat(metadata["creationTimestamp"])
            yield Rival(metadata["name"], metadata["uid"], created)


def _owned_by(body: Body, uids: set[str]) -> bool:
    return any(o["uid"] in uids for o in body["metadata"].get("ownerReferences") or ())


def selector_text(selector: Mapping[str, Any]) -> str:
    """Write a label selector as the query string has it."""
    parts = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for term in selector.get("matchExpressions") or ():
        key, values = term["key"], ",".join(term.get("values") or ())
        match term["operator"]:
            case "In":
                parts.append(f"{key} in ({values})")
            case "NotIn":
                parts.append(f"{key} notin ({values})")
            case "Exists":
                parts.append(key)
            case "DoesNotExist":
                parts.append(f"!{key}")
            case _:
                continue
    return ",".join(parts)


def _has_started(pod: Body, container: str) -> bool:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    return any(
        s["name"] == container and "waiting" not in (s.get("state") or {"waiting": {}})
        for s in statuses
    )


def _waits_for_containers(pod: Body) -> bool:
    """Whether a pod has a node and none of its containers runs yet, e.g. for want of a volume."""
    return holds(pod, "PodScheduled") and (pod.get("status") or {}).get("phase") == "Pending"


def _config_map_names(target: Body) -> Iterable[str]:
    pod_spec = target["spec"]["template"]["spec"]
    for container in pod_spec.get("containers") or ():
        for source in container.get("envFrom") or ():
            if ref := source.get("configMapRef"):
                yield ref["name"]
        for entry in container.get("env") or ():
            if ref := (entry.get("valueFrom") or {}).get("configMapKeyRef"):
                yield ref["name"]
    for volume in pod_spec.get("volumes") or ():
        if ref := volume.get("configMap"):
            yield ref["name"]
