"""The benchmark Job of a target that has everything that may not come along, as readable YAML.

Regenerate with ``UPDATE_GOLDENS=1 pytest tests/unit/reconcile/test_job_golden.py`` and read the
difference.
"""

from __future__ import annotations

import os
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.reconcile.builders import NOW, a_deployment, a_tuning, observe
from vllm_tuning.reconcile.decide import decide
from vllm_tuning.reconcile.effects import CreateRun
from vllm_tuning.reconcile.entrypoint import Entrypoint, build_entrypoint
from vllm_tuning.reconcile.job import Deadlines
from vllm_tuning.reconcile.names import MAX_NAME, job_name, trial_name

MODULE = "vllm.entrypoints.openai.api_server"
GOLDENS = Path(__file__).resolve().parents[2] / "golden"


class _PlainDumper(yaml.SafeDumper):
    """YAML without anchors: a reader wants to see what stands where."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def build(target: dict[str, Any], tuning: dict[str, Any] | None = None, **observed: Any):
    decision = decide(observe(tuning, target=target, **observed), NOW)
    (effect,) = decision.effects
    assert isinstance(effect, CreateRun)
    return effect.job


def pod_of(target: dict[str, Any], **observed: Any) -> dict[str, Any]:
    return build(target, **observed)["spec"]["template"]["spec"]


def a_rich_target() -> dict[str, Any]:
    target = a_deployment(
        env=[
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}},
            {"name": "VLLM_CACHE_ROOT", "value": "/models/cache"},
        ],
        envFrom=[{"configMapRef": {"name": "shared"}}],
        ports=[{"name": "http", "containerPort": 8000, "hostPort": 8000}],
        livenessProbe={"httpGet": {"path": "/health", "port": "http"}},
        readinessProbe={"httpGet": {"path": "/health", "port": "http"}},
        startupProbe={"httpGet": {"path": "/health", "port": "http"}},
        lifecycle={"preStop": {"exec": {"command": ["sleep", "10"]}}},
        securityContext={"privileged": True, "runAsUser": 0},
        volumeMounts=[{"name": "models", "mountPath": "/models"}],
        fieldOfTomorrow={"copied": True},
    )
    spec = target["spec"]["template"]["spec"]
    spec |= {
        "serviceAccountName": "llama",
        "imagePullSecrets": [{"name": "pull"}],
        "runtimeClassName": "nvidia",
        "nodeSelector": {"pool": "gpu"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "priorityClassName": "production",
        "hostNetwork": True,
        "hostIPC": True,
        "hostPID": True,
        "terminationGracePeriodSeconds": 600,
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone"}],
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []},
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                    ]
                }
            },
        },
        "initContainers": [
            {
                "name": "tools",
                "image": "fetch:1",
                "command": ["fetch", "/models"],
                "volumeMounts": [{"name": "models", "mountPath": "/models"}],
            }
        ],
        "volumes": [
            {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
            {
                "name": "tokens",
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "api"}},
                        {"serviceAccountToken": {"path": "cloud", "audience": "sts"}},
                    ]
                },
            },
        ],
    }
    spec["containers"].insert(0, {"name": "logs", "image": "busybox"})
    return target


def a_running_pod() -> dict[str, Any]:
    return {
        "metadata": {"name": "llama-x"},
        "spec": {"nodeName": "gpu-1"},
        "status": {
            "containerStatuses": [
                {"name": "vllm", "imageID": f"docker.io/vllm/vllm-openai@sha256:{'a' * 64}"}
            ]
        },
    }


def test_the_job_of_a_rich_target():
    job = build(
        a_rich_target(),
        a_tuning(benchmark={"labels": {"kueue.x-k8s.io/queue-name": "tuning"}}),
        target_pods=(a_running_pod(),),
        target_nodes=(
            {"nvidia.com/gpu.product": "NVIDIA-H200", "nvidia.com/gpu.memory": "143771"},
        ),
    )
    text = yaml.dump(job, Dumper=_PlainDumper, sort_keys=False, width=100)
    golden = GOLDENS / "benchmark_job.yaml"
    if os.environ.get("UPDATE_GOLDENS"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


def test_nothing_of_the_targets_labels_priority_or_host_comes_along():
    target = a_rich_target()
    job = build(target)
    pod = job["spec"]["template"]
    assert not target["spec"]["selector"]["matchLabels"].items() & pod["metadata"]["labels"].items()
    assert pod["spec"]["priorityClassName"] == "benchmarks"
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert not pod["spec"].keys() & {"hostNetwork", "hostIPC", "hostPID"}
    text = yaml.safe_dump(pod)
    assert "privileged" not in text
    assert "hostPort" not in text
    assert "podAntiAffinity" not in text
    assert "path: api" not in text
    assert "path: cloud" in text


def test_building_a_job_leaves_the_target_as_it_was():
    target = a_rich_target()
    before = deepcopy(target)
    build(target, target_nodes=({"nvidia.com/gpu.product": "H200"},))
    assert target == before


def test_an_image_without_a_digest_to_pull_by_keeps_its_tag():
    pod = a_running_pod()
    pod["status"]["containerStatuses"][0]["imageID"] = f"sha256:{'a' * 64}"
    engine = pod_of(a_deployment(), target_pods=(pod,))["initContainers"][-1]
    assert engine["image"] == "vllm/vllm-openai:v0.20.0"


def test_shared_memory_of_the_host_becomes_memory_of_the_pod():
    target = a_deployment()
    target["spec"]["template"]["spec"]["hostIPC"] = True
    pod = pod_of(target)
    assert {"name": "vllm-tuning-shm", "emptyDir": {"medium": "Memory"}} in pod["volumes"]
    mounts = [m["mountPath"] for m in pod["initContainers"][-1]["volumeMounts"]]
    assert "/dev/shm" in mounts


def test_claim_templates_come_along():
    target = a_deployment()
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    target["spec"]["template"]["spec"]["resourceClaims"] = claims
    assert pod_of(target)["resourceClaims"] == claims


def test_the_bench_is_restricted_even_beside_a_root_engine():
    target = a_deployment()
    target["spec"]["template"]["spec"]["securityContext"] = {"runAsUser": 0}
    pod = pod_of(target)
    for container in (pod["containers"][0], pod["initContainers"][0]):
        assert container["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["runAsUser"] == 65532
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_jobs_clock_covers_the_wait_the_start_and_the_run():
    assert Deadlines(schedule=100, startup=50, run=1000).total == 1270


@pytest.mark.parametrize(
    ("container", "command"),
    [
        ({"command": ["vllm", "serve"], "args": ["m"]}, ["python3", "vllm", "serve"]),
        (
            {"command": ["/opt/py/bin/python3.12", "-m", MODULE]},
            ["/opt/py/bin/python3.12", "/opt/py/bin/python3.12", "-m", MODULE],
        ),
        ({"args": ["meta/llama", "--max-num-seqs", "4"]}, ["python3", "vllm", "serve"]),
        ({"args": ["serve", "meta/llama"]}, ["python3", "vllm"]),
        (
            {"args": ["--model=m"]},
            ["python3", "python3", "-m", MODULE],
        ),
        ({"args": ["--model", "m"]}, ["python3", "python3", "-m", MODULE]),
        ({"command": ["sh", "-c", "vllm serve m"]}, ["python3", "sh", "-c", "vllm serve m"]),
    ],
)
def test_the_launcher_stands_before_what_the_image_would_start(container, command):
    found = build_entrypoint(container)
    assert isinstance(found, Entrypoint)
    python, *rest = command
    if rest[0] == "python3":
        python = "python3"
    assert found.command == (python, "/tools/launcher.pyz", "--", *rest)
    assert found.args == tuple(container.get("args", ()))


def test_names_stay_within_a_label_and_apart():
    long = "a-tuning-with-a-very-long-name-that-somebody-chose-with-care-and-love"
    names = {job_name(long, "0123abcd", n) for n in (1, 2)}
    names |= {trial_name(long, "0123abcd", n) for n in (1, 2)}
    names.add(job_name(f"{long}2", "0123abcd", 1))
    assert len(names) == 5
    assert max(map(len, names)) <= MAX_NAME
