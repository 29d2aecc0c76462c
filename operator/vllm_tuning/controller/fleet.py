"""Looks at the serving fleet now and then: pages of its pods, kept as long as a window lasts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from vllm_tuning.api.policy import Enforcement, LiveState, VLLMSLAPolicy
from vllm_tuning.api.reasons import EventReason
from vllm_tuning.cluster import apply
from vllm_tuning.cluster.client import PODS, Cluster
from vllm_tuning.cluster.errors import ClusterError
from vllm_tuning.cluster.gather import selector_text
from vllm_tuning.cluster.scrape import NoPage, PageAddress, Scraper
from vllm_tuning.controller import metrics
from vllm_tuning.engine.latency import LatencyPage, add_pages, read_latencies
from vllm_tuning.reconcile.effects import About, Announcement
from vllm_tuning.reconcile.fleet import Member, Ref, serving_pods
from vllm_tuning.reconcile.live import LiveVerdict, judge_live, unknown
from vllm_tuning.reconcile.observed import Body
from vllm_tuning.reconcile.policy import concerns

log = logging.getLogger(__name__)

WINDOW_SECONDS: Final = 300.0
"""A verdict is about the last minutes: long enough for the LEAST_REQUESTS of a slow server."""
MAX_PAGES_PER_LOOK: Final = 500
"""Pods of a larger fleet beyond it are not read, and their Deployments are Unknown."""
RETRY_SECONDS: Final = 150.0
"""A pod whose page could not be read, e.g. behind a NetworkPolicy, is asked so seldom."""
_CONCURRENT_LISTS: Final = 4


@dataclass(slots=True)
class _History:
    """Pages of one pod with their times, oldest first."""

    pages: deque[tuple[float, LatencyPage]] = field(default_factory=deque)

    def add(self, at: float, page: LatencyPage) -> None:
        self.pages.append((at, page))
        while len(self.pages) > 2 and self.pages[1][0] <= at - WINDOW_SECONDS:
            self.pages.popleft()

    def window(self) -> LatencyPage | None:
        """What happened within the window; ``None`` = the pod was read only once."""
        if len(self.pages) < 2:
            return None
        # step by step: an engine may restart in between
        return add_pages([after.since(before) for (_, before), (_, after) in pairwise(self.pages)])


class FleetObserver:
    """Judges members by their pods' own counters, and tells when one begins to miss its SLA."""

    def __init__(self, cluster: Cluster, scraper: Scraper) -> None:
        self._cluster = cluster
        self._scraper = scraper
        self._histories: dict[str, _History] = {}
        """By uid of the pod."""
        self._failures: dict[str, tuple[float, NoPage]] = {}
        """By uid of the pod: when it was, and why."""
        self._states: dict[Ref, LiveState] = {}

    async def look(
        self, members: Sequence[Member], policies: Sequence[VLLMSLAPolicy]
    ) -> Mapping[Ref, LiveVerdict]:
        """Read every member's pods once and judge what happened in the window."""
        pods = await self._pods(members)
        now = asyncio.get_running_loop().time()
        asked = [a for a in _addresses(members, pods) if not self._failed_lately(a.key, now)]
        self._keep(await self._scraper.read(asked), now)
        self._forget({_uid(pod) for found in pods.values() for pod in found})
        verdicts = {
            member.ref: self._judge(member, pods.get(member.ref), now) for member in members
        }
        await self._tell(members, policies, verdicts)
        return verdicts

    async def _pods(self, members: Iterable[Member]) -> dict[Ref, tuple[Body, ...]]:
        gate = asyncio.Semaphore(_CONCURRENT_LISTS)

        async def one(member: Member) -> tuple[Ref, tuple[Body, ...]] | None:
            labels = selector_text(member.body["spec"].get("selector") or {})
            async with gate:
                try:
                    found = await self._cluster.list(PODS, member.ref[0], labels=labels)
                except ClusterError as error:
                    log.warning(
                        "fleet_pods", extra={"deployment": member.ref[1], "error": str(error)}
                    )
                    return None
            return member.ref, serving_pods(member.ref[1], found)

        found = await asyncio.gather(*(one(member) for member in members))
        return dict(pair for pair in found if pair is not None)

    def _failed_lately(self, uid: str, now: float) -> bool:
        failed = self._failures.get(uid)
        return failed is not None and now < failed[0] + RETRY_SECONDS

    def _keep(self, pages: Mapping[str, str | NoPage], now: float) -> None:
        for uid, page in pages.items():
            if isinstance(page, NoPage):
                self._failures[uid] = (now, page)
                metrics.FLEET_PAGES.labels("Failed").inc()
            else:
                self._failures.pop(uid, None)
                self._histories.setdefault(uid, _History()).add(now, read_latencies(page))
                metrics.FLEET_PAGES.labels("Read").inc()

    def _forget(self, present: set[str]) -> None:
        """Drop what is known of pods that are gone."""
        for uid in (self._histories.keys() | self._failures.keys()) - present:
            self._histories.pop(uid, None)
            self._failures.pop(uid, None)

    def _judge(self, member: Member, pods: Sequence[Body] | None, now: float) -> LiveVerdict:
        if pods is None:
            return unknown("its pods can not be listed")
        if not pods:
            return unknown("no pod is ready")
        unread = [pod for pod in pods if not self._is_fresh(_uid(pod), now)]
        if unread:
            why = "the fleet has too many pods to read them all"
            if failed := self._failures.get(_uid(unread[0])):
                why = failed[1].message
            return unknown(f"{len(unread)} of {len(pods)} pods can not be read: {why}")
        windows = [self._histories[_uid(pod)].window() for pod in pods]
        known = [window for window in windows if window is not None]
        if not known:
            return unknown("its pods were read only once so far")
        return judge_live(member.slos, add_pages(known))

    def _is_fresh(self, uid: str, now: float) -> bool:
        history = self._histories.get(uid)
        return history is not None and history.pages[-1][0] == now

    async def _tell(
        self,
        members: Iterable[Member],
        policies: Sequence[VLLMSLAPolicy],
        verdicts: Mapping[Ref, LiveVerdict],
    ) -> None:
        """Tell a change between met and missed on the Deployment, unless policies only audit."""
        counts = Counter(verdict.state for verdict in verdicts.values())
        for state in LiveState:
            metrics.FLEET.labels(state).set(counts[state])
        for member in members:
            verdict, before = verdicts[member.ref], self._states.get(member.ref)
            if verdict.state is LiveState.UNKNOWN:
                continue  # says nothing about the one before
            self._states[member.ref] = verdict.state
            loud = any(
                policy.spec.enforcement is not Enforcement.AUDIT
                and concerns(policy, member.subject)
                for policy in policies
            )
            missing = verdict.state is LiveState.MISSING
            if not loud or verdict.state is before or (before is None and not missing):
                continue
            reason = EventReason.SLA_MISSED if missing else EventReason.SLA_HELD_AGAIN
            words = verdict.message or "every SLO holds again"
            announcement = Announcement(About.TARGET, str(reason), words, warning=missing)
            await apply.announce(self._cluster, {}, member.body, announcement)
            metrics.ANNOUNCEMENTS.labels(announcement.reason).inc()
        for ref in self._states.keys() - verdicts.keys():
            del self._states[ref]


def _addresses(
    members: Iterable[Member], pods: Mapping[Ref, Sequence[Body]]
) -> tuple[PageAddress, ...]:
    found = [
        PageAddress(_uid(pod), pod["status"]["podIP"], member.endpoint.port, member.endpoint.tls)
        for member in members
        for pod in pods.get(member.ref, ())
    ]
    return tuple(found[:MAX_PAGES_PER_LOOK])


def _uid(pod: Body) -> str:
    return str(pod["metadata"]["uid"])
