"""Who works: one process at a time holds the Lease. Losing it ends the process.

Two operators at once would do no harm (deterministic names, guarded patches); the Lease spares the
cluster the double work.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from dataclasses import dataclass
from typing import Any, Final

from vllm_tuning.cluster.client import LEASES, Cluster
from vllm_tuning.cluster.errors import AlreadyExists, ClusterError, Conflict
from vllm_tuning.controller import metrics

log = logging.getLogger(__name__)

DURATION_SECONDS: Final = 15
RENEW_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 2.0


class LeaseLost(RuntimeError):  # noqa: N818 - an event, not a mistake
    """Somebody else holds the lease, or it could not be renewed in time."""


@dataclass(slots=True)
class _Seen:
    """Another holder's lease as last seen; expiry is measured by our own clock, never by theirs."""

    record: tuple[str, str] = ("", "")
    at: float = 0.0


class Lease:
    """A Lease object in the operator's own namespace."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self.identity = (
            f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"
        )
        self._seen = _Seen()

    async def acquire(self) -> None:
        """Wait until the lease is ours."""
        while True:
            if await self._try():
                break
            await asyncio.sleep(RETRY_SECONDS)
        metrics.LEADER.set(1)
        log.info("lease_acquired", extra={"identity": self.identity})

    async def hold(self) -> None:
        """Renew for ever; raises ``LeaseLost``."""
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            if await self._try():
                renewed = loop.time()
            elif loop.time() - renewed > DURATION_SECONDS - RENEW_SECONDS:
                metrics.LEADER.set(0)
                raise LeaseLost(f"lease {self._namespace}/{self._name} could not be renewed")

    async def release(self) -> None:
        """Let a successor take over at once."""
        try:
            body = await self._cluster.get(LEASES, self._namespace, self._name)
            if body is not None and body["spec"].get("holderIdentity") == self.identity:
                body["spec"]["holderIdentity"] = ""
                await self._cluster.replace(LEASES, self._namespace, self._name, body)
        except ClusterError as error:
            log.warning("lease_not_released", extra={"error": str(error)})

    async def _try(self) -> bool:
        try:
            return await self._take()
        except (AlreadyExists, Conflict):
            return False
        except ClusterError as error:
            log.warning("lease_error", extra={"error": str(error)})
            return False

    async def _take(self) -> bool:
        body = await self._cluster.get(LEASES, self._namespace, self._name)
        now = self._cluster.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if body is None:
            await self._cluster.create(LEASES, self._namespace, self._body(now))
            return True
        spec = body["spec"]
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self.identity) and not self._expired(holder, spec):
            return False
        if holder != self.identity:
            spec |= {"acquireTime": now, "leaseTransitions": spec.get("leaseTransitions", 0) + 1}
        spec |= {
            "holderIdentity": self.identity,
            "renewTime": now,
            "leaseDurationSeconds": DURATION_SECONDS,
        }
        await self._cluster.replace(LEASES, self._namespace, self._name, body)
        return True

    def _expired(self, holder: str, spec: dict[str, Any]) -> bool:
        """Whether the holder has not renewed for as long as its lease lasts, watched by us."""
        record = (holder, spec.get("renewTime", ""))
        now = asyncio.get_running_loop().time()
        if record != self._seen.record:
            self._seen = _Seen(record, now)
            return False
        return now - self._seen.at > float(spec.get("leaseDurationSeconds", DURATION_SECONDS))

    def _body(self, now: str) -> dict[str, Any]:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": DURATION_SECONDS,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        }
