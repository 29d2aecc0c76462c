"""A run as it is created, followed, lost, given up and answered: one row of behaviour per test."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.unit.reconcile.bench_events import (
    BETTER,
    CURRENT,
    a_probe,
    a_whole_run,
    probe_began,
    probe_ended,
    run_ended,
    run_started,
    start_ended,
)
from tests.unit.reconcile.builders import (
    NOW,
    a_deployment,
    a_tuning,
    conditions,
    ended_pod,
    message,
    observe,
    stamp,
)
from tests.unit.reconcile.world import World, started, step
from vllm_tuning.reconcile.decide import decide
from vllm_tuning.reconcile.effects import (
    CreateRun,
    DeleteJob,
    ExpireJob,
    RecordTrial,
)
from vllm_tuning.reconcile.observed import Refused
from vllm_tuning.tuning.model import Ending, FailureKind, Purpose, StartFailure, Verdict
from vllm_tuning.tuning.run import RUN_SPEC, SUMMARY, RunFailed, Summary


def test_a_new_tuning_creates_one_job_and_says_so():
    decision = decide(observe(), NOW)
    assert [type(e) for e in decision.effects] == [CreateRun]
    assert conditions(decision)["Progressing"] == ("True", "Pending")
    assert conditions(decision)["Ready"] == ("True", "Ready")
    assert conditions(decision)["Succeeded"] == ("Unknown", "InProgress")
    assert [a.reason for a in decision.announcements] == ["RunStarted"]


def test_deciding_again_after_the_effects_asks_for_nothing():
    world = started()
    again = decide(world.observed, NOW)
    assert again.effects == ()
    assert again.announcements == ()


def test_a_crash_before_the_status_was_written_makes_no_second_job():
    world = World(observe())
    world.perform(decide(world.observed, NOW), status=False)
    again = decide(world.observed, NOW)
    assert again.effects == ()
    assert again.status.run is not None
    assert again.status.run.job_name == world.job["metadata"]["name"]


def test_the_run_asks_what_the_tuning_and_the_target_say():
    (effect,) = decide(observe(), NOW).effects
    assert isinstance(effect, CreateRun)
    run = RUN_SPEC.validate_json(effect.config_map["data"]["run.json"])
    assert run.problem.current == CURRENT
    assert run.problem.slos[0].max_milliseconds == 300
    assert run.problem.space.gpu_memory_utilization_percent is None
    assert run.attempt == 1
    assert not run.problem.quick


def test_edits_of_mode_budget_and_history_start_no_other_run():
    world = started()
    tuning = a_tuning(
        updatePolicy={"mode": "Auto"}, budget={"gpuSeconds": 60}, historyLimit=9, suspend=False
    )
    tuning["status"] = world.observed.tuning["status"]
    assert decide(replace(world.observed, tuning=tuning), NOW).effects == ()


@pytest.mark.parametrize(
    "edit",
    [
        {"slos": [{"metric": "TTFT", "percentile": 95, "maxMilliseconds": 299}]},
        {"workload": {"inputTokens": {"mean": 64}}},
        {"parameters": [{"name": "max_num_seqs", "max": 64}]},
    ],
)
def test_another_question_stops_the_old_job_and_then_starts_another_run(edit):
    world = started()
    old = world.job["metadata"]["name"]
    tuning = a_tuning(**edit)
    tuning["status"] = world.observed.tuning["status"]
    world.observed = replace(world.observed, tuning=tuning)
    first = step(world)
    assert [type(e) for e in first.effects] == [DeleteJob]
    second = step(world)
    assert [type(e) for e in second.effects] == [CreateRun]
    assert world.job["metadata"]["name"] != old


def test_a_target_that_only_scales_goes_on():
    world = started()
    target = a_deployment()
    target["spec"]["replicas"] = 7
    target["metadata"]["annotations"]["note"] = "hello"
    assert decide(replace(world.observed, target=target), NOW).effects == ()


def test_a_new_image_is_another_measurement():
    world = started()
    target = a_deployment(image="vllm/vllm-openai:v0.21.0")
    decision = decide(replace(world.observed, target=target), NOW)
    assert [type(e) for e in decision.effects] == [DeleteJob]


def test_rerun_annotation_tries_again_after_a_failure():
    world = started()
    world.finish_job("Failed", "BackoffLimitExceeded")
    world.has_pod(**ended_pod("Traceback: boom"))
    world.says(complete=True)
    failed = step(world)
    assert conditions(failed)["Stalled"] == ("True", "BenchmarkFailed")
    tuning = {**world.observed.tuning}
    tuning["metadata"] = {**tuning["metadata"], "annotations": {"vllmtuning.io/rerun": "1"}}
    world.observed = replace(world.observed, tuning=tuning, pods=())
    again = step(world)
    assert [type(e) for e in again.effects] == [CreateRun]
    assert conditions(again)["Stalled"] == ("False", "NotStalled")


def test_an_image_that_cannot_be_pulled_fails_at_once():
    world = started()
    world.has_pod(
        conditions=[{"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(NOW)}],
        initContainerStatuses=[
            {
                "name": "engine",
                "image": "nowhere/vllm:1",
                "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}},
            }
        ],
    )
    decision = step(world, 5)
    assert conditions(decision)["Stalled"] == ("True", "ImagePullFailed")
    assert "nowhere/vllm:1" in message(decision, "Stalled")


def test_each_configuration_gets_its_trial_at_once():
    world = started()
    baseline = a_probe("p1", CURRENT, Purpose.BASELINE)
    world.says(run_started(), start_ended(1), probe_began(2, baseline))
    first = step(world)
    trials = [e.body for e in first.effects if isinstance(e, RecordTrial)]
    assert [(t["spec"]["purpose"], t["status"]["outcome"]) for t in trials] == [
        ("Calibrate", "Succeeded"),
        ("Baseline", "Running"),
    ]
    assert conditions(first)["Progressing"] == ("True", "Baseline")

    world.says(run_started(), start_ended(1), probe_ended(3, baseline, Verdict.FAIL, 900))
    second = step(world)
    (trial,) = [e.body for e in second.effects if isinstance(e, RecordTrial)]
    assert trial["status"]["outcome"] == "SLOViolated"
    assert trial["status"]["points"][0]["metrics"]["ttftMilliseconds"]["p95"] == "900"
    assert [a.reason for a in second.announcements] == ["BaselineMeasured"]
    assert decide(world.observed, NOW).effects == ()


def test_an_engine_that_does_not_start_leaves_its_words_in_the_trial():
    world = started()
    failure = StartFailure(
        kind=FailureKind.BAD_ARGUMENTS,
        reason="UnrecognizedArguments",
        message="remove --frobnicate",
        log_tail="error: unrecognized arguments: --frobnicate",
    )
    world.says(
        run_started(),
        start_ended(1, failure=failure),
        run_ended(2, Ending.ENGINE_FAILED),
        complete=True,
    )
    decision = step(world)
    (trial,) = [e.body for e in decision.effects if isinstance(e, RecordTrial)]
    assert trial["status"]["failure"]["logTail"].endswith("--frobnicate")
    assert trial["status"]["outcome"] == "Failed"
    assert conditions(decision)["Stalled"] == ("True", "EngineFailed")


def test_a_lost_pod_goes_on_in_a_new_attempt_with_all_answers():
    world = started()
    world.says(run_started(), start_ended(1), probe_ended(2, a_probe("p1", CURRENT)))
    step(world)
    world.finish_job("Failed", "PodFailurePolicy", "pod was evicted")
    world.observed = replace(world.observed, pods=(), logs={})
    decision = step(world)
    created = next(e for e in decision.effects if isinstance(e, CreateRun))
    run = RUN_SPEC.validate_json(created.config_map["data"]["run.json"])
    assert run.attempt == 2
    assert [type(a).__name__ for a in run.previous] == ["StartResult", "ProbeResult"]
    assert conditions(decision)["Progressing"] == ("True", "Preempted")
    assert step(world).effects == ()


def test_after_three_lost_pods_the_run_is_given_up():
    world = started()
    for _ in range(3):
        world.finish_job("Failed", "PodFailurePolicy", "pod was evicted")
        last = step(world)
    assert conditions(last)["Stalled"] == ("True", "TooManyAttempts")
    assert len(world.observed.jobs) == 3


def test_a_sigterm_told_by_the_bench_is_a_lost_pod_too():
    world = started()
    failed = RunFailed(
        seq=1, time=NOW.timestamp(), reason="Terminated", message="SIGTERM", engine_seconds=1.0
    )
    world.says(run_started(), failed, complete=True)
    assert any(isinstance(e, CreateRun) for e in step(world).effects)


def test_a_jobs_deletion_by_hand_is_a_lost_pod():
    world = started()
    world.observed = replace(world.observed, jobs=())
    decision = step(world)
    (effect,) = decision.effects
    assert isinstance(effect, CreateRun)
    assert effect.job["metadata"]["name"].endswith("-2")


def test_an_answer_becomes_a_recommendation_and_the_job_may_go():
    world = started()
    world.says(*a_whole_run(), complete=True)
    world.finish_job("Complete")
    decision = step(world)
    assert conditions(decision)["RecommendationProvided"] == ("True", "Recommended")
    assert conditions(decision)["Progressing"] == ("False", "Complete")
    assert conditions(decision)["Succeeded"] == ("True", "RecommendOnly")
    assert decision.status.sla == "Met"
    found = decision.status.recommendation
    assert found is not None
    assert found.limits is not None
    assert found.limits.max_num_seqs == BETTER.max_num_seqs
    assert "+args: --max-num-seqs=64" in (found.diff or "")
    assert found.gain_percent == 120
    purposes = [t["spec"]["purpose"] for t in world.observed.trials]
    assert purposes == ["Calibrate", "Baseline", "Search", "Confirm"]
    usage = decision.status.usage
    assert usage is not None
    assert (usage.engine_starts, usage.probes, usage.trials) == (2, 3, 4)

    assert [type(e) for e in step(world).effects] == [ExpireJob]
    assert step(world).effects == ()


def test_a_bench_that_has_answered_may_end_by_itself_but_not_for_ever():
    world = started()
    world.says(*a_whole_run())
    step(world)
    assert step(world, 10).effects == ()
    assert [type(e) for e in step(world, 200).effects] == [DeleteJob]


def test_a_finished_run_stays_finished_when_its_job_and_trials_are_gone():
    world = started()
    world.says(*a_whole_run(), complete=True)
    world.finish_job("Complete")
    step(world)
    world.observed = replace(world.observed, jobs=(), pods=(), logs={}, trials=())
    decision = step(world)
    assert decision.effects == ()
    assert conditions(decision)["Succeeded"] == ("True", "RecommendOnly")


@pytest.mark.parametrize(
    ("ending", "state", "succeeded"),
    [
        (Ending.SLA_UNSATISFIABLE, "Unsatisfiable", "False"),
        (Ending.NO_IMPROVEMENT, "Met", "True"),
        (Ending.INCONCLUSIVE, "Inconclusive", "False"),
        (Ending.BUDGET_EXHAUSTED, "Inconclusive", "False"),
    ],
)
def test_every_other_ending_is_told_and_nothing_is_applied(ending, state, succeeded):
    world = World(observe(a_tuning(updatePolicy={"mode": "Auto"})))
    step(world)
    world.says(run_started(), run_ended(1, ending), complete=True)
    world.finish_job("Complete")
    decision = step(world)
    assert conditions(decision)["RecommendationProvided"] == ("False", str(ending))
    assert conditions(decision)["Applied"] == ("False", "NotApplied")
    assert conditions(decision)["Succeeded"][0] == succeeded
    assert decision.status.sla == state


def test_a_lost_log_is_replaced_by_the_termination_message():
    world = started()
    summary = Summary(
        run_id="r",
        attempt=1,
        reason="Recommended",
        message="64 seqs carry 8/s",
        limits=BETTER,
        load=None,
        purpose=None,
        gain_percent=50.0,
        engine_starts=2,
        probes=3,
        engine_seconds=100.0,
    )
    world.has_pod(**ended_pod(SUMMARY.dump_json(summary).decode()))
    uid = world.observed.pods[0]["metadata"]["uid"]
    world.says(complete=True)
    world.has_pod(**ended_pod(SUMMARY.dump_json(summary).decode()))
    assert uid in world.observed.logs
    decision = step(world)
    assert conditions(decision)["RecommendationProvided"] == ("True", "Recommended")


def test_the_log_is_read_to_its_end_before_the_run_is_judged():
    world = started()
    world.says(run_started(), complete=True)
    uid = world.observed.pods[0]["metadata"]["uid"]
    log = replace(world.observed.logs[uid], complete=False)
    world.observed = replace(world.observed, logs={uid: log})
    world.finish_job("Complete")
    decision = step(world)
    assert conditions(decision)["Progressing"][0] == "True"
    assert decision.look_again_at == world.now + timedelta(seconds=2)


def test_suspend_stops_the_run_and_keeps_what_was_measured():
    world = started()
    world.says(run_started(), start_ended(1), probe_ended(2, a_probe("p1", CURRENT)))
    step(world)
    tuning = {**world.observed.tuning, "spec": {**world.observed.tuning["spec"], "suspend": True}}
    world.observed = replace(world.observed, tuning=tuning)
    decision = step(world)
    assert [type(e) for e in decision.effects] == [DeleteJob]
    assert conditions(decision)["Progressing"] == ("False", "Suspended")
    assert len(world.observed.trials) == 2


def test_a_refused_job_is_told_with_the_api_servers_words():
    refused = Refused("CreateRun", "exceeded quota: gpus")
    decision = decide(observe(refused=refused), NOW)
    assert decision.effects == ()
    assert conditions(decision)["Stalled"] == ("True", "PodRefused")
    assert "exceeded quota" in message(decision, "Stalled")


def test_a_job_of_our_name_that_is_not_ours_is_never_adopted():
    world = started()
    job = {**world.job}
    job["metadata"] = {**job["metadata"], "ownerReferences": []}
    world.observed = replace(world.observed, jobs=(job,))
    decision = decide(world.observed, NOW)
    assert decision.effects == ()
    assert conditions(decision)["Stalled"] == ("True", "JobConflict")


def test_a_job_that_is_being_deleted_is_waited_for():
    world = started()
    job = {**world.job}
    job["metadata"] = {**job["metadata"], "deletionTimestamp": stamp(NOW)}
    world.observed = replace(world.observed, jobs=(job,))
    decision = decide(world.observed, NOW)
    assert decision.effects == ()
    assert decision.look_again_at is not None


def test_a_job_without_pods_tells_why():
    world = started()
    name = world.job["metadata"]["name"]
    world.observed = replace(world.observed, job_warnings={name: "pods is forbidden: quota"})
    decision = step(world, 10)
    assert conditions(decision)["Progressing"] == ("True", "PodRefused")
    assert "quota" in message(decision, "Progressing")


def test_trials_of_runs_beyond_the_history_limit_are_deleted():
    world = World(observe(a_tuning(historyLimit=1)))
    step(world)
    world.says(*a_whole_run(), complete=True)
    world.finish_job("Complete")
    step(world)
    old = {
        "metadata": {"name": "old", "namespace": "serving"},
        "spec": {"runID": "older", "index": 1},
        "status": {"outcome": "Succeeded"},
    }
    world.observed = replace(world.observed, trials=(*world.observed.trials, old))
    names = [getattr(e, "name", "") for e in step(world).effects]
    assert "old" in names
    assert len(world.observed.trials) == 4


def test_a_pod_whose_containers_do_not_start_is_given_up_with_its_last_warning():
    world = started()
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(NOW)}
    world.has_pod(phase="Pending", conditions=[scheduled])
    warning = {world.job["metadata"]["name"]: "Multi-Attach error for volume model"}
    world.observed = replace(world.observed, job_warnings=warning)
    assert "Multi-Attach" in message(step(world), "Progressing")
    decision = step(world, 100_000)
    assert conditions(decision)["Stalled"] == ("True", "BenchmarkFailed")
    assert "Multi-Attach" in message(decision, "Stalled")
