"""What the chart's ServiceAccount may do and what it may not, asked of a real API server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.control_plane.api_server import APIServer, ControlPlane
from vllm_tuning.api.permissions import PERMISSIONS, Permission, Scope

pytestmark = pytest.mark.control_plane

Question = tuple[str, str, str]
"""Verb, API group, resource (with ``/subresource``)."""

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")

EXPORTER_NAMESPACE = "kube-public"
"""Any that exists and is not served."""

ABOVE = (Scope.CLUSTER, Scope.POLICIES, Scope.ALL_NAMESPACES)
"""Granted on the whole cluster."""

NEVER: tuple[Question, ...] = (
    *((verb, "", "secrets") for verb in VERBS),
    *((verb, "", "serviceaccounts") for verb in ("create", "update", "patch", "impersonate")),
    ("create", "", "serviceaccounts/token"),
    ("create", "", "pods"),
    ("delete", "", "pods"),
    ("create", "", "pods/exec"),
    ("create", "", "pods/attach"),
    ("create", "", "pods/portforward"),
    ("create", "", "pods/eviction"),
    ("patch", "", "pods/ephemeralcontainers"),
    ("create", "apps", "deployments"),
    ("update", "apps", "deployments"),
    ("delete", "apps", "deployments"),
    ("patch", "apps", "deployments/scale"),
    ("patch", "apps", "deployments/status"),
    ("patch", "apps", "statefulsets"),
    ("patch", "apps", "daemonsets"),
    ("patch", "", "nodes"),
    ("create", "vllmtuning.io", "vllmslapolicies"),
    ("patch", "vllmtuning.io", "vllmslapolicies"),
    ("patch", "", "namespaces"),
    ("create", "", "namespaces"),
    ("delete", "", "namespaces"),
    ("patch", "vllmtuning.io", "vllmtunings"),
    ("update", "vllmtuning.io", "vllmtunings"),
    ("delete", "vllmtuning.io", "vllmtunings"),
    ("create", "rbac.authorization.k8s.io", "rolebindings"),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles"),
    ("bind", "rbac.authorization.k8s.io", "clusterroles"),
    ("patch", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("delete", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("patch", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
    ("create", "scheduling.k8s.io", "priorityclasses"),
)


def _questions(permissions: Iterable[Permission]) -> Iterator[Question]:
    for permission in permissions:
        for resource in permission.resources:
            for verb in permission.verbs:
                yield verb, permission.group, resource


def _granted(scope: Scope) -> list[Question]:
    return list(_questions(item for item in PERMISSIONS if item.scope is scope))


def _answers(
    server: APIServer, user: str, namespace: str | None, questions: Iterable[Question]
) -> dict[Question, bool]:
    """Ask all questions; ``namespace=None`` asks about the whole cluster."""
    answers = {}
    for verb, group, resource in questions:
        name, _, subresource = resource.partition("/")
        attributes: dict[str, Any] = {"verb": verb, "group": group, "resource": name}
        if subresource:
            attributes["subresource"] = subresource
        if namespace is not None:
            attributes["namespace"] = namespace
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": attributes},
        }
        answers[verb, group, resource] = server.create("", review)["status"]["allowed"]
    return answers


@pytest.fixture(scope="module")
def everywhere(control_plane: ControlPlane) -> APIServer:
    """Install the chart for all namespaces."""
    server = APIServer(control_plane)
    server.install_crds()
    server.install_chart("--set=operator.replicas=0")
    return server


@pytest.fixture
def in_one(control_plane: ControlPlane, namespace: str) -> Iterator[APIServer]:
    """Install the chart for one namespace only, beside the other release."""
    server = APIServer(control_plane, release="one")
    server.install_crds()
    server.install_chart(
        "--set=operator.replicas=0",
        "--set=scope.type=Namespaced",
        f"--set=scope.namespaces={{{namespace}}}",
        "--set=rbac.readNodes=false",
        "--set=rbac.policies=false",
        "--set=rbac.dcgmExporter=true",
        f"--set=dcgmExporter.namespace={EXPORTER_NAMESPACE}",
        "--set=admissionPolicy.create=false",
    )
    yield server
    server.uninstall_chart()


def test_everything_it_needs_is_granted(everywhere: APIServer, namespace: str) -> None:
    answers = _answers(
        everywhere, everywhere.service_account, namespace, _granted(Scope.SERVED)
    ) | _answers(
        everywhere,
        everywhere.service_account,
        None,
        [question for scope in ABOVE for question in _granted(scope)],
    )

    assert {question for question, allowed in answers.items() if not allowed} == set()


def test_its_lease_is_in_its_own_namespace_only(everywhere: APIServer, namespace: str) -> None:
    lease = _granted(Scope.OWN)

    own = _answers(everywhere, everywhere.service_account, everywhere.namespace, lease)
    other = _answers(everywhere, everywhere.service_account, namespace, lease)

    assert set(own.values()) == {True}
    assert set(other.values()) == {False}


def test_nothing_else_is_granted(everywhere: APIServer, namespace: str) -> None:
    answers = _answers(everywhere, everywhere.service_account, namespace, NEVER)

    assert {question for question, allowed in answers.items() if allowed} == set()


def test_every_other_verb_on_what_it_uses_is_refused(everywhere: APIServer, namespace: str) -> None:
    granted = set(_questions(PERMISSIONS))
    others = {
        (verb, group, resource)
        for _, group, resource in granted
        for verb in VERBS
        if (verb, group, resource) not in granted
    }

    answers = _answers(everywhere, everywhere.service_account, namespace, sorted(others))

    assert {question for question, allowed in answers.items() if allowed} == set()


def test_a_namespaced_install_ends_at_its_namespaces(in_one: APIServer, namespace: str) -> None:
    served = _granted(Scope.SERVED)
    whole_cluster = [question for scope in ABOVE for question in _granted(scope)]

    inside = _answers(in_one, in_one.service_account, namespace, served)
    outside = _answers(in_one, in_one.service_account, "default", served)
    above = _answers(in_one, in_one.service_account, None, [*served, *whole_cluster])
    exporters = _answers(
        in_one, in_one.service_account, EXPORTER_NAMESPACE, sorted({*_questions(PERMISSIONS)})
    )

    assert set(inside.values()) == {True}
    assert set(outside.values()) == {False}
    assert set(above.values()) == {False}
    assert {question for question, allowed in exporters.items() if allowed} == {
        ("list", "", "pods")
    }
