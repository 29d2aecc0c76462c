"""A cluster as values: it keeps what decisions ask for, and goes on from there."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tests.unit.reconcile.builders import NOW, ended_pod, observe, running_pod, stamp
from vllm_tuning.api.benchmark import QUEUE_LABEL
from vllm_tuning.reconcile.decide import decide
from vllm_tuning.reconcile.effects import (
    CreateRun,
    Decision,
    DeleteJob,
    DeleteTrial,
    ExpireJob,
    PatchTarget,
    RecordTrial,
    RequeueJob,
)
from vllm_tuning.reconcile.observed import BenchLog, Observed
from vllm_tuning.tuning.run import Event


class World:
    """The cluster as values: performs a decision's effects as the API server would keep them."""

    def __init__(self, observed: Observed, now: datetime = NOW) -> None:
        self.observed = observed
        self.now = now
        self.config_maps: dict[str, dict[str, Any]] = {}
        self.patches: list[tuple[dict[str, Any], ...]] = []

    def perform(self, decision: Decision, *, status: bool = True) -> None:
        """Do the effects; ``status=False`` is a crash between the effects and the status."""
        for effect in decision.effects:
            self._do(effect)
        if status:
            tuning = deepcopy(dict(self.observed.tuning))
            tuning["status"] = decision.status.to_object()
            self.observed = replace(self.observed, tuning=tuning)

    def _do(self, effect: Any) -> None:
        match effect:
            case CreateRun(config_map=config_map, job=job):
                self.config_maps.setdefault(config_map["metadata"]["name"], dict(config_map))
                taken = {j["metadata"]["name"] for j in self.observed.jobs}
                if job["metadata"]["name"] not in taken:
                    made = deepcopy(dict(job))
                    made["metadata"] |= {
                        "uid": f"uid-of-{job['metadata']['name']}",
                        "creationTimestamp": stamp(self.now),
                    }
                    self.observed = replace(self.observed, jobs=(*self.observed.jobs, made))
            case DeleteJob(name=name):
                left = tuple(j for j in self.observed.jobs if j["metadata"]["name"] != name)
                self.observed = replace(self.observed, jobs=left)
                self.config_maps.pop(name, None)
            case ExpireJob(name=name, seconds=seconds):
                self._named(name)["spec"]["ttlSecondsAfterFinished"] = seconds
                self.config_maps.pop(name, None)
            case RequeueJob(name=name, queue=queue):
                self._named(name)["metadata"]["labels"][QUEUE_LABEL] = queue
            case RecordTrial(body=body):
                others = [
                    t
                    for t in self.observed.trials
                    if t["metadata"]["name"] != body["metadata"]["name"]
                ]
                self.observed = replace(self.observed, trials=(*others, body))
            case DeleteTrial(name=name):
                left = tuple(t for t in self.observed.trials if t["metadata"]["name"] != name)
                self.observed = replace(self.observed, trials=left)
            case PatchTarget(operations=operations):
                self.patches.append(operations)
                self.observed = replace(
                    self.observed, target=apply_patch(self.observed.target, operations)
                )

    def _named(self, name: str) -> Any:
        return next(j for j in self.observed.jobs if j["metadata"]["name"] == name)

    # what a user does

    def edit(self, **spec: Any) -> None:
        """Change fields of the tuning's spec."""
        self._change(spec=spec)

    def annotate(self, key: str, value: str) -> None:
        """Annotate the tuning."""
        known = self.observed.tuning["metadata"].get("annotations", {})
        self._change(metadata={"annotations": {**known, key: value}})

    def _change(self, **parts: dict[str, Any]) -> None:
        tuning = deepcopy(dict(self.observed.tuning))
        for part, fields in parts.items():
            tuning[part] |= fields
        tuning["metadata"]["generation"] += "spec" in parts
        self.observed = replace(self.observed, tuning=tuning)

    # what other controllers and the kubelet do

    @property
    def job(self) -> dict[str, Any]:
        return dict(self.observed.jobs[-1])

    def pod(self, **status: Any) -> dict[str, Any]:
        """The pod of the newest Job, with this status."""
        job = self.job
        return {
            "metadata": {
                "name": f"{job['metadata']['name']}-x",
                "namespace": "serving",
                "uid": f"pod-of-{job['metadata']['name']}",
                "creationTimestamp": stamp(self.now),
                "ownerReferences": [{"kind": "Job", "uid": job["metadata"]["uid"], "name": "j"}],
            },
            "spec": {"nodeName": "gpu-1"},
            "status": status,
        }

    def has_pod(self, **status: Any) -> None:
        self.observed = replace(self.observed, pods=(self.pod(**status),))

    def says(self, *events: Event, complete: bool = False) -> None:
        """The bench of the newest Job has said this."""
        self.has_pod(**(ended_pod() if complete else running_pod(self.now)))
        uid = self.observed.pods[0]["metadata"]["uid"]
        self.observed = replace(
            self.observed, logs={uid: BenchLog(events=tuple(events), complete=complete)}
        )

    def finish_job(self, type_: str, reason: str = "", message: str = "") -> None:
        job = deepcopy(self.job)
        job["status"] = {
            "conditions": [
                {
                    "type": type_,
                    "status": "True",
                    "reason": reason,
                    "message": message,
                    "lastTransitionTime": stamp(self.now),
                }
            ]
        }
        self.observed = replace(self.observed, jobs=(*self.observed.jobs[:-1], job))

    def roll_out(self, *, ready: bool = True, log: str | None = None, restarts: int = 0) -> None:
        """The Deployment controller has made the new pod."""
        target = deepcopy(dict(self.observed.target or {}))
        generation = target["metadata"]["generation"]
        target["status"] = {
            "observedGeneration": generation,
            "replicas": 1,
            "updatedReplicas": 1,
            "availableReplicas": int(ready),
        }
        rs = {
            "metadata": {
                "name": f"llama-{generation}",
                "uid": f"rs-{generation}",
                "annotations": {"deployment.kubernetes.io/revision": str(generation)},
                "ownerReferences": [{"uid": "target-uid"}],
            }
        }
        pod = {
            "metadata": {
                "name": f"llama-{generation}-x",
                "ownerReferences": [{"uid": f"rs-{generation}"}],
            },
            "status": {
                "containerStatuses": [
                    {
                        "name": "vllm",
                        "restartCount": restarts,
                        "state": {"running": {}},
                        "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
                    }
                ]
            },
        }
        self.observed = replace(
            self.observed,
            target=target,
            target_replica_sets=(rs,),
            target_pods=(pod,),
            target_logs={} if log is None else {f"llama-{generation}-x": log},
        )


def started() -> World:
    """A world whose run has just been created."""
    world = World(observe())
    step(world)
    return world


def step(world: World, seconds: float = 0) -> Decision:
    """Decide once, so many seconds later, and perform it."""
    world.now += timedelta(seconds=seconds)
    decision = decide(world.observed, world.now)
    world.perform(decision)
    return decision


def finish(world: World, *events: Event) -> None:
    """The bench says this to its end, what follows is done, and the Job's time to live ends."""
    world.says(*events, complete=True)
    for _ in range(3):
        step(world)
    world.observed = replace(world.observed, jobs=(), pods=(), logs={})


def apply_patch(body: Any, operations: Any) -> dict[str, Any]:
    """RFC 6902 as far as it is used here; a failed test raises."""
    result = deepcopy(dict(body))
    spec = deepcopy(result["spec"])
    for operation in operations:
        *parents, last = [
            part.replace("~1", "/") for part in operation["path"].strip("/").split("/")
        ]
        place: Any = result
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        match operation["op"]:
            case "test":
                assert place[last] == operation["value"], operation["path"]
            case "remove":
                del place[last]
            case _:
                place[last] = operation["value"]
    if result["spec"] != spec:
        result["metadata"]["generation"] += 1
    return result
