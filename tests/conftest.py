"""Settings of all tests, and fixtures of those that need a cluster.

``TUNING_CLUSTER=NAME`` uses a cluster that runs already (``CLUSTER=NAME hack/cluster/cluster up``)
instead of one that is started for the session: quicker while coding.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import hypothesis
import pytest

from tests.cluster_fixtures.cluster import Cluster, existing, inside_network, started

# Checks that tests share tell their values when they fail, as a test's own do.
pytest.register_assert_rewrite("tests.control_plane", "tests.toy_engine", "tests.user")

# A deadline for an example is a timed assertion: it fails on a busy machine and proves nothing.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A real cluster of this session's own; this process is inside its network meanwhile."""
    name = os.environ.get("TUNING_CLUSTER")
    if name:
        running = existing(name)
        with inside_network(running.pid):
            yield running
        return
    with started(f"test-{uuid.uuid4().hex[:8]}") as running, inside_network(running.pid):
        yield running


@pytest.fixture(scope="session")
def control_plane(cluster: Cluster) -> Cluster:
    """The same cluster, for tests that need its API server and controllers but run no pods."""
    return cluster


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A fresh namespace; it is deleted in the background."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    created = cluster.kubectl("create", "namespace", name)
    assert created.returncode == 0, created.stderr
    # pods need the service account, which a controller makes a moment later
    waited = cluster.kubectl(
        "wait", "serviceaccount/default", "-n", name, "--for=create", "--timeout=30s"
    )
    assert waited.returncode == 0, waited.stderr
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")
