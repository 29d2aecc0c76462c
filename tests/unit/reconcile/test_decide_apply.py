"""Applying, step by step, with a crash after every step; and everything that forbids it."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace

import pytest

from tests.unit.reconcile.bench_events import a_whole_run, run_ended, run_started
from tests.unit.reconcile.builders import a_deployment, a_tuning, conditions, message, observe
from tests.unit.reconcile.world import World, step
from vllm_tuning.reconcile.decide import decide
from vllm_tuning.reconcile.effects import About, PatchTarget
from vllm_tuning.tuning.model import Limits

AUTO = {"updatePolicy": {"mode": "Auto"}}
NEW_ARGS = [
    "meta-llama/Llama-3.1-8B-Instruct",
    "--max-num-seqs=64",
    "--max-num-batched-tokens=4096",
]
GOOD_LOG = "INFO non-default args: {'max_num_seqs': 64, 'max_num_batched_tokens': 4096}"


def recommended(spec=AUTO, target=None, **ending) -> World:
    """A world whose run has just been answered; the status is stored, nothing is applied."""
    world = World(observe(a_tuning(**spec), target=target or a_deployment()))
    step(world)
    events = a_whole_run() if not ending else (run_started(), run_ended(1, **ending))
    world.says(*events, complete=True)
    world.finish_job("Complete")
    return world


def args_of(world: World) -> list[str]:
    return world.observed.target["spec"]["template"]["spec"]["containers"][0]["args"]


def patched() -> World:
    world = recommended()
    step(world)  # answer and write-ahead
    step(world)  # patch
    assert len(world.patches) == 1
    return world


def test_auto_writes_ahead_then_patches_then_follows_then_is_applied():
    world = recommended()
    ahead = step(world)
    assert not any(isinstance(e, PatchTarget) for e in ahead.effects)
    assert ahead.status.applied is not None
    assert ahead.status.applied.state == "RollingOut"

    patch = step(world)
    assert any(isinstance(e, PatchTarget) for e in patch.effects)
    assert args_of(world) == NEW_ARGS
    assert {a.about for a in patch.announcements if a.reason == "Applying"} == set(About)

    rolling = step(world, 5)
    assert conditions(rolling)["Applied"] == ("False", "RollingOut")
    assert conditions(rolling)["Succeeded"][0] == "Unknown"

    world.roll_out(log=GOOD_LOG)
    done = step(world, 60)
    assert conditions(done)["Applied"] == ("True", "RolledOut")
    assert conditions(done)["Succeeded"] == ("True", "RolledOut")
    assert "start log shows the new flags" in message(done, "Applied")

    rest = step(world, 60)
    assert rest.effects == ()
    assert rest.announcements == ()
    assert len(world.patches) == 1


def guards_of(operations):
    return [(o["path"], o["value"]) for o in operations if o["op"] == "test"]


def test_the_patch_tests_uid_version_and_name():
    world = patched()
    assert guards_of(world.patches[0]) == [
        ("/metadata/uid", "target-uid"),
        ("/metadata/resourceVersion", "7"),
        ("/spec/template/spec/containers/0/name", "vllm"),
    ]
    assert not any("replicas" in o["path"] for o in world.patches[0])


def test_the_patch_that_is_shown_to_people_tests_the_whole_old_list():
    world = recommended()
    patch = json.loads(step(world).status.recommendation.patch)
    assert guards_of(patch) == [
        ("/metadata/uid", "target-uid"),
        ("/spec/template/spec/containers/0/name", "vllm"),
        (
            "/spec/template/spec/containers/0/args",
            a_deployment()["spec"]["template"]["spec"]["containers"][0]["args"],
        ),
    ]


def test_killed_between_patch_and_status_nothing_is_patched_twice():
    world = recommended()
    step(world)
    world.perform(decide(world.observed, world.now), status=False)  # patched, then killed
    again = step(world)
    assert not any(isinstance(e, PatchTarget) for e in again.effects)
    world.roll_out(log=GOOD_LOG)
    assert conditions(step(world))["Applied"] == ("True", "RolledOut")
    assert len(world.patches) == 1


def test_killed_between_write_ahead_and_patch_it_is_patched_once():
    world = recommended()
    step(world)
    again = step(world, 600)
    assert any(isinstance(e, PatchTarget) for e in again.effects)
    assert not any(isinstance(e, PatchTarget) for e in step(world, 5).effects)


@pytest.mark.parametrize("how", ["crash", "deadline", "other flags"])
def test_a_failed_roll_out_is_restored_and_never_tried_again(how):
    world = patched()
    if how == "crash":
        world.roll_out(ready=False, restarts=2)
        failed = step(world, 30)
    elif how == "deadline":
        world.roll_out(ready=False)
        failed = step(world, 301)
    else:
        world.roll_out(log=GOOD_LOG.replace("64", "256"))
        failed = step(world, 30)
    assert conditions(failed)["Applied"] == ("False", "Restoring")

    step(world)
    assert args_of(world) == a_deployment()["spec"]["template"]["spec"]["containers"][0]["args"]
    world.roll_out()
    back = step(world, 30)
    assert conditions(back)["Applied"] == ("False", "RolledBack")
    assert conditions(back)["Succeeded"][0] == "False"
    assert back.status.rejected
    for _ in range(3):
        assert step(world, 60).effects == ()
    assert len(world.patches) == 2


def test_killed_between_restore_and_status_nothing_is_restored_twice():
    world = patched()
    world.roll_out(ready=False, restarts=2)
    step(world)
    world.perform(decide(world.observed, world.now), status=False)
    assert len(world.patches) == 2
    step(world)
    world.roll_out()
    assert conditions(step(world))["Applied"] == ("False", "RolledBack")
    assert len(world.patches) == 2


def edit_args(world: World, args: list[str]) -> None:
    target = deepcopy(dict(world.observed.target))
    target["spec"]["template"]["spec"]["containers"][0]["args"] = args
    target["metadata"]["generation"] += 1
    world.observed = replace(world.observed, target=target)


def test_what_somebody_changes_after_us_is_left_alone():
    world = patched()
    world.roll_out(log=GOOD_LOG)
    step(world)
    edit_args(world, [*NEW_ARGS[:1], "--max-num-seqs=32", "--max-num-batched-tokens=4096"])
    drifted = step(world, 60)
    assert conditions(drifted)["Applied"] == ("False", "Drifted")
    assert drifted.effects == ()
    assert [a.reason for a in drifted.announcements] == ["DriftDetected"]
    assert step(world, 60).announcements == ()


def test_what_somebody_changes_while_we_roll_out_is_left_alone():
    world = patched()
    edit_args(world, [*NEW_ARGS[:1], "--max-num-seqs=32", "--max-num-batched-tokens=4096"])
    for _ in range(3):
        assert step(world, 5).effects == ()
    assert len(world.patches) == 1


def test_a_target_that_was_changed_before_the_patch_is_patched_from_what_it_is_now():
    world = recommended()
    step(world)
    edit_args(world, [*NEW_ARGS[:1], "--max-num-seqs=5", "--max-num-batched-tokens=2048"])
    assert conditions(step(world))["Applied"] == ("False", "TargetChanged")
    world.roll_out()
    step(world)
    step(world)
    assert args_of(world) == NEW_ARGS


def test_a_target_that_has_the_limits_already_is_not_touched():
    target = a_deployment(args=NEW_ARGS)
    world = recommended(target=target)
    decision = step(world)
    assert conditions(decision)["Applied"] == ("True", "RolledOut")
    assert not any(isinstance(e, PatchTarget) for e in step(world).effects)


def test_manual_waits_for_the_hash_and_nothing_else():
    world = recommended({"updatePolicy": {"mode": "Manual"}})
    waiting = step(world)
    assert conditions(waiting)["Applied"] == ("False", "WaitingForApproval")
    assert conditions(waiting)["Succeeded"][0] == "Unknown"
    hash_ = waiting.status.recommendation.hash
    assert hash_ in message(waiting, "Applied")
    for value, reason in (("yes", "WaitingForApproval"), (hash_, "RollingOut")):
        tuning = {**world.observed.tuning}
        tuning["metadata"] = {
            **tuning["metadata"],
            "annotations": {"vllmtuning.io/approve": value},
        }
        world.observed = replace(world.observed, tuning=tuning)
        assert conditions(step(world))["Applied"] == ("False", reason)


def managed(**metadata):
    target = a_deployment()
    target["metadata"] |= metadata
    return target


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (
            managed(ownerReferences=[{"kind": "VLLMRuntime", "name": "chat", "controller": True}]),
            "VLLMRuntime chat",
        ),
        (
            managed(annotations={"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:x/y"}),
            "Argo CD shop",
        ),
        (managed(labels={"kustomize.toolkit.fluxcd.io/name": "team"}), "Flux Kustomization team"),
    ],
)
def test_a_managed_target_is_refused_by_name_unless_allowed(target, words):
    world = recommended(target=target)
    refused = step(world)
    assert conditions(refused)["Applied"] == ("False", "ManagedTarget")
    assert words in message(refused, "Applied")
    assert refused.status.recommendation.patch
    spec = {"updatePolicy": {"mode": "Auto", "allowManaged": True}}
    assert conditions(step(recommended(spec, target)))["Applied"] == ("False", "RollingOut")


def test_a_small_gain_is_told_and_not_applied():
    world = recommended(gain_percent=3.0)
    assert conditions(step(world))["Applied"] == ("False", "BelowMinimumImprovement")


def test_flags_that_random_tokens_do_not_represent_are_not_applied_by_themselves():
    target = a_deployment(args=[*NEW_ARGS[:1], "--max-num-seqs=4", "--enable-lora"])
    decision = step(recommended(target=target))
    assert conditions(decision)["Representative"] == ("False", "NotRepresentative")
    assert conditions(decision)["Applied"] == ("False", "NotRepresentative")


def test_flags_from_the_environment_are_recommended_but_not_edited():
    target = a_deployment(
        args=["m", "--max-num-seqs=$(SEQS)", "--max-num-batched-tokens=2048"],
        env=[{"name": "SEQS", "value": "4"}],
    )
    decision = step(recommended(target=target))
    assert conditions(decision)["Applied"] == ("False", "NotEditable")
    assert decision.status.recommendation.diff


@pytest.mark.parametrize(
    ("spec", "status", "words"),
    [
        ({"paused": True}, {}, "paused"),
        ({"replicas": 0}, {}, "scaled to zero"),
        ({}, {"updatedReplicas": 0}, "being rolled out"),
        ({}, {"replicas": 2}, "being rolled out"),
        ({}, {"availableReplicas": 0}, "0 of 1 pods are available"),
    ],
)
def test_an_unstable_target_is_waited_for(spec, status, words):
    target = a_deployment()
    target["spec"] |= spec
    target["status"] |= status
    world = recommended(target=target)
    decision = step(world)
    assert conditions(decision)["Applied"] == ("False", "TargetNotStable")
    assert words in message(decision, "Applied")
    assert decision.look_again_at is not None
    world.observed = replace(world.observed, target=a_deployment())
    assert conditions(step(world))["Applied"] == ("False", "RollingOut")


def test_a_target_that_was_made_anew_is_a_new_target():
    world = patched()
    target = a_deployment()
    target["metadata"]["uid"] = "another"
    world.observed = replace(world.observed, target=target)
    decision = step(world)
    assert decision.status.applied is None or decision.status.applied.target_uid == "another"


def test_shell_and_command_forms_are_applied_too():
    script = "vllm serve m --max-num-seqs 4 --max-num-batched-tokens 2048"
    for container in (
        {"command": ["sh", "-c", script], "args": None},
        {"command": script.split(), "args": None},
        {"command": ["/bin/sh", "-c"], "args": [script]},
    ):
        target = a_deployment(**container)
        if container["args"] is None:
            del target["spec"]["template"]["spec"]["containers"][0]["args"]
        world = recommended(target=target)
        step(world)
        step(world)
        found = world.observed.target["spec"]["template"]["spec"]["containers"][0]
        text = " ".join([*found["command"], *found.get("args", [])])
        assert "--max-num-seqs 64" in text
        world.roll_out(log=GOOD_LOG)
        assert conditions(step(world))["Applied"] == ("True", "RolledOut")
        assert step(world).effects == ()  # the tuned flags are not part of the question


def test_recommended_memory_share_is_written_as_a_fraction():
    limits = Limits(64, 4096, gpu_memory_utilization_percent=85)
    world = recommended(limits=limits)
    step(world)
    step(world)
    assert "--gpu-memory-utilization=0.85" in args_of(world)


def test_a_target_that_is_scaled_to_zero_while_it_rolls_out_proves_nothing():
    world = patched()
    world.roll_out(log=GOOD_LOG)
    target = deepcopy(dict(world.observed.target))
    target["spec"]["replicas"] = 0
    target["status"] |= {"replicas": 0, "updatedReplicas": 0, "availableReplicas": 0}
    world.observed = replace(world.observed, target=target, target_pods=())
    decision = step(world)
    assert conditions(decision)["Applied"] == ("False", "RollingOut")
    assert "scaled to zero" in message(decision, "Applied")


@pytest.mark.parametrize(
    ("strategy", "named"),
    [
        ({"rollingUpdate": {"maxSurge": 1}, "type": "RollingUpdate"}, True),
        ({"type": "Recreate"}, False),
        ({"rollingUpdate": {"maxSurge": 0}, "type": "RollingUpdate"}, False),
    ],
)
def test_a_roll_out_without_room_names_the_strategy_and_is_taken_back(strategy, named):
    target = a_deployment()
    target["spec"]["strategy"] = strategy
    world = recommended(target=target)
    step(world)
    step(world)
    world.roll_out(ready=False)
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "Insufficient gpu"}
    world.observed.target_pods[0]["status"] = {"conditions": [unscheduled]}
    decision = step(world, 40_000)
    assert conditions(decision)["Applied"] == ("False", "Restoring")
    assert "Insufficient gpu" in message(decision, "Applied")
    assert ("maxSurge: 0" in message(decision, "Applied")) is named
