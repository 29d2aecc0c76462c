"""Edge cases of the world around a run: policies, other schemas, meshes, nodes, other tunings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.control_plane.fleet import ARGS, Tenant, a_server, given
from tests.control_plane.held import OURS, held, wait_for_trials
from tests.control_plane.objects import concerning
from tests.operator_process import a_tuning
from tests.rest import JSON_PATCH

pytestmark = pytest.mark.control_plane

POLICIES = "apis/vllmtuning.io/v1alpha1/vllmslapolicies"
CRD = "apis/apiextensions.k8s.io/v1/customresourcedefinitions/vllmtunings.vllmtuning.io"
ADMISSION = "apis/admissionregistration.k8s.io/v1"


def recommend(user: Tenant) -> None:
    user.apply(a_server(), a_tuning("llama"))


def rivals(user: Tenant) -> None:
    """Creation times have a resolution of a second, and then the name decides."""
    user.kubelet.hold_after = 1
    user.apply(a_server(), a_tuning("first", "llama"))
    user.wait_for("first", "Accepted", "True")
    user.apply(a_tuning("second", "llama"))


@given(rivals)
def test_edge_14_the_older_of_two_tunings_works_and_the_other_takes_over(user: Tenant) -> None:
    assert "first" in user.wait_for("second", "Accepted", "False", "Conflicted")
    assert len(user.items("jobs")) == 1
    user.delete("vllmtunings", "first")
    user.wait_for("second", "Accepted", "True")


@given(lambda user: held(user, updatePolicy={"mode": "Auto"}))
def test_edge_32_a_policy_that_is_tightened_during_a_run_holds_for_its_result(
    user: Tenant,
) -> None:
    wait_for_trials(user)
    policy = concerning(user.namespace, overrides={"maxMode": "Recommend"})
    user.must("POST", POLICIES, policy)
    try:
        user.wait_for("llama", "PolicyCompliant", "True", "NarrowedByPolicies")
        user.kubelet.hold_after = None
        user.wait_for("llama", "Succeeded", "True", "RecommendOnly")
        assert len(user.kubelet.specs) == 1  # the run went on
        assert user.args_of("llama") == ARGS
        assert user.patches("llama") == 0
    finally:
        user.must("DELETE", f"{POLICIES}/{user.namespace}")


def test_edge_33_a_wish_of_a_newer_schema_is_not_accepted_and_lost_fields_are_noticed(
    user: Tenant,
) -> None:
    """The cluster's CRD is made newer (a profile more) and older (a field of the status less) than
    the operator, and itself again."""
    schema = "/spec/versions/0/schema/openAPIV3Schema/properties"
    profiles, usage = (
        f"{schema}/spec/properties/profile/enum",
        f"{schema}/status/properties/usage/properties/gpuSeconds",
    )
    crd = user.must("GET", CRD)
    properties = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    lost = properties["status"]["properties"]["usage"]["properties"]["gpuSeconds"]
    known = properties["spec"]["properties"]["profile"]["enum"]
    changed = [
        {"op": "add", "path": f"{profiles}/-", "value": "Agents"},
        {"op": "remove", "path": usage},
    ]
    user.must("PATCH", CRD, changed, JSON_PATCH)
    try:
        newer = a_tuning("newer", "llama", profile="Agents")
        place = f"apis/vllmtuning.io/v1alpha1/namespaces/{user.namespace}/vllmtunings"
        user.wait(lambda: user.rest.request("POST", place, newer)[0] == 201, "the newer schema")
        words = user.wait_for("newer", "Accepted", "False", "UnsupportedVersion")
        assert "upgrade the operator" in words
        assert user.conditions("newer")["Stalled"][0] == "True"

        user.apply(a_server("other"), a_tuning("other"))
        user.wait_for("other", "Succeeded", "True", "RecommendOnly")
        user.wait(
            lambda: "status.usage.gpuSeconds" in user.fleet.operator.log, "the loss to be told"
        )
        user.fleet.check()
    finally:
        restored = [
            {"op": "replace", "path": profiles, "value": known},
            {"op": "add", "path": usage, "value": lost},
        ]
        user.must("PATCH", CRD, restored, JSON_PATCH)


def forgetful(user: Tenant) -> None:
    user.apply(a_server(), a_tuning("llama", historyLimit=0))


@given(forgetful)
def test_edge_37_of_many_runs_only_the_last_keeps_its_trials(user: Tenant) -> None:
    user.wait_for("llama", "Succeeded", "True", "RecommendOnly")
    first = user.get("vllmtunings", "llama")["status"]["run"]["id"]
    user.annotate("vllmtunings", "llama", "vllmtuning.io/rerun", "1")

    def forgotten() -> bool:
        runs = {trial["spec"]["runID"] for trial in user.items("vllmtrials")}
        return bool(runs) and first not in runs

    user.wait(forgotten, "the first run's trials to go")
    user.wait(
        lambda: len(user.get("vllmtunings", "llama")["status"]["history"]) == 2, "the second end"
    )
    user.wait_for("llama", "Succeeded", "True", "RecommendOnly")
    user.wait(
        lambda: all(j["spec"].get("ttlSecondsAfterFinished") for j in user.items("jobs")),
        "every Job to get its end",
    )


@given(recommend)
def test_edge_38_no_prometheus_and_no_dcgm_are_needed(user: Tenant) -> None:
    """Neither is in this cluster, and the node is not known: the GPU is left open."""
    user.wait_for("llama", "Succeeded", "True", "RecommendOnly")
    status = user.get("vllmtunings", "llama")["status"]
    assert "gpuProduct" not in status["target"]
    assert status["sla"] == "Met"
    assert all("gpuProduct" not in t["status"] for t in user.items("vllmtrials"))


def meshed(user: Tenant) -> None:
    """Two injectors: one that asks for the opt-out, as Istio's does, and one that does not."""
    inject(user, "istio", POLITE)
    inject(user, "rude", "true")


