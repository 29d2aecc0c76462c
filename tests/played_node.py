"""The kubelet's part, played by the test: pods that never run get the status of ones that do.

Everything else is real: API server, Job, Deployment and ReplicaSet controllers, garbage collection,
the operator. So a whole life of a tuning takes seconds, is the same each time, and can be cut off
at every write. That the kubelet and the bench really behave like this is shown by the tests of the
rung ``simulated``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from tests.operator_process import Operator, a_target
from tests.rest import MERGE_PATCH, path_of
from tests.unit.reconcile.bench_events import a_whole_run
from tests.user import User
from vllm_tuning.reconcile.names import BENCH
from vllm_tuning.tuning.model import ProbeResult
from vllm_tuning.tuning.run import EVENT, RUN_SPEC, Event, ProbeEnded, RunSpec, StartEnded

SCHEDULER = "played"
"""Scheduler of the pods that are played: none has this name, so they stay without a node."""

NO_IMAGE = "localhost/no-such-image:1"
"""Can not be pulled, and need not be where pods are played."""

Script = Callable[[RunSpec], Sequence[Event]]
"""What the bench says in an attempt."""


def whole_run(spec: RunSpec) -> Sequence[Event]:
    """A run that measures what is not in ``previous`` and then answers."""
    known = {
        answer.probe.id if isinstance(answer, ProbeResult) else answer.start.id
        for answer in spec.previous
    }
    return [
        event
        for event in a_whole_run()
        if not (isinstance(event, ProbeEnded) and event.result.probe.id in known)
        and not (isinstance(event, StartEnded) and event.result.start.id in known)
    ]


class Kubelet:
    """Plays the pods of one namespace, one step each time it is asked to."""

    def __init__(self, user: User, script: Script = whole_run) -> None:
        self._user = user
        self._said: dict[str, int] = {}
        self._lines: dict[str, list[str]] = {}
        self.script = script
        self.hold_after: int | None = None
        """Number of events after which a bench says no more, and stays."""
        self.serves: Callable[[list[str]], bool] = lambda _: True
        """Whether an engine with these args becomes ready."""
        self.unschedulable: Callable[[list[str]], str | None] = lambda _: None
        """The scheduler's words on an engine with these args for which there is no room."""
        self.starts = True
        """Whether pods that have a node get their containers running."""
        self.address: str | None = None
        """IP address of engines that are ready; without one their metrics can not be read."""
        self.places: Callable[[str], str | None] = lambda _: None
        """Name of the node that a pod of this name is bound to."""
        self.specs: list[RunSpec] = []
        """What each attempt was asked, in order."""

    def step(self) -> None:
        """Bring every pod one step on."""
        for pod in self._user.items("pods", fieldSelector=f"spec.schedulerName={SCHEDULER}"):
            self.play(pod)

    def play(self, pod: dict[str, Any]) -> None:
        """Bring one pod one step on."""
        if pod["metadata"].get("deletionTimestamp"):
            if "nodeName" in pod["spec"]:  # without one the API server itself removes it
                path = self._path(pod)
                self._user.rest.request("DELETE", path, {"gracePeriodSeconds": 0})
            return
        node = self.places(pod["metadata"]["name"])
        if node is not None and "nodeName" not in pod["spec"]:
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod["metadata"]["name"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
            self._user.rest.request("POST", f"{self._path(pod)}/binding", binding)
        if "batch.kubernetes.io/job-name" in pod["metadata"]["labels"]:
            self._play_bench(pod)
        elif pod.get("status", {}).get("phase") == "Pending":
            self._play_engine(pod)

    def log(self, pod: str, container: str) -> bytes | None:
        """What a container of a pod has said; ``None`` = it is not played here."""
        if container == BENCH:
            if pod not in self._lines:
                return None
            lines = self._lines[pod][: self._said.get(pod, 0)]
            return "".join(f"{line}\n" for line in lines).encode()
        pods = {p["metadata"]["name"]: p for p in self._user.items("pods")}
        if pod not in pods:
            return None
        args = _engine_args(pods[pod])
        flags = dict(a[2:].split("=") for a in args if a.startswith("--") and "=" in a)
        shown = {k.replace("-", "_"): int(v) for k, v in flags.items() if v.isdigit()}
        return f"INFO 11-29 12:00:00 [utils.py:1] non-default args: {shown}\n".encode()

    def lose(self, pod: dict[str, Any], reason: str, message: str) -> None:
        """Take a pod's node away: what the kubelet or the pod garbage collector writes then."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": _now(),
        }
        self._patch(pod, "Failed", ready=False, more=(condition,))

    def _play_engine(self, pod: dict[str, Any]) -> None:
        args = _engine_args(pod)
        if words := self.unschedulable(args):
            if words not in str(pod["status"].get("conditions")):
                self._patch(pod, "Pending", ready=False, unscheduled=words)
        elif not self.starts:
            self._wait_for_containers(pod)
        elif self.serves(args):
            state = {"running": {"startedAt": _now()}}
            where: dict[str, Any] = {}
            if self.address is not None:
                where = {"podIP": self.address, "podIPs": [{"ip": self.address}]}
            statuses = _statuses(pod, state)
            self._patch(pod, "Running", ready=True, containerStatuses=statuses, **where)
        else:
            crashed = {
                "restartCount": 3,
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
            }
            state = {"waiting": {"reason": "CrashLoopBackOff"}}
            statuses = [s | crashed | {"ready": False} for s in _statuses(pod, state)]
            self._patch(pod, "Running", ready=False, containerStatuses=statuses)

    def _play_bench(self, pod: dict[str, Any]) -> None:
        name, phase = pod["metadata"]["name"], pod.get("status", {}).get("phase")
        told = (pod.get("status") or {}).get("containerStatuses") or ()
        if phase not in ("Pending", "Running") or any("terminated" in s["state"] for s in told):
            return
        if not self.starts:
            self._wait_for_containers(pod)
            return
        if name not in self._lines:
            spec = self._spec_of(pod)
            if spec is None:
                return
            self.specs.append(spec)
            self._lines[name] = [EVENT.dump_json(e).decode() for e in self.script(spec)]
            state: dict[str, Any] = {"running": {"startedAt": _now()}}
            self._patch(pod, "Running", ready=True, containerStatuses=_statuses(pod, state))
            return
        total = len(self._lines[name])
        if self.hold_after is not None:
            total = min(total, self.hold_after)
        said = self._said[name] = min(self._said.get(name, 0) + 2, total)
        if said == len(self._lines[name]):
            ended = {"exitCode": 0, "finishedAt": _now(), "reason": "Completed"}
            others = [c for c in pod["spec"]["containers"] if c["name"] != BENCH]
            statuses = _statuses(pod, {"terminated": ended}, {"running": {"startedAt": _now()}})
            phase = "Running" if others else "Succeeded"  # a proxy never ends by itself
            self._patch(pod, phase, ready=False, containerStatuses=statuses)

    def _spec_of(self, pod: dict[str, Any]) -> RunSpec | None:
        """Return what the bench is asked; ``None`` = its ConfigMap is gone, and it goes too."""
        job = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
        path = path_of("configmaps", self._user.namespace, job)
        code, body = self._user.rest.request("GET", path)
        return RUN_SPEC.validate_json(body["data"]["run.json"]) if code == 200 else None

    def _wait_for_containers(self, pod: dict[str, Any]) -> None:
        state = {"waiting": {"reason": "ContainerCreating"}}
        if not (pod.get("status") or {}).get("containerStatuses"):
            statuses = _statuses(pod, state)
            self._patch(pod, "Pending", ready=False, containerStatuses=statuses)

    def _patch(
        self,
        pod: dict[str, Any],
        phase: str,
        *,
        ready: bool,
        unscheduled: str = "",
        more: Sequence[dict[str, Any]] = (),
        **status: Any,
    ) -> None:
        conditions: list[dict[str, Any]] = [
            {"type": type_, "status": str(value), "lastTransitionTime": _now()}
            for type_, value in (
                ("PodScheduled", not unscheduled),
                ("Initialized", True),
                ("ContainersReady", ready),
                ("Ready", ready),
            )
        ]
        if unscheduled:
            conditions[0] |= {"reason": "Unschedulable", "message": unscheduled}
        body = {"status": {"phase": phase, "conditions": [*conditions, *more], **status}}
        self._user.rest.request("PATCH", f"{self._path(pod)}/status", body, MERGE_PATCH)

    def _path(self, pod: dict[str, Any]) -> str:
        return path_of("pods", self._user.namespace, pod["metadata"]["name"])


class PlayedNode(Kubelet):
    """The kubelet of an operator's own namespace, which also answers for its logs."""

    def __init__(self, operator: Operator, script: Script = whole_run) -> None:
        super().__init__(operator, script)
        operator.proxy.logs = self.log


def a_played_target(name: str, image: str = NO_IMAGE, **container: Any) -> dict[str, Any]:
    """A Deployment of vLLM whose pods are played."""
    body = a_target(name, image, **container)
    body["spec"]["template"]["spec"]["schedulerName"] = SCHEDULER
    return body


def _engine_args(pod: dict[str, Any]) -> list[str]:
    """Return the args of a target's engine; proxies that were injected have none."""
    return next((c["args"] for c in pod["spec"]["containers"] if "args" in c), [])


def _statuses(
    pod: dict[str, Any], state: dict[str, Any], others: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Statuses of all containers; ``others`` is the state of those beside the bench."""
    return [
        _status(container, state if others is None or container["name"] == BENCH else others)
        for container in pod["spec"]["containers"]
    ]


def _status(container: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": "running" in state,
        "started": True,
        "restartCount": 0,
        "state": state,
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
