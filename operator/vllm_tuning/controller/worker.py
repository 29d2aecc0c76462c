"""The loop: takes keys from the queue and reconciles them, a few at a time."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from vllm_tuning.cluster.client import TUNINGS, Cluster
from vllm_tuning.cluster.errors import ClusterError
from vllm_tuning.cluster.gather import Key
from vllm_tuning.controller import metrics
from vllm_tuning.controller.errors import LookAgain, consequence_of
from vllm_tuning.controller.queue import WorkQueue
from vllm_tuning.controller.reconcile import Reconciler

log = logging.getLogger(__name__)

WORKERS: Final = 4
RESYNC_SECONDS: Final = 300.0
"""Every tuning is looked at so often even if no event says so."""
RECONCILE_DEADLINE_SECONDS: Final = 120.0
"""One look takes a second; one that hangs must not hold its worker for ever."""


async def work(queue: WorkQueue[Key], reconciler: Reconciler) -> None:
    """Work on keys for ever. A bug in one tuning's look must not stop the others'."""
    while True:
        key = await queue.get()
        metrics.QUEUE_LENGTH.set(len(queue))
        try:
            await _work_on(key, queue, reconciler)
        finally:
            queue.done(key)


async def _work_on(key: Key, queue: WorkQueue[Key], reconciler: Reconciler) -> None:
    try:
        with metrics.RECONCILE_SECONDS.time():
            async with asyncio.timeout(RECONCILE_DEADLINE_SECONDS):
                again = await reconciler.reconcile(key)
    except ClusterError as error:
        consequence = consequence_of(error)
        least = consequence.at_least_seconds if isinstance(consequence, LookAgain) else None
        seconds = queue.retry(key, least)
        metrics.RECONCILES.labels(type(error).__name__).inc()
        log.warning(
            "reconcile_again", extra={"tuning": str(key), "error": str(error), "seconds": seconds}
        )
    except Exception:  # the outermost catch: a bug is told, counted, and tried again with back-off
        seconds = queue.retry(key)
        metrics.RECONCILES.labels("Bug").inc()
        log.exception("reconcile_failed", extra={"tuning": str(key), "seconds": seconds})
    else:
        queue.forget_failures(key)
        metrics.RECONCILES.labels("Done").inc()
        if again is not None:
            queue.add_after(key, again)


async def resync(queue: WorkQueue[Key], cluster: Cluster, namespaces: tuple[str, ...]) -> None:
    """Enqueue every tuning now and then: a missed event costs minutes, not for ever."""
    while True:
        for namespace in namespaces or (None,):
            try:
                for body in await cluster.list(TUNINGS, namespace):
                    metadata = body["metadata"]
                    queue.add(Key(metadata["namespace"], metadata["name"]))
            except ClusterError as error:
                log.warning("resync_failed", extra={"error": str(error)})
        await asyncio.sleep(RESYNC_SECONDS)
