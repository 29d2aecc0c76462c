"""A run whose Job waits for a place: for a GPU, or for a queue's quota."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.unit.reconcile.bench_events import (
    run_started,
    start_ended,
)
from tests.unit.reconcile.builders import (
    NOW,
    a_tuning,
    conditions,
    message,
    observe,
    stamp,
)
from tests.unit.reconcile.world import World, started, step
from vllm_tuning.reconcile.effects import CreateRun, DeleteJob, RequeueJob


def suspend(world: World, *, suspended: bool = True, start_time=None) -> None:
    """What a queue does to the newest Job."""
    job = {**world.job, "spec": {**world.job["spec"], "suspend": suspended}}
    if start_time is not None:
        job["status"] = {"startTime": stamp(start_time)}
    world.observed = replace(world.observed, jobs=(job,))


def test_a_pod_without_a_gpu_waits_with_the_schedulers_words_and_is_given_up():
    world = started()
    world.has_pod(
        conditions=[
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
            }
        ]
    )
    waiting = step(world, 60)
    assert conditions(waiting)["Progressing"] == ("True", "WaitingForGPU")
    assert "Insufficient nvidia.com/gpu" in message(waiting, "Progressing")
    assert waiting.look_again_at is not None

    gone = step(world, 1800)
    assert conditions(gone)["Stalled"] == ("True", "GaveUpWaitingForGPU")
    assert "Insufficient nvidia.com/gpu" in message(gone, "Stalled")
    assert gone.effects == ()  # the reason is stored first

    after = step(world)
    assert [type(e) for e in after.effects] == [DeleteJob]
    rest = step(world)
    assert rest.effects == ()
    assert conditions(rest)["Stalled"] == ("True", "GaveUpWaitingForGPU")
    assert conditions(rest)["Succeeded"][0] == "False"


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"kueue.x-k8s.io/queue-name": "night"}, "until queue night admits it"),
        (None, "no queue is named: set benchmark.queueName"),
    ],
)
def test_a_suspended_job_waits_for_its_queue_without_a_deadline(labels, words):
    world = World(observe(a_tuning(benchmark={"labels": labels} if labels else None)))
    step(world)
    suspend(world)
    decision = step(world, 10_000)
    assert conditions(decision)["Progressing"] == ("True", "WaitingForQuota")
    assert words in message(decision, "Progressing")


def test_a_job_that_waits_for_quota_changes_its_queue_with_the_wish():
    world = World(observe(a_tuning(benchmark={"queueName": "night"})))
    step(world)
    suspend(world)
    run = step(world).status.run.id
    assert world.job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "night"
    world.edit(benchmark={"queueName": "day"})

    decision = step(world)

    assert [type(effect) for effect in decision.effects] == [RequeueJob]
    assert world.job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "day"
    assert decision.status.run.id == run  # where a Job waits is not what is measured
    assert step(world).effects == ()


def test_the_wait_for_a_gpu_counts_from_the_queues_admission():
    world = started()
    pending = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no GPU"}]}
    suspend(world, suspended=False, start_time=NOW + timedelta(days=2))
    world.has_pod(phase="Pending", **pending)
    decision = step(world, 2 * 86_400 + 60)
    assert conditions(decision)["Progressing"] == ("True", "WaitingForGPU")


def test_no_clock_runs_until_the_job_controller_has_noticed_the_admission():
    world = started()
    not_yet = {"conditions": [{"type": "Suspended", "status": "True"}]}
    world.observed = replace(world.observed, jobs=({**world.job, "status": not_yet},))
    decision = step(world, 2 * 86_400)
    assert conditions(decision)["Progressing"] == ("True", "Pending")


def test_a_queue_that_takes_a_running_job_back_loses_no_attempt():
    world = started()
    world.says(run_started(), start_ended(1))
    step(world)
    suspend(world)
    world.observed.pods[0]["metadata"]["deletionTimestamp"] = stamp(NOW)
    decision = step(world)
    assert conditions(decision)["Progressing"] == ("True", "WaitingForQuota")
    assert decision.status.run.attempt == 1
    assert not [e for e in decision.effects if isinstance(e, CreateRun)]
