"""Architecture law 6 on a real API server: nobody gets through the operator what he may not do.

The users are impersonated: authorization and admission see them as they would see real ones.
"""

from __future__ import annotations

import http
from collections.abc import Mapping
from typing import Any

import pytest

from tests.control_plane.api_server import Answer, APIServer, ControlPlane, wait_until
from tests.control_plane.objects import tuning

pytestmark = pytest.mark.control_plane

TUNINGS = {"apiGroups": ["vllmtuning.io"], "resources": ["vllmtunings"], "verbs": ["*"]}
PATCH_CHAT = {
    "apiGroups": ["apps"],
    "resources": ["deployments"],
    "resourceNames": ["chat"],
    "verbs": ["patch"],
}
CREATE_JOBS = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create"]}

MAY_NOT_PATCH = 'ask for "patch" on deployments.apps'
MAY_NOT_RUN = 'ask for "create" on jobs.batch'


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> APIServer:
    """Return the control plane with CRDs and the chart's policy, and a paused operator."""
    server = APIServer(control_plane)
    server.install_crds()
    server.install_chart("--set=operator.replicas=0")
    return server


@pytest.fixture
def people(server: APIServer, namespace: str) -> str:
    """Give four users of a namespace different rights; return the namespace."""
    users: Mapping[str, list[Mapping[str, Any]]] = {
        "owner": [TUNINGS, PATCH_CHAT, CREATE_JOBS],
        "no-patch": [TUNINGS, CREATE_JOBS],
        "no-jobs": [TUNINGS, PATCH_CHAT],
        "only-tunings": [TUNINGS],
    }
    items = []
    for user, rules in users.items():
        items.append({"kind": "Role", "metadata": {"name": user}, "rules": rules})
        items.append(
            {
                "kind": "RoleBinding",
                "metadata": {"name": user},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "Role",
                    "name": user,
                },
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
                ],
            }
        )
    for item in items:
        item["apiVersion"] = "rbac.authorization.k8s.io/v1"
        server.create(namespace, item)
    # The API server enforces a new policy, and knows new roles, a moment after it stored them.
    wait_until(lambda: MAY_NOT_PATCH in _try(server, namespace, "only-tunings").words)
    wait_until(lambda: _try(server, namespace, "owner").ok)
    return namespace


def _try(server: APIServer, namespace: str, user: str) -> Answer:
    return server.try_create(tuning(), user=user, namespace=namespace)


def _edit(server: APIServer, namespace: str, user: str, body: dict[str, Any]) -> Answer:
    return server.patch(namespace, "vt/chat", body, user=user)


@pytest.mark.parametrize(
    ("user", "words"),
    [("no-patch", MAY_NOT_PATCH), ("no-jobs", MAY_NOT_RUN), ("only-tunings", MAY_NOT_PATCH)],
)
def test_who_may_not_do_it_himself_may_not_ask_for_it(
    server: APIServer, people: str, user: str, words: str
) -> None:
    done = _try(server, people, user)

    assert not done.ok
    assert words in done.words
    assert user in done.words
    assert done.code == http.HTTPStatus.FORBIDDEN


def test_who_may_do_it_himself_may_ask_for_it(server: APIServer, people: str) -> None:
    done = _try(server, people, "owner")

    assert done.ok, done.words


def test_the_right_is_checked_for_the_named_deployment(server: APIServer, people: str) -> None:
    """``owner`` may patch Deployment chat by name, and no other one."""
    other = tuning(targetRef={"name": "payments"})

    done = server.try_create(other, user="owner", namespace=people)

    assert not done.ok
    assert "may not patch Deployment payments" in done.words


def test_rights_in_another_namespace_do_not_count(
    server: APIServer, people: str, control_plane: ControlPlane
) -> None:
    elsewhere = f"{people}-b"
    server.must("create", "namespace", elsewhere)
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "owner"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "view",
        },
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "owner"}],
    }
    server.create(elsewhere, body)

    done = server.try_create(tuning(), user="owner", namespace=elsewhere)

    server.must("delete", "namespace", elsewhere, "--wait=false")
    assert not done.ok


@pytest.mark.parametrize(
    "body",
    [
        {"spec": {"updatePolicy": {"mode": "Auto"}}},
        {"spec": {"suspend": True}},
        {"metadata": {"annotations": {"vllmtuning.io/approve": "abc"}}},
        {"metadata": {"annotations": {"vllmtuning.io/rerun": "1"}}},
    ],
    ids=["spec", "suspend", "approve", "rerun"],
)
def test_every_edit_that_asks_for_work_is_checked(
    server: APIServer, people: str, body: dict[str, Any]
) -> None:
    server.create(people, tuning())

    refused = _edit(server, people, "only-tunings", body)
    allowed = _edit(server, people, "owner", body)

    assert not refused.ok
    assert MAY_NOT_PATCH in refused.words
    assert allowed.ok, allowed.words


def test_taking_an_approval_back_is_checked_too(server: APIServer, people: str) -> None:
    approved = tuning()
    approved["metadata"] = {"name": "chat", "annotations": {"vllmtuning.io/approve": "abc"}}
    server.create(people, approved)
    body = {"metadata": {"annotations": {"vllmtuning.io/approve": None}}}

    assert not _edit(server, people, "only-tunings", body).ok
    assert _edit(server, people, "owner", body).ok


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"labels": {"team": "a"}}},
        {"metadata": {"annotations": {"note": "a"}}},
    ],
    ids=["label", "annotation"],
)
def test_edits_that_ask_for_nothing_are_nobodys_business(
    server: APIServer, people: str, body: dict[str, Any]
) -> None:
    server.create(people, tuning())

    done = _edit(server, people, "only-tunings", body)

    assert done.ok, done.words


def test_whoever_may_delete_tunings_may_delete_them(server: APIServer, people: str) -> None:
    """A policy that hindered clean-up would be worse than the one who asks for it."""
    server.create(people, tuning())

    assert server.delete(people, "vt/chat", user="only-tunings").ok


def test_the_operator_itself_writes_status_without_those_rights(
    server: APIServer, people: str
) -> None:
    """Status is another resource: the operator is no requester."""
    server.create(people, tuning())

    done = server.patch(
        people,
        "vt/chat",
        {"status": {"sla": "Met"}},
        subresource="status",
        user=server.service_account,
    )

    assert done.ok, done.words
    assert server.get(people, "vt/chat")["status"] == {"sla": "Met"}
