"""Fixtures of the control plane: its CRDs, a client of it, and operators."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.cluster_fixtures.cluster import Cluster
from tests.control_plane.api_server import APIServer
from tests.control_plane.fleet import Fleet, Tenant, begin
from tests.operator_process import Operator
from tests.played_node import NO_IMAGE
from vllm_tuning.cluster.client import Cluster as Client
from vllm_tuning.cluster.client import connect


@pytest.fixture(scope="module")
def server(control_plane: Cluster) -> APIServer:
    """Return the control plane with the committed CRDs."""
    server = APIServer(control_plane)
    server.install_crds()
    return server


@pytest.fixture
async def client(control_plane: Cluster) -> AsyncIterator[Client]:
    """Return the operator's own client."""
    async with connect(str(control_plane.kubeconfig)) as cluster:
        yield cluster


@pytest.fixture
def operator(control_plane: Cluster, namespace: str, tmp_path: Path) -> Iterator[Operator]:
    """Run an operator for the test's own namespace."""
    with Operator(control_plane, namespace, tmp_path, NO_IMAGE) as running:
        yield running


@pytest.fixture(scope="module")
def tenants(
    request: pytest.FixtureRequest,
    control_plane: Cluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, Tenant]]:
    """Begin every test of the file that is going to run, each in its own namespace (``fleet``)."""
    tests = [
        item
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and "user" in item.fixturenames
    ]
    namespace = f"fleet-{uuid.uuid4().hex[:8]}"
    folder = tmp_path_factory.mktemp("fleet")
    control_plane.kubectl("create", "namespace", namespace)
    with Fleet(control_plane, namespace, folder) as fleet:
        yield begin(fleet, tests)
    control_plane.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture
def user(request: pytest.FixtureRequest, tenants: dict[str, Tenant]) -> Tenant:
    """The user of this test's namespace."""
    return tenants[request.node.nodeid]
