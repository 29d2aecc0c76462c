"""Reading the fleet from the API server, as a user who may look at Deployments and tunings."""

from __future__ import annotations

from vllm_tuning.cluster.client import DEPLOYMENTS, NAMESPACES, POLICIES, TUNINGS, Cluster
from vllm_tuning.cluster.errors import NotFound, Refused
from vllm_tuning.reconcile.fleet_rows import FleetRow, fleet_rows
from vllm_tuning.reconcile.observed import Body


async def read_fleet(cluster: Cluster, namespace: str | None) -> tuple[FleetRow, ...]:
    """Read one namespace, or all. Who may not see policies gets the rest.

    Raises ``Refused`` for a user who may not list Deployments or tunings there.
    """
    policies: list[dict[str, object]] = []
    labels: dict[str, dict[str, str]] = {}
    try:
        policies = await cluster.list(POLICIES, None)
        labels = {
            body["metadata"]["name"]: body["metadata"].get("labels") or {}
            for body in await cluster.list(NAMESPACES, None)
        }
    except (Refused, NotFound):
        policies = []
    deployments: list[Body] = list(await cluster.list(DEPLOYMENTS, namespace))
    tunings: list[Body] = list(await cluster.list(TUNINGS, namespace))
    return fleet_rows(deployments, tunings, policies, labels)
