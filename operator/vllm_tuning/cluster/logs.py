"""Following the logs of benchmark pods: each event once and in order.

The log is the truth and this is a cache of it: after a restart of the operator, or of the
connection, the log is read from its beginning, and ``seq`` tells what is new.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from vllm_tuning.cluster.client import Cluster
from vllm_tuning.cluster.errors import ClusterError, NotFound
from vllm_tuning.reconcile.names import BENCH
from vllm_tuning.reconcile.observed import BenchLog, Body
from vllm_tuning.tuning.run import EVENT, Event, Progress

RETRY_SECONDS: Final = 2.0
HEARTBEAT_SECONDS: Final = 15.0
"""Heartbeats of a probe wake the operator at most so often; everything else at once."""


@dataclass(slots=True)
class _Followed:
    namespace: str
    pod: str
    wake: Callable[[], None]
    events: list[Event] = field(default_factory=list)
    terminated: bool = False
    complete: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class BenchLogs:
    """The logs of all benchmark pods that somebody looks at."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._followed: dict[str, _Followed] = {}

    def observe(self, pod: Body, wake: Callable[[], None]) -> BenchLog | None:
        """Return what the pod's bench has said so far; from then on ``wake`` is called for more.

        ``None`` = it has not started yet.
        """
        state = bench_state(pod)
        if state is None:
            return None
        uid = pod["metadata"]["uid"]
        followed = self._followed.get(uid)
        if followed is None:
            metadata = pod["metadata"]
            followed = _Followed(metadata["namespace"], metadata["name"], wake)
            self._followed[uid] = followed
            followed.task = asyncio.create_task(
                self._follow(followed), name=f"log of {metadata['name']}"
            )
        if state == "terminated" and not followed.terminated:
            followed.terminated = True
            followed.changed.set()
        return BenchLog(events=tuple(followed.events), complete=followed.complete)

    async def forget(self, namespace: str, gone: Callable[[str], bool]) -> None:
        """Stop following pods of a namespace for which ``gone(uid)`` holds."""
        uids = [u for u, f in self._followed.items() if f.namespace == namespace and gone(u)]
        await self._stop(uids)

    async def close(self) -> None:
        """Stop following everything."""
        await self._stop(list(self._followed))

    async def _stop(self, uids: Iterable[str]) -> None:
        for uid in uids:
            task = self._followed.pop(uid).task
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    async def _follow(self, followed: _Followed) -> None:
        """Read until the container has ended and a read that began after its end is through."""
        while not followed.complete:
            ended_before = followed.terminated
            followed.changed.clear()
            try:
                await self._read(followed)
            except NotFound:
                followed.complete = True
            except ClusterError:
                ended_before = False
            if ended_before:
                followed.complete = True
            followed.wake()
            if not followed.complete:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(followed.changed.wait(), RETRY_SECONDS)

    async def _read(self, followed: _Followed) -> None:
        last = followed.events[-1].seq if followed.events else -1
        loop = asyncio.get_running_loop()
        woken = loop.time()
        async for line in self._cluster.follow_log(followed.namespace, followed.pod, BENCH):
            event = parse_event(line)
            if event is None or event.seq <= last:
                continue
            last = event.seq
            if (
                isinstance(event, Progress)
                and followed.events
                and isinstance(followed.events[-1], Progress)
            ):
                followed.events[-1] = event  # of a probe's heartbeats only the last tells anything
            else:
                followed.events.append(event)
            if not isinstance(event, Progress) or loop.time() - woken > HEARTBEAT_SECONDS:
                woken = loop.time()
                followed.wake()


def parse_event(line: str) -> Event | None:
    """Read one line; anything that is no event of ours (a warning of a library) is skipped."""
    if not line.startswith("{"):
        return None
    try:
        return EVENT.validate_json(line)
    except ValidationError:
        return None


def bench_state(pod: Body) -> str | None:
    """Return ``running`` or ``terminated``; ``None`` = the bench has not begun."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status["name"] == BENCH:
            state = status.get("state") or {}
            return next((word for word in ("terminated", "running") if word in state), None)
    return None
