"""Wiring: the API client, the queue, the workers, kopf's watches, the lease.

If any of them ends, the process ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Final

import kopf

from vllm_tuning.cluster.apply import COMPONENT
from vllm_tuning.cluster.client import connect
from vllm_tuning.cluster.exporters import ExporterAddress, NodeExporters
from vllm_tuning.cluster.gather import Gatherer, Key
from vllm_tuning.cluster.logs import BenchLogs
from vllm_tuning.cluster.scrape import open_scraper
from vllm_tuning.controller.fleet import FleetObserver
from vllm_tuning.controller.handlers import build_registry
from vllm_tuning.controller.health import serve_health
from vllm_tuning.controller.lease import Lease
from vllm_tuning.controller.policies import PolicyWatcher
from vllm_tuning.controller.queue import WorkQueue
from vllm_tuning.controller.reconcile import Reconciler
from vllm_tuning.controller.worker import WORKERS, resync, work
from vllm_tuning.reconcile.observed import Settings

log = logging.getLogger(__name__)

LEASE_NAME: Final = "vllm-tuning-operator"


@dataclass(frozen=True, slots=True)
class Options:
    """How the operator runs; from the command line."""

    settings: Settings
    namespaces: tuple[str, ...] = ()
    """Served namespaces; empty = all."""
    lease_namespace: str = "default"
    lease_name: str = LEASE_NAME
    kubeconfig: str | None = None
    health_port: int = 0
    """Port of ``/healthz``; 0 = none."""
    exporter: ExporterAddress | None = None
    """Where GPU counters of a benchmark's node are read; ``None`` = nowhere."""


async def run(options: Options) -> None:
    """Run until a signal (returns) or until a part breaks (raises)."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with (
        connect(options.kubeconfig) as cluster,
        serve_health(options.health_port),
        open_scraper() as scraper,
    ):
        lease = Lease(cluster, options.lease_namespace, options.lease_name)
        stopped = asyncio.create_task(stop.wait(), name="signal")
        acquired = asyncio.create_task(lease.acquire(), name="lease")
        await asyncio.wait((stopped, acquired), return_when=asyncio.FIRST_COMPLETED)
        if not acquired.done():
            acquired.cancel()
            return
        acquired.result()
        queue: WorkQueue[Key] = WorkQueue()
        logs = BenchLogs(cluster)
        exporters = NodeExporters(cluster, options.exporter) if options.exporter else None
        gatherer = Gatherer(cluster, logs, options.settings, queue.add, exporters)
        reconciler = Reconciler(cluster, gatherer, scraper)
        parts: dict[str, Coroutine[Any, Any, Any]] = {
            "watches": _watch(queue, options, stop),
            "lease": lease.hold(),
            "clock": queue.run_clock(),
            "policies": PolicyWatcher(
                cluster, options.namespaces, queue.add, FleetObserver(cluster, scraper)
            ).run(),
            "resync": resync(queue, cluster, options.namespaces),
            **{f"worker-{n}": work(queue, reconciler) for n in range(WORKERS)},
        }
        try:
            await _run_all(parts, stop)
        finally:
            await logs.close()
            if exporters is not None:
                await exporters.close()
            await lease.release()


async def _run_all(parts: dict[str, Coroutine[Any, Any, Any]], stop: asyncio.Event) -> None:
    """Run the parts until told to stop; a part that ends before is a failure."""
    stopped = asyncio.create_task(stop.wait(), name="stop")
    tasks = [asyncio.create_task(part, name=name) for name, part in parts.items()]
    try:
        done, _ = await asyncio.wait((stopped, *tasks), return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopped}:
            if not stop.is_set():
                log.error("part_ended", extra={"part": task.get_name()})
                task.result()
                raise RuntimeError(f"{task.get_name()} ended by itself")
    finally:
        for task in (stopped, *tasks):
            task.cancel()
        for task in (stopped, *tasks):
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


async def _watch(queue: WorkQueue[Key], options: Options, stop: asyncio.Event) -> None:
    """Watch until told to stop.

    kopf takes over the signals while it runs and returns on one; an error of its own it raises.
    """
    await kopf.operator(
        registry=build_registry(queue.add, namespaced=bool(options.namespaces)),
        clusterwide=not options.namespaces,
        namespaces=options.namespaces,
        standalone=True,
        # Else kopf asks for the name of the user, which a container's bare uid does not have.
        identity=COMPONENT,  # type: ignore[arg-type]  # a NewType of str that kopf does not export
        stop_flag=stop,
    )
    stop.set()
