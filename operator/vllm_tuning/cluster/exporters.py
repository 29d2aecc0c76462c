"""Reading the DCGM exporter of the node that a benchmark runs on, while its bench is at work.

The exporter is a DaemonSet, so its pod is known once the benchmark's node is. It is an extra: no
exporter, no right to list its pods or a broken page only leave a gap, which is told as such.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from vllm_tuning.cluster.client import PODS, Cluster
from vllm_tuning.cluster.errors import ClusterError
from vllm_tuning.cluster.logs import bench_state
from vllm_tuning.cluster.scrape import NoPage, PageAddress, Scraper, open_scraper
from vllm_tuning.engine.dcgm import read_gpus
from vllm_tuning.reconcile.node_gpus import NodeGPUs, Page, has_gpus
from vllm_tuning.reconcile.observed import Body

log = logging.getLogger(__name__)

MAX_PAGES: Final = 900
"""Half an hour by default. A probe is joined as soon as it ends, and takes minutes."""
RETRY_SECONDS: Final = 15.0
"""After a failure: the exporter may be starting."""
LEFT_SECONDS: Final = 600.0
"""A pod that nobody has looked at for so long is gone: every tuning is looked at more often."""


@dataclass(frozen=True, slots=True)
class ExporterAddress:
    """How the exporter's pods are found; the chart's value ``dcgmExporter``."""

    namespace: str
    selector: str = "app=nvidia-dcgm-exporter"
    """Label selector; the default is what NVIDIA's GPU operator sets."""
    port: int = 9400
    scrape_seconds: float = 2.0


class _NoPageError(Exception):
    """Why there is no page, in words for people."""


@dataclass(slots=True)
class _Followed:
    name: str
    node: str
    looked_at: float
    pages: deque[Page] = field(default_factory=lambda: deque(maxlen=MAX_PAGES))
    problem: str = ""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None


class NodeExporters:
    """The exporters beside all benchmark pods that somebody looks at."""

    def __init__(self, cluster: Cluster, address: ExporterAddress) -> None:
        self._cluster = cluster
        self._address = address
        self._followed: dict[str, _Followed] = {}

    def observe(self, pod: Body) -> NodeGPUs | None:
        """Return what was read beside a benchmark pod; from then on more is read.

        ``None`` = there is nothing to read: the bench has not begun or had ended before anybody
        looked, or the pod has no GPU.
        """
        now = asyncio.get_running_loop().time()
        self._forget(now)
        uid, node = pod["metadata"]["uid"], (pod.get("spec") or {}).get("nodeName")
        state = bench_state(pod)
        followed = self._followed.get(uid)
        if followed is None:
            if state != "running" or node is None or not has_gpus(pod):
                return None
            followed = _Followed(pod["metadata"]["name"], node, now)
            self._followed[uid] = followed
            followed.task = asyncio.create_task(
                self._follow(followed), name=f"exporter beside {followed.name}"
            )
        followed.looked_at = now
        if state == "terminated":
            followed.ended.set()
        return NodeGPUs(self._address.scrape_seconds, tuple(followed.pages), followed.problem)

    async def close(self) -> None:
        """Stop reading everything."""
        tasks = [f.task for f in self._followed.values() if f.task is not None]
        self._followed.clear()
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _forget(self, now: float) -> None:
        """Drop what nobody looks at any more; its task ends by the same rule."""
        for uid, followed in list(self._followed.items()):
            if now - followed.looked_at > LEFT_SECONDS:
                followed.ended.set()
                del self._followed[uid]

    async def _follow(self, followed: _Followed) -> None:
        """Read pages until the bench has ended."""
        clock = asyncio.get_running_loop().time
        address: PageAddress | None = None
        async with open_scraper() as scraper:
            while not followed.ended.is_set() and clock() - followed.looked_at <= LEFT_SECONDS:
                pause = self._address.scrape_seconds
                try:
                    address = address or await self._locate(followed.node)
                    at = time.time()
                    followed.pages.append(Page(at, read_gpus(await _read(scraper, address))))
                    followed.problem = ""
                except (ClusterError, _NoPageError) as error:
                    address, pause = None, RETRY_SECONDS
                    _note(followed, str(error))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(followed.ended.wait(), pause)

    async def _locate(self, node: str) -> PageAddress:
        """Find the exporter's page on a node."""
        where = self._address
        pods = await self._cluster.list(
            PODS, where.namespace, labels=where.selector, fields=f"spec.nodeName={node}"
        )
        address = next(_addresses(pods, where.port), None)
        if address is None:
            raise _NoPageError(
                f"no running pod with {where.selector} in namespace {where.namespace} on node "
                f"{node}"
            )
        return address


def _addresses(pods: Iterable[dict[str, Any]], port: int) -> Iterator[PageAddress]:
    for pod in pods:
        status = pod.get("status") or {}
        if status.get("phase") == "Running" and status.get("podIP"):
            yield PageAddress(pod["metadata"]["uid"], status["podIP"], port)


async def _read(scraper: Scraper, address: PageAddress) -> str:
    page = await scraper.page(address)
    if isinstance(page, NoPage):
        raise _NoPageError(page.message)
    return page


def _note(followed: _Followed, problem: str) -> None:
    if problem != followed.problem:
        log.warning("dcgm_exporter", extra={"pod": followed.name, "problem": problem})
    followed.problem = problem
