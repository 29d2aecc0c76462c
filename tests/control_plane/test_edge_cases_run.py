"""Edge cases of a benchmark run: what may happen to its pod, its target and its Job meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.control_plane.fleet import ARGS, Tenant, a_server, given
from tests.control_plane.held import OURS, held, wait_for_trials
from tests.operator_process import a_tuning
from tests.rest import path_of
from tests.unit.reconcile.bench_events import (
    BETTER,
    CURRENT,
    a_probe,
    a_start,
    probe_ended,
    run_ended,
    run_started,
    start_ended,
)
from vllm_tuning.tuning.model import Ending, FailureKind, Purpose, StartFailure, Verdict
from vllm_tuning.tuning.run import Event, RunSpec

pytestmark = pytest.mark.control_plane


def job(user: Tenant) -> dict[str, Any]:
    found: dict[str, Any] = user.wait(lambda: user.items("jobs", **OURS), "a Job")[0]
    return found


def check_finished(user: Tenant) -> None:
    """The run came to its end, and the target is as it was."""
    user.wait_for("llama", "Succeeded", "True", "RecommendOnly")
    assert user.args_of("llama") == ARGS
    assert user.patches("llama") == 0


@given(held)
def test_edge_01_a_target_that_is_deleted_and_comes_back(user: Tenant) -> None:
    wait_for_trials(user)
    user.delete("deployments", "llama")
    assert "create it" in user.wait_for("llama", "TargetResolved", "False", "TargetNotFound")
    user.wait(lambda: not user.items("jobs") and not user.items("pods"), "nothing to be left")
    assert user.events("TargetLost") == ["the target disappeared: its benchmark is stopped"]

    user.kubelet.hold_after = None
    user.apply(a_server())
    check_finished(user)
    uid = user.get("deployments", "llama")["metadata"]["uid"]
    assert user.get("vllmtunings", "llama")["status"]["target"]["uid"] == uid
    assert len(user.kubelet.specs[-1].previous) == 3


@given(held)
def test_edge_02_edits_of_a_target_stop_its_run_only_where_they_concern_it(user: Tenant) -> None:
    wait_for_trials(user)
    old = job(user)["metadata"]["name"]
    labels = {"metadata": {"labels": {"team": "chat"}, "annotations": {"note": "hello"}}}
    user.merge("deployments", "llama", labels | {"spec": {"minReadySeconds": 1}})
    user.scale("llama", 2)
    generation = user.get("deployments", "llama")["metadata"]["generation"]
    user.wait(
        lambda: (
            user.get("vllmtunings", "llama")["status"]["target"].get("generation") == generation
        ),
        "a look at the edited target",
    )
    assert job(user)["metadata"]["name"] == old
    assert "deletionTimestamp" not in job(user)["metadata"]

    user.write_args("llama", [*ARGS, "--kv-cache-dtype=fp8"])

    def replaced() -> bool:
        names = [j["metadata"]["name"] for j in user.items("jobs")]
        return len(names) == 1 and names != [old]

    user.wait(replaced, "another Job")
    assert user.conditions("llama")["RecommendationProvided"][1] == "NotYet"


@given(held)
def test_edge_06_an_evicted_pod_resumes_with_what_was_measured(user: Tenant) -> None:
    """Preemption and a drain do the same to the pod: they evict it."""
    wait_for_trials(user)
    (pod,) = user.items("pods", **OURS)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod["metadata"]["name"], "namespace": user.namespace},
    }
    path = path_of("pods", user.namespace, pod["metadata"]["name"])
    user.must("POST", f"{path}/eviction", eviction)
    user.kubelet.hold_after = None
    check_finished(user)
    assert [spec.attempt for spec in user.kubelet.specs] == [1, 2]
    assert len(user.kubelet.specs[1].previous) == 3
    assert len(user.items("vllmtrials")) == 4
    assert user.get("vllmtunings", "llama")["status"]["run"]["attempt"] == 2
    assert len(user.events("RunPreempted")) == 1


WAIT_SECONDS = 4


def queued(user: Tenant) -> None:
    benchmark = {"labels": {"kueue.x-k8s.io/queue-name": "night"}}
    budget = {"scheduleDeadlineSeconds": WAIT_SECONDS}
    held(user, benchmark=benchmark, budget=budget)


@given(queued)
def test_edge_07_a_queue_that_suspends_the_job_stops_the_clock(user: Tenant) -> None:
    """Kueue is not here; what it does is: the Job's ``spec.suspend`` becomes true, and false."""
    wait_for_trials(user)
    name = job(user)["metadata"]["name"]
    user.merge("jobs", name, {"spec": {"suspend": True}})
    words = user.wait_for("llama", "Progressing", "True", "WaitingForQuota")
    assert "until queue night admits it" in words
    assert user.conditions("llama")["Stalled"][0] == "False"

    created = datetime.fromisoformat(job(user)["metadata"]["creationTimestamp"])
    user.wait(
        lambda: (datetime.now(UTC) - created).total_seconds() > WAIT_SECONDS + 1,
        "the deadline for the schedule to pass by",
    )
    user.kubelet.hold_after = None
    user.merge("jobs", name, {"spec": {"suspend": False}})
    check_finished(user)
    assert user.get("vllmtunings", "llama")["status"]["run"]["attempt"] == 1
    assert user.events("RunPreempted") == []


