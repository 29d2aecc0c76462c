"""Bad input, each by its name: a condition with a reason, and a message that says what to do."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.unit.reconcile.builders import NOW, a_deployment, a_tuning, conditions, message, observe
from tests.unit.reconcile.world import World
from vllm_tuning.reconcile.decide import decide
from vllm_tuning.reconcile.effects import DeleteJob
from vllm_tuning.reconcile.observed import Rival
from vllm_tuning.reconcile.target import version_of_image


def with_containers(*containers):
    target = a_deployment()
    target["spec"]["template"]["spec"]["containers"] = list(containers)
    return target


def with_claim(name):
    target = a_deployment()
    claims = [{"name": "gpu", "resourceClaimName": name}]
    target["spec"]["template"]["spec"]["resourceClaims"] = claims
    return target


def with_args(*args, gpus=8):
    return a_deployment(args=["m", *args], resources={"limits": {"nvidia.com/gpu": gpus}})


def from_secret():
    source = {"secretKeyRef": {"name": "s", "key": "k"}}
    env = [{"name": "SEQS", "valueFrom": source}]
    return a_deployment(args=["m", "--max-num-seqs=$(SEQS)"], env=env)


def vllm(name, **fields):
    image = "vllm/vllm-openai:v0.20.0"
    return {"name": name, "image": image, "args": ["m", "--dtype=auto"], **fields}


@pytest.mark.parametrize(
    ("target", "reason", "words"),
    [
        (None, "TargetNotFound", "no Deployment llama in namespace serving"),
        (with_containers({"name": "web", "image": "nginx:1"}), "ContainerNotFound", "vllm serve"),
        (with_containers(vllm("a"), vllm("b")), "ContainerAmbiguous", "`a`, `b`"),
        (
            with_containers(vllm("a", args=["--dtype=auto"])),
            "EntrypointUnknown",
            "benchmark.command",
        ),
        (
            with_containers(vllm("a", image="vllm/vllm-openai:v0.9.2")),
            "UnsupportedEngine",
            "upgrade the image",
        ),
        (with_claim("production-gpu"), "UnsupportedPod", "resourceClaimTemplateName"),
        (
            with_args("--tensor-parallel-size=8", "--pipeline-parallel-size=2"),
            "UnsupportedPod",
            "tensor_parallel_size 8 times pipeline_parallel_size 2 takes 16 GPUs",
        ),
        (with_args("-tp", "8", "--nnodes=2"), "UnsupportedPod", "nnodes is 2"),
        (from_secret(), "UnsupportedFlags", "max_num_seqs comes from env[SEQS]"),
    ],
)
def test_a_target_that_cannot_be_measured(target, reason, words):
    decision = decide(observe(target=target), NOW)
    assert conditions(decision)["TargetResolved"] == ("False", reason)
    assert conditions(decision)["Ready"] == ("False", reason)
    assert conditions(decision)["Stalled"] == ("True", reason)
    assert words in message(decision, "TargetResolved")
    assert decision.effects == ()


def test_an_engine_that_fills_its_container_is_no_spread_one():
    neuron = a_deployment(
        args=["m", "-tp", "8"], resources={"limits": {"aws.amazon.com/neuron": 1}}
    )
    for target in (with_args("-tp", "4", "-dp", "2"), with_args("-tp", "8", gpus=0), neuron):
        assert conditions(decide(observe(target=target), NOW))["TargetResolved"][0] == "True"


def with_volume(*modes):
    target = a_deployment()
    volume = {"name": "model", "persistentVolumeClaim": {"claimName": "weights"}}
    target["spec"]["template"]["spec"]["volumes"] = [volume]
    return {"target": target, "volume_claims": {"weights": {"spec": {"accessModes": [*modes]}}}}


def test_a_volume_of_one_pod_is_refused_by_its_name():
    decision = decide(observe(**with_volume("ReadWriteOncePod")), NOW)
    assert conditions(decision)["TargetResolved"] == ("False", "UnsupportedPod")
    assert "PersistentVolumeClaim weights" in message(decision, "TargetResolved")


def test_a_volume_of_one_node_is_never_mounted_before_the_target_has_a_node():
    decision = decide(observe(**with_volume("ReadWriteOnce"), target_pods=()), NOW)
    assert conditions(decision)["TargetResolved"] == ("False", "TargetNotStable")
    assert "PersistentVolumeClaim weights" in message(decision, "TargetResolved")
    assert conditions(decision)["Stalled"][0] == "False"
    assert decision.look_again_at is not None
    assert decision.effects == ()


@pytest.mark.parametrize(
    ("modes", "pinned"),
    [(["ReadWriteOnce"], True), (["ReadWriteOnce", "ReadOnlyMany"], False), ([], False)],
)
def test_a_volume_of_one_node_is_shared_on_that_node(modes, pinned):
    pod = {"metadata": {}, "spec": {"nodeName": "gpu-7"}}
    world = World(observe(**with_volume(*modes), target_pods=(pod,)))
    world.perform(decide(world.observed, NOW))
    affinity = world.job["spec"]["template"]["spec"].get("affinity")
    only = {"key": "metadata.name", "operator": "In", "values": ["gpu-7"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [only]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    assert affinity == ({"nodeAffinity": required} if pinned else None)
    if pinned:
        unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/9 nodes"}
        world.observed = replace(world.observed, pods=({**world.pod(), "status": {}},))
        bound = world.observed.pods[0]
        bound["spec"] = {"affinity": affinity}
        bound["status"] = {"conditions": [unscheduled]}
        waiting = message(decide(world.observed, NOW), "Progressing")
        assert "0/9 nodes; the target's volume is ReadWriteOnce" in waiting
        assert "gpu-7" in waiting


def test_of_different_gpus_the_smallest_is_measured_and_nothing_is_applied_by_itself():
    nodes = tuple(
        {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": memory}
        for product, memory in (("H200", "143771"), ("A100-40", "40960"), ("H200", "143771"))
    )
    world = World(observe(target_nodes=nodes))
    decision = decide(world.observed, NOW)
    world.perform(decision)
    assert decision.status.target.gpu_product == "A100-40"
    assert conditions(decision)["Representative"] == ("False", "NotRepresentative")
    assert "A100-40, H200" in message(decision, "Representative")
    affinity = world.job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    assert "A100-40" in str(affinity)
    assert "H200" not in str(affinity)


def test_the_right_one_of_two_containers_is_taken_by_name():
    target = with_containers(vllm("a"), vllm("b"))
    tuning = a_tuning()
    tuning["spec"]["targetRef"]["containerName"] = "b"
    decision = decide(observe(tuning, target=target), NOW)
    assert decision.status.target is not None
    assert decision.status.target.container == "b"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"slos": None}, "Invalid"),
        ({"profile": "Custom", "slos": None}, "Invalid"),
        ({"parameters": [{"name": "max_tokens"}]}, "UnsupportedVersion"),
        ({"profile": "Turbo"}, "UnsupportedVersion"),
    ],
)
def test_a_wish_that_the_api_server_should_have_refused(spec, reason):
    """The schema refuses these; a CRD of another version may not have."""
    decision = decide(observe(a_tuning(**spec)), NOW)
    assert conditions(decision)["Accepted"] == ("False", reason)
    assert conditions(decision)["Ready"] == ("False", reason)
    assert decision.effects == ()
    assert [a.reason for a in decision.announcements] == ["InvalidSpec"]


def test_a_wish_is_complained_about_once():
    world = World(observe(a_tuning(slos=None)))
    world.perform(decide(world.observed, NOW))
    assert decide(world.observed, NOW).announcements == ()


@pytest.mark.parametrize(("minutes", "wins"), [(-5, False), (5, True)])
def test_of_two_tunings_of_a_target_the_older_one_works(minutes, wins):
    rival = Rival("other", "other-uid", NOW + timedelta(minutes=minutes))
    decision = decide(observe(rivals=(rival,)), NOW)
    assert conditions(decision)["Accepted"] == (
        ("True", "Accepted") if wins else ("False", "Conflicted")
    )
    assert bool(decision.effects) is wins


def test_of_two_tunings_of_the_same_second_the_name_decides():
    created = NOW - timedelta(minutes=1)
    for name, wins in (("aaa", False), ("zzz", True)):
        decision = decide(observe(rivals=(Rival(name, "u", created),)), NOW)
        assert bool(decision.effects) is wins


def test_labels_that_a_service_selects_are_refused():
    decision = decide(observe(selecting_service="llama"), NOW)
    assert conditions(decision)["Accepted"] == ("False", "LabelsSelected")
    assert decision.effects == ()


def test_a_target_that_disappears_stops_the_run_and_its_return_starts_one():
    world = World(observe())
    world.perform(decide(world.observed, NOW))
    target = world.observed.target
    world.observed = observe(dict(world.observed.tuning), target=None, jobs=world.observed.jobs)
    gone = decide(world.observed, NOW)
    assert [type(e) for e in gone.effects] == [DeleteJob]
    assert [a.reason for a in gone.announcements] == ["TargetLost"]
    world.perform(gone)
    world.observed = observe(dict(world.observed.tuning), target=target)
    back = decide(world.observed, NOW)
    assert conditions(back)["TargetResolved"] == ("True", "Resolved")


def test_a_tuning_that_is_being_deleted_is_left_to_the_garbage_collector():
    tuning = a_tuning()
    tuning["metadata"]["deletionTimestamp"] = "2026-11-29T12:00:00Z"
    decision = decide(observe(tuning), NOW)
    assert decision.effects == ()
    assert decision.announcements == ()


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.11.0", "0.11.0"),
        ("registry.example/team/vllm:0.20.1-cu129", "0.20.1"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai:2025-05-05-v1", None),
        ("host:5000/vllm", None),
        ("rocm/vllm:rocm6.2_vllm_0.6.4", "0.6.4"),
        ("vllm/vllm-openai@sha256:" + "0" * 64, None),
    ],
)
def test_the_version_stands_in_the_tag_or_is_unknown(image, version):
    assert version_of_image(image) == version
