"""VLLMSLAPolicies: notice their changes, wake the tunings, and keep the policies' own status true.

By asking now and then instead of watching: a change of policy is rare and not urgent, and where the
operator may not read policies this ends quietly, while a watch would be refused again and again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from vllm_tuning.api.policy import LiveFleet, VLLMSLAPolicyStatus
from vllm_tuning.api.reasons import EventReason
from vllm_tuning.cluster import apply
from vllm_tuning.cluster.client import (
    DEPLOYMENTS,
    NAMESPACES,
    POLICIES,
    TUNINGS,
    Cluster,
    Resource,
)
from vllm_tuning.cluster.errors import AlreadyExists, ClusterError, NotFound, Refused
from vllm_tuning.cluster.gather import Key
from vllm_tuning.controller.fleet import FleetObserver
from vllm_tuning.reconcile.auto_create import tunings_to_create
from vllm_tuning.reconcile.effects import About, Announcement
from vllm_tuning.reconcile.fleet import Member, find_members, live_fleet
from vllm_tuning.reconcile.names import LABEL_POLICY
from vllm_tuning.reconcile.observed import Body
from vllm_tuning.reconcile.policy_status import (
    policy_statuses,
    read_policies,
    read_tunings,
    unread_statuses,
)

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 10.0
"""A changed policy is noticed within this time."""
LOOK_SECONDS: Final = 30.0
"""The counts in a policy's status are at most so old."""

Labels = Mapping[str, str]


class PolicyWatcher:
    """Keeps an eye on all policies."""

    def __init__(
        self,
        cluster: Cluster,
        namespaces: tuple[str, ...],
        enqueue: Callable[[Key], None],
        fleet: FleetObserver | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        """``fleet`` reads the serving pods; without it the policies tell of tunings only."""
        self._fleet = fleet
        self._cluster = cluster
        self._namespaces = namespaces
        self._enqueue = enqueue
        self._clock = clock or cluster.now
        self._seen: Mapping[str, int] | None = None
        """Generation of each policy by uid, as last seen; ``None`` = not looked yet."""
        self._looked = float("-inf")

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            try:
                await self.poll()
            except ClusterError as error:
                log.warning("policies_not_read", extra={"error": str(error)})
            await asyncio.sleep(POLL_SECONDS)

    async def poll(self) -> None:
        """Read the policies; if one has changed, wake every tuning; write statuses in time."""
        try:
            bodies = await self._cluster.list(POLICIES, None)
        except (NotFound, Refused):
            return  # the kind is not installed, or policies are not ours to read
        now = asyncio.get_running_loop().time()
        seen = {b["metadata"]["uid"]: b["metadata"].get("generation", 0) for b in bodies}
        changed = self._seen is not None and seen != self._seen
        if changed or (bodies and now - self._looked >= LOOK_SECONDS):
            tunings = await self._list_served(TUNINGS)
            for body in tunings if changed else ():
                self._enqueue(Key(_namespace(body), _name(body)))
            await self._write_statuses(bodies, tunings)
            self._looked = now
        self._seen = seen  # last: a poll that failed on the way is done again

    async def _write_statuses(self, bodies: Sequence[Body], tuning_bodies: Sequence[Body]) -> None:
        deployments = await self._list_served(DEPLOYMENTS)
        namespaces = {
            _name(body): _labels(body) for body in await self._cluster.list(NAMESPACES, None)
        }
        labels = {(_namespace(body), _name(body)): _labels(body) for body in deployments}
        tunings = read_tunings(tuning_bodies, labels, namespaces)
        policies = read_policies(bodies)
        members = find_members(deployments, tunings, policies, namespaces)
        await self._create_tunings(tunings_to_create(members, tuning_bodies, policies))
        live: dict[str, LiveFleet] = {}
        if self._fleet is not None:
            verdicts = await self._fleet.look(members, policies)
            live = {p.metadata.name: live_fleet(p, members, verdicts) for p in policies}
        before = {_name(body): body for body in bodies}
        now = self._clock()
        statuses = policy_statuses(policies, tunings, now, live) | unread_statuses(bodies, now)
        for name, status in statuses.items():
            await self._write(before[name], status)

    async def _create_tunings(self, missing: Iterable[tuple[Member, Body]]) -> None:
        """Make the tunings that autoCreate asks for; a name that was taken meanwhile stays."""
        for member, body in missing:
            namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
            try:
                await self._cluster.create(TUNINGS, namespace, body)
            except (AlreadyExists, NotFound):
                continue
            except Refused as error:
                log.warning("not_created", extra={"tuning": name, "error": str(error)})
                continue
            policy = body["metadata"]["labels"][LABEL_POLICY]
            words = f"VLLMTuning {name} was created by autoCreate of VLLMSLAPolicy {policy}"
            announcement = Announcement(About.TARGET, str(EventReason.TUNING_CREATED), words)
            await apply.announce(self._cluster, {}, member.body, announcement)

    async def _list_served(self, resource: Resource) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for namespace in self._namespaces or (None,):
            found.extend(await self._cluster.list(resource, namespace))
        return found

    async def _write(self, body: Mapping[str, Any], status: VLLMSLAPolicyStatus) -> None:
        wanted = status.to_object()
        if wanted == (body.get("status") or {}):
            return
        operations = (
            {"op": "test", "path": "/metadata/uid", "value": body["metadata"]["uid"]},
            {"op": "add", "path": "/status", "value": wanted},
        )
        try:
            await self._cluster.patch(
                POLICIES, None, _name(body), operations, subresource="/status"
            )
        except NotFound:
            return


def _name(body: Mapping[str, Any]) -> str:
    return str(body["metadata"]["name"])


def _namespace(body: Mapping[str, Any]) -> str:
    return str(body["metadata"]["namespace"])


def _labels(body: Mapping[str, Any]) -> Labels:
    labels: Labels = body["metadata"].get("labels") or {}
    return labels