POLITE = (
    "!('sidecar.istio.io/inject' in object.metadata.labels) || "
    "object.metadata.labels['sidecar.istio.io/inject'] != 'false'"
)


def inject(user: Tenant, name: str, condition: str) -> None:
    """Have the API server add a container to every pod of the namespace."""
    unique = f"{name}-{user.namespace}"
    proxy = f'Object.spec.containers{{name: "{name}-proxy", image: "{name}/proxy:1"}}'
    expression = f"Object{{spec: Object.spec{{containers: [{proxy}]}}}}"
    pods = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    only = {"matchLabels": {"kubernetes.io/metadata.name": user.namespace}}
    meta = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": unique}}
    policy = {
        "matchConstraints": {"namespaceSelector": only, "resourceRules": [pods]},
        "matchConditions": [{"name": "wanted", "expression": condition}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
        ],
    }
    user.must(
        "POST",
        f"{ADMISSION}/mutatingadmissionpolicies",
        meta | {"kind": "MutatingAdmissionPolicy", "spec": policy},
    )
    user.must(
        "POST",
        f"{ADMISSION}/mutatingadmissionpolicybindings",
        meta | {"kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": unique}},
    )


def names_of(pod: dict[str, Any]) -> set[str]:
    return {c["name"] for c in pod["spec"]["containers"]}


@given(meshed)
def test_edge_39_a_proxy_in_the_benchmark_pod_is_kept_out_or_borne(user: Tenant) -> None:
    """No mesh is here; what one does is: the API server itself adds containers to pods."""
    path = f"api/v1/namespaces/{user.namespace}/pods"
    trial = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trial", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }

    def injected() -> bool:
        code, pod = user.rest.request("POST", path, trial, dryRun="All")
        return bool(code == 201 and len(names_of(pod)) == 3)

    user.wait(injected, "both injectors to be at work")
    held(user)
    wait_for_trials(user)
    (pod,) = user.items("pods", **OURS)
    assert names_of(pod) == {"bench", "rude-proxy"}
    assert pod["metadata"]["annotations"]["linkerd.io/inject"] == "disabled"
    assert pod["metadata"]["labels"]["istio.io/dataplane-mode"] == "none"
    (server,) = user.items("pods", labelSelector="app=llama")
    assert names_of(server) == {"vllm", "istio-proxy", "rude-proxy"}

    user.kubelet.hold_after = None  # the proxy that came in all the same never ends
    user.wait_for("llama", "Succeeded", "True", "RecommendOnly")
    assert user.args_of("llama") == ARGS
    for plural in ("mutatingadmissionpolicybindings", "mutatingadmissionpolicies"):
        for name in ("istio", "rude"):
            user.must("DELETE", f"{ADMISSION}/{plural}/{name}-{user.namespace}")


@given(held)
def test_edge_40_a_node_that_goes_takes_nothing_that_was_measured(user: Tenant) -> None:
    """No node can go here; what the kubelet of a spot node writes in its last seconds does."""
    wait_for_trials(user)
    (pod,) = user.items("pods", **OURS)
    annotations = pod["metadata"]["annotations"]
    assert annotations["karpenter.sh/do-not-disrupt"] == "true"
    assert annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    words = "Pod was terminated in response to imminent node shutdown."
    user.kubelet.lose(pod, "TerminationByKubelet", words)
    user.kubelet.hold_after = None
    user.wait_for("llama", "Succeeded", "True", "RecommendOnly")
    assert [spec.attempt for spec in user.kubelet.specs] == [1, 2]
    assert len(user.kubelet.specs[1].previous) == 3
    assert len(user.events("RunPreempted")) == 1
    assert user.args_of("llama") == ARGS
