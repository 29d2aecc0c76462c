"""The serving fleet under policies: which Deployments count, by which SLA, and how they do.

A Deployment counts if it runs vLLM and a policy selects it, whether it is tuned or not. Its SLA is
that of its tuning; without one, what a tuning that says nothing would get from the policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vllm_tuning.api.policy import (
    MAX_MEMBERS,
    LiveDeployment,
    LiveFleet,
    LiveState,
    VLLMSLAPolicy,
)
from vllm_tuning.api.spec import TargetRef, VLLMTuningSpec
from vllm_tuning.api.values import SLO
from vllm_tuning.engine.args import read_args
from vllm_tuning.engine.containers import find_vllm_container
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.reconcile.live import LiveVerdict
from vllm_tuning.reconcile.observed import Body
from vllm_tuning.reconcile.pod_state import holds
from vllm_tuning.reconcile.policy import Subject, concerns, matching, resolve
from vllm_tuning.reconcile.policy_status import Tuning

ENGINE_PORT: Final = 8000
"""vLLM's own default."""
_ORDER: Final = (LiveState.MISSING, LiveState.UNKNOWN, LiveState.MEETING)

Ref = tuple[str, str]
"""Namespace and name of a Deployment."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where the engine of a pod shows its counters."""

    container: str
    port: int = ENGINE_PORT
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """One Deployment of the fleet."""

    body: Body
    subject: Subject
    endpoint: Endpoint
    slos: tuple[SLO, ...]
    tuning: str | None = None

    @property
    def ref(self) -> Ref:
        """Namespace and name."""
        return ref_of(self.body)


def ref_of(deployment: Body) -> Ref:
    """Return the namespace and name of a Deployment."""
    metadata = deployment["metadata"]
    return metadata["namespace"], metadata["name"]


def subject_of(deployment: Body, namespaces: Mapping[str, Mapping[str, str]]) -> Subject:
    """Return what policies select a Deployment by; ``namespaces`` are labels by name."""
    namespace, _ = ref_of(deployment)
    labels = deployment["metadata"].get("labels") or {}
    return Subject(namespace, namespaces.get(namespace, {}), labels)


def find_members(
    deployments: Iterable[Body],
    tunings: Iterable[Tuning],
    policies: Sequence[VLLMSLAPolicy],
    namespaces: Mapping[str, Mapping[str, str]],
) -> tuple[Member, ...]:
    """Return the Deployments that run vLLM and that a policy selects, by namespace and name."""
    wishes: dict[Ref, Tuning] = {}
    for tuning in sorted(tunings, key=lambda t: (t.created, t.name), reverse=True):
        wishes[tuning.namespace, tuning.spec.target_ref.name] = tuning  # the oldest one wins
    found = []
    for body in deployments:
        ref, subject = ref_of(body), subject_of(body, namespaces)
        concerned = matching(policies, subject)
        endpoint = endpoint_of(body["spec"]["template"]["spec"]) if concerned else None
        if endpoint is None:
            continue
        wish = wishes.get(ref)
        spec = wish.spec if wish else VLLMTuningSpec(target_ref=TargetRef(name=ref[1]))
        slos = resolve(spec, concerned).effective.slos
        found.append(Member(body, subject, endpoint, slos, wish.name if wish else None))
    return tuple(sorted(found, key=lambda member: member.ref))


def endpoint_of(pod_spec: Mapping[str, Any]) -> Endpoint | None:
    """Find the engine's metrics in a pod of this spec; ``None`` = it runs no engine, or several."""
    found = find_vllm_container(pod_spec)
    return None if isinstance(found, Refusal) else endpoint_in(found.container)


def endpoint_in(container: Mapping[str, Any]) -> Endpoint:
    """Find the metrics of the engine that runs in a container."""
    args = read_args(container)
    flag = args.get("port")
    declared = [p["containerPort"] for p in container.get("ports") or ()]
    if flag is not None and flag.value is not None and flag.value.isdigit():
        port = int(flag.value)
    else:
        port = declared[0] if args.refusal is not None and declared else ENGINE_PORT
    return Endpoint(container["name"], port, tls=args.get("ssl_certfile") is not None)


def serving_pods(deployment: str, pods: Iterable[Body]) -> tuple[Body, ...]:
    """Return a Deployment's own pods that serve; a selector alone may hit those of others."""
    return tuple(
        pod
        for pod in pods
        if not pod["metadata"].get("deletionTimestamp")
        and (pod.get("status") or {}).get("podIP")
        and holds(pod, "Ready")
        and _made_by(pod, deployment)
    )


def _made_by(pod: Body, deployment: str) -> bool:
    """Whether the pod's ReplicaSet is one of the Deployment: named by it and by the hash."""
    metadata = pod["metadata"]
    hash_ = (metadata.get("labels") or {}).get("pod-template-hash")
    owners = metadata.get("ownerReferences") or ()
    return any(o["kind"] == "ReplicaSet" and o["name"] == f"{deployment}-{hash_}" for o in owners)


def live_fleet(
    policy: VLLMSLAPolicy, members: Iterable[Member], verdicts: Mapping[Ref, LiveVerdict]
) -> LiveFleet:
    """Return what a policy's status says of the Deployments that it selects."""
    ours = [
        (member, verdicts[member.ref])
        for member in members
        if concerns(policy, member.subject) and member.ref in verdicts
    ]
    states = [verdict.state for _, verdict in ours]
    ours.sort(key=lambda pair: (_ORDER.index(pair[1].state), pair[0].ref))
    return LiveFleet(
        deployments=len(ours),
        meeting=states.count(LiveState.MEETING),
        missing=states.count(LiveState.MISSING),
        unknown=states.count(LiveState.UNKNOWN),
        untuned=sum(member.tuning is None for member, _ in ours),
        members=tuple(
            LiveDeployment(
                namespace=member.ref[0],
                name=member.ref[1],
                state=verdict.state,
                tuning=member.tuning,
                message=verdict.message[:1024],
            )
            for member, verdict in ours[:MAX_MEMBERS]
        ),
    )
