"""Edge cases of what a target needs: its devices, its volumes, its traffic."""

from __future__ import annotations

from typing import Any

import pytest

from tests.control_plane.fleet import ARGS, NEW_ARGS, Tenant, a_server, given
from tests.control_plane.targets import asleep, check_refused, container, read
from tests.operator_process import a_tuning
from tests.rest import path_of

pytestmark = pytest.mark.control_plane

AUTO = {"mode": "Auto"}
GPU = "nvidia.com/gpu.product"


def on_nodes(user: Tenant, **labels: dict[str, str]) -> None:
    """Make nodes that no kubelet stands behind: the target's pods are bound to them in turn."""
    for name, own in labels.items():
        metadata = {"name": f"{name}-{user.namespace}", "labels": own}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        user.must("POST", "api/v1/nodes", body)
    bound: dict[str, str] = {}

    def place(pod: str) -> str | None:
        if not pod.startswith("server-"):
            return None
        names = sorted(labels)
        return bound.setdefault(pod, f"{names[len(bound) % len(names)]}-{user.namespace}")

    user.kubelet.places = place


def forget_nodes(user: Tenant, *names: str) -> None:
    for name in names:
        user.must("DELETE", f"api/v1/nodes/{name}-{user.namespace}")


def bench_spec(user: Tenant) -> dict[str, Any]:
    job = user.wait(lambda: user.items("jobs"), "a Job")[0]
    spec: dict[str, Any] = job["spec"]["template"]["spec"]
    return spec


def with_claims(user: Tenant) -> None:
    user.kubelet.hold_after = 2
    on_nodes(user, a={})
    server = a_server("server")
    for name, mode, target in (
        ("weights", "ReadWriteOnce", server),
        ("private", "ReadWriteOncePod", alone := asleep("alone")),
        ("cold", "ReadWriteOnce", cold := asleep("cold")),
    ):
        storage = {"requests": {"storage": "1Gi"}}
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}}
        claim = body | {"spec": {"accessModes": [mode], "resources": storage}}
        user.must("POST", path_of("persistentvolumeclaims", user.namespace), claim)
        volumes = [{"name": "model", "persistentVolumeClaim": {"claimName": name}}]
        target["spec"]["template"]["spec"]["volumes"] = volumes
    user.apply(server, alone, cold, *(a_tuning(n) for n in ("server", "alone", "cold")))


