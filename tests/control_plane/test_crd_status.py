"""How a real API server keeps the status: apart from the spec, and its conditions one by one."""

from __future__ import annotations

import pytest

from tests.control_plane.api_server import APIServer
from tests.control_plane.objects import tuning

pytestmark = pytest.mark.control_plane


def test_status_is_a_subresource(server: APIServer, namespace: str) -> None:
    """Neither side can write the other's half, and only the spec counts generations."""
    status = {"sla": "Met", "rejected": ["abc"]}
    server.create(namespace, tuning() | {"status": status})
    assert "status" not in server.get(namespace, "vt/chat")

    body = {"status": status, "spec": {"suspend": True}}
    assert server.patch(namespace, "vt/chat", body, subresource="status").ok

    stored = server.get(namespace, "vt/chat")
    assert stored["status"] == status
    assert stored["spec"]["suspend"] is False
    assert stored["metadata"]["generation"] == 1


def test_conditions_are_merged_by_type(server: APIServer, namespace: str) -> None:
    """Two writers by server-side apply keep each other's conditions: a list-map, not a list."""
    stored = server.create(namespace, tuning())
    for type_ in ("Ready", "Stalled"):
        condition = {
            "type": type_,
            "status": "True",
            "reason": "Why",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        done = server.request(
            "PATCH",
            f"apis/vllmtuning.io/v1alpha1/namespaces/{namespace}/vllmtunings/chat/status",
            {
                "apiVersion": stored["apiVersion"],
                "kind": stored["kind"],
                "status": {"conditions": [condition]},
            },
            content_type="application/apply-patch+yaml",
            fieldManager=type_,
        )
        assert done.ok, done.words

    conditions = server.get(namespace, "vt/chat")["status"]["conditions"]
    assert [condition["type"] for condition in conditions] == ["Ready", "Stalled"]
