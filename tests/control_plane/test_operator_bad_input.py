"""Bad input on a real API server, seen as a user sees it: the condition, its reason, its words."""

from __future__ import annotations

import pytest

from tests.operator_process import Operator, a_target, a_tuning
from tests.played_node import NO_IMAGE
from tests.user import User

pytestmark = pytest.mark.control_plane


def deployment(name: str, *containers: dict[str, object]) -> dict[str, object]:
    target = a_target(name, NO_IMAGE)
    target["spec"]["replicas"] = 0
    if containers:
        target["spec"]["template"]["spec"]["containers"] = list(containers)
    return target


def test_each_target_that_cannot_be_measured_is_told_by_its_reason(operator: Operator) -> None:
    vllm = {"image": "vllm/vllm-openai:v0.20.0", "args": ["m", "--dtype=auto"]}
    operator.apply(
        deployment("web", {"name": "web", "image": "nginx:1"}),
        deployment("two", {"name": "a", **vllm}, {"name": "b", **vllm}),
        deployment("odd", {"name": "a", "image": vllm["image"], "args": ["--dtype=auto"]}),
        deployment("old", {"name": "a", **vllm, "image": "vllm/vllm-openai:v0.9.1"}),
        *(a_tuning(name) for name in ("gone", "web", "two", "odd", "old")),
    )
    for name, reason, words in (
        ("gone", "TargetNotFound", "create it"),
        ("web", "ContainerNotFound", "vllm serve"),
        ("two", "ContainerAmbiguous", "name the one to use"),
        ("odd", "EntrypointUnknown", "benchmark.command"),
        ("old", "UnsupportedEngine", "upgrade the image"),
    ):
        assert words in operator.wait_for(name, "TargetResolved", "False", reason)
        assert operator.conditions(name)["Ready"][:2] == ("False", reason)
        assert operator.conditions(name)["Stalled"][:2] == ("True", reason)
    assert operator.items("jobs") == []

    # the target appears: the tuning goes on by itself
    operator.apply(deployment("gone"))
    operator.wait_for("gone", "TargetResolved", "True", "Resolved")
    operator.wait(lambda: operator.items("jobs"), "a Job")


def test_labels_that_a_service_selects_are_refused(operator: Operator) -> None:
    operator.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "chat"},
            "spec": {"clusterIP": "None", "selector": {"team": "chat"}},
        },
        deployment("llama"),
        a_tuning("llama", benchmark={"labels": {"team": "chat"}}),
    )
    words = operator.wait_for("llama", "Accepted", "False", "LabelsSelected")
    assert "Service chat" in words
    assert operator.items("jobs") == []


def test_edge_35_a_tuning_can_be_deleted_while_the_operator_is_dead(operator: Operator) -> None:
    operator.apply(deployment("llama"), a_tuning("llama"))
    operator.wait(lambda: operator.items("jobs"), "a Job")
    operator.kill()
    operator.kubectl("delete", "vt/llama", "--timeout=10s")

    user = User(operator.cluster, operator.namespace)  # the operator's own wait starts it again
    for kind in ("jobs", "pods", "configmaps"):
        user.wait(lambda kind=kind: not named(user, kind, "llama-"), f"{kind} to go")
    assert "finalizers" not in operator.get("deployments", "llama")["metadata"]


def named(user: User, kind: str, prefix: str) -> list[str]:
    names = (body["metadata"]["name"] for body in user.items(kind))
    return [name for name in names if name.startswith(prefix)]


def test_watching_leaves_no_trace_on_what_is_watched(operator: Operator) -> None:
    operator.apply(deployment("llama"), a_tuning("llama"))
    operator.wait(lambda: operator.items("jobs"), "a Job")
    for body in (
        *operator.items("deployments"),
        *operator.items("vllmtunings"),
        *operator.items("jobs"),
    ):
        text = str(body["metadata"].get("annotations")) + str(body["metadata"].get("finalizers"))
        assert "kopf" not in text


def test_a_successor_takes_over_from_a_dead_holder_of_the_lease(operator: Operator) -> None:
    def holder() -> str:
        leases = operator.items("leases")
        return leases[0]["spec"]["holderIdentity"] if leases else ""

    first = operator.wait(holder, "the lease")
    operator.kill()
    operator.start(wait_for_lease=True)
    operator.wait(lambda: holder() != first, "the successor")