def out_of_memory(_: RunSpec) -> Sequence[Event]:
    failure = StartFailure(
        kind=FailureKind.INFEASIBLE,
        reason="OutOfMemory",
        message="CUDA out of memory",
        log_tail="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    )
    return (
        run_started(),
        start_ended(1),
        probe_ended(2, a_probe("p1", CURRENT, Purpose.BASELINE)),
        start_ended(3, a_start("s2", BETTER), failure=failure),
        run_ended(4, Ending.NO_IMPROVEMENT),
    )


def crashing(user: Tenant) -> None:
    user.kubelet.script = out_of_memory
    user.apply(a_server(), a_tuning("llama"))


@given(crashing)
def test_edge_11_an_engine_that_runs_out_of_memory_is_infeasible(user: Tenant) -> None:
    user.wait_for("llama", "Succeeded", "True", "NoImprovement")
    (trial,) = [t for t in user.items("vllmtrials") if t["status"]["outcome"] == "Infeasible"]
    assert trial["spec"]["limits"]["maxNumSeqs"] == BETTER.max_num_seqs
    assert trial["status"]["failure"]["reason"] == "OutOfMemory"
    assert "Tried to allocate 2.00 GiB" in trial["status"]["failure"]["logTail"]
    assert user.events("TrialInfeasible")
    assert user.args_of("llama") == ARGS


def unmeasured(_: RunSpec) -> Sequence[Event]:
    baseline = a_probe("p1", CURRENT, Purpose.BASELINE)
    return (
        run_started(),
        start_ended(1),
        probe_ended(2, baseline, Verdict.INVALID),
        run_ended(3, Ending.INCONCLUSIVE),
    )


def blind(user: Tenant) -> None:
    user.kubelet.script = unmeasured
    user.apply(a_server(), a_tuning("llama", updatePolicy={"mode": "Auto"}))


@given(blind)
def test_edge_29_what_was_not_measured_does_not_meet_the_sla(user: Tenant) -> None:
    """The bench's part, down to NaN and reset counters, is tested without a cluster."""
    user.wait_for("llama", "Succeeded", "False", "Inconclusive")
    status = user.get("vllmtunings", "llama")["status"]
    assert status.get("sla") != "Met"
    (baseline,) = [t for t in user.items("vllmtrials") if t["spec"]["purpose"] == "Baseline"]
    assert baseline["status"]["outcome"] == "Inconclusive"
    assert user.conditions("llama")["Applied"][:2] == ("False", "NotApplied")
    assert user.patches("llama") == 0
