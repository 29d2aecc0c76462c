"""The operator in its pod, installed once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster_fixtures.cluster import Cluster
from tests.control_plane.api_server import APIServer, wait_until
from tests.user import User

STARTED = 300.0
"""Seconds; the import of a Kubernetes client takes long where a node is busy."""


def _ready(server: APIServer) -> bool:
    deployment = f"deploy/{server.release}-vllm-tuning-operator"
    path = "jsonpath={.status.readyReplicas}"
    return server.must("get", deployment, "-n", server.namespace, "-o", path) == "1"


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Iterator[APIServer]:
    """Install the chart with the images of this tree, and wait until the operator is ready."""
    references = {name: cluster.image(name) for name in ("operator", "bench")}
    registry, _, rest = references["operator"].rpartition("/")
    server = APIServer(cluster, release="in-pod")
    server.install_crds()
    server.install_chart(
        f"--set=images.registry={registry}",
        f"--set=images.tag={rest.partition(':')[2]}",
    )
    wait_until(lambda: _ready(server), STARTED)
    yield server
    server.uninstall_chart()


@pytest.fixture
def user(cluster: Cluster, namespace: str, installed: APIServer) -> User:
    """A user of the test's namespace, which the installed operator serves."""
    return User(cluster, namespace)