@given(with_claims)
def test_edge_13_a_volume_of_one_node_is_shared_there_and_one_of_one_pod_refused(
    user: Tenant,
) -> None:
    """The node is only an object: where the pod would go is what matters here."""
    affinity = bench_spec(user)["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (pin,) = term["matchFields"]
    assert (pin["key"], pin["values"]) == ("metadata.name", [f"a-{user.namespace}"])
    check_refused(user, "alone", "UnsupportedPod", "PersistentVolumeClaim private")
    check_refused(user, "cold", "TargetNotStable", "PersistentVolumeClaim cold")
    assert user.conditions("cold")["Stalled"][0] == "False"
    assert {j["metadata"]["labels"]["vllmtuning.io/tuning"] for j in user.items("jobs")} == {
        "server"
    }
    forget_nodes(user, "a")


def devices(user: Tenant) -> None:
    parallel = [*ARGS, "--tensor-parallel-size=4"]
    spread = [*ARGS, "--tensor-parallel-size=8", "--pipeline-parallel-size=2"]
    gpus = {"limits": {"nvidia.com/gpu": "8"}}
    claim = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
    four = a_server("four", args=parallel, resources={"limits": {"nvidia.com/gpu": "4"}})
    slice_ = a_server("slice", resources={"limits": {"nvidia.com/mig-1g.10gb": "1"}})
    drawn = a_server("drawn", resources={"claims": [{"name": "gpu"}]})
    for server in (four, slice_, drawn):
        server["spec"]["replicas"] = 0
    drawn["spec"]["template"]["spec"]["resourceClaims"] = [claim]
    own = asleep("own", resourceClaims=[{"name": "gpu", "resourceClaimName": "production"}])
    read(user, own, asleep("spread", container(args=spread, resources=gpus)))
    user.apply(four, slice_, drawn, *(a_tuning(n) for n in ("four", "slice", "drawn")))


@given(devices)
def test_edge_27_the_benchmark_asks_for_the_same_devices(user: Tenant) -> None:
    """MIG and DRA have no driver here: what counts is what the benchmark pod asks for."""

    def engine(name: str) -> dict[str, Any]:
        ours = {"labelSelector": f"vllmtuning.io/tuning={name}"}
        job = user.wait(lambda: user.items("jobs", **ours), f"a Job for {name}")[0]
        spec: dict[str, Any] = job["spec"]["template"]["spec"]
        if name == "drawn":
            assert spec["resourceClaims"][0]["resourceClaimTemplateName"] == "one-gpu"
        resources: dict[str, Any] = spec["initContainers"][-1]["resources"]
        return resources

    assert engine("four")["limits"] == {"nvidia.com/gpu": "4"}
    assert engine("slice")["limits"] == {"nvidia.com/mig-1g.10gb": "1"}
    assert engine("drawn")["claims"] == [{"name": "gpu"}]
    assert user.get("vllmtunings", "four")["status"]["target"]["gpuCount"] == 4
    check_refused(user, "own", "UnsupportedPod", "resourceClaimTemplateName")
    check_refused(user, "spread", "UnsupportedPod", "takes 16 GPUs, and its container has 8")


LORA = ["--enable-lora", "--lora-modules", "sql=/adapters/sql"]


def adapted(user: Tenant) -> None:
    server = a_server("llama", args=[*ARGS, *LORA])
    user.apply(server, a_tuning("llama", updatePolicy=AUTO))


@given(adapted)
def test_edge_28_what_random_tokens_do_not_stand_for_is_recommended_and_not_applied(
    user: Tenant,
) -> None:
    words = user.wait_for("llama", "Applied", "False", "NotRepresentative")
    assert "LoRA adapters" in words
    assert user.conditions("llama")["Representative"][0] == "False"
    engine = user.items("jobs")[0]["spec"]["template"]["spec"]["initContainers"][-1]
    assert engine["args"][-len(LORA) :] == LORA  # kept as they are, and part of the question
    before = user.get("vllmtunings", "llama")["status"]["run"]["fingerprint"]
    user.write_args("llama", [*ARGS, *LORA, "other=/adapters/other"])
    user.wait(
        lambda: user.get("vllmtunings", "llama")["status"]["run"]["fingerprint"] != before,
        "another question",
    )
    assert user.patches("llama") == 0


def test_edge_30_of_different_gpus_the_smallest_is_measured(user: Tenant) -> None:
    """The nodes are objects with the labels of GPU feature discovery."""
    on_nodes(
        user,
        a={GPU: "NVIDIA-H200", "nvidia.com/gpu.memory": "143771"},
        b={GPU: "NVIDIA-A100-40GB", "nvidia.com/gpu.memory": "40960"},
    )
    user.apply(a_server("server", replicas=2))
    user.wait(
        lambda: user.get("deployments", "server").get("status", {}).get("availableReplicas") == 2,
        "two pods on two nodes",
    )
    user.apply(a_tuning("server", updatePolicy=AUTO))
    words = user.wait_for("server", "Applied", "False", "NotRepresentative")
    assert "NVIDIA-A100-40GB, NVIDIA-H200" in words
    assert "NVIDIA-A100-40GB" in str(bench_spec(user)["affinity"])
    assert "NVIDIA-H200" not in str(bench_spec(user)["affinity"])
    product = user.get("vllmtunings", "server")["status"]["target"]["gpuProduct"]
    assert product == "NVIDIA-A100-40GB"
    assert user.args_of("server") == ARGS != NEW_ARGS
    forget_nodes(user, "a", "b")
