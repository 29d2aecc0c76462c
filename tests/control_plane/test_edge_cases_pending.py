"""Edge cases of a benchmark pod that does not come to run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.control_plane.fleet import ARGS, Tenant, a_server, given
from tests.control_plane.held import OURS
from tests.operator_process import a_target, a_tuning
from tests.played_node import NO_IMAGE
from tests.rest import path_of

pytestmark = pytest.mark.control_plane


def without_gpu(user: Tenant) -> None:
    target = a_target("llama", NO_IMAGE)
    target["spec"]["replicas"] = 0
    container = target["spec"]["template"]["spec"]["containers"][0]
    container["resources"] = {"limits": {"example.com/gpu": "1"}}
    user.apply(target, a_tuning("llama", budget={"scheduleDeadlineSeconds": 4}))


@given(without_gpu)
def test_edge_08_a_gpu_that_is_not_there_is_given_up(user: Tenant) -> None:
    """The real scheduler speaks."""
    words = user.wait_for("llama", "Stalled", "True", "GaveUpWaitingForGPU")
    assert "Insufficient example.com/gpu" in words
    assert "scheduleDeadlineSeconds" in words
    assert "Insufficient example.com/gpu" in user.events("WaitingForGPU")[0]
    user.wait(lambda: not user.items("jobs") and not user.items("pods"), "no pod to be pending")

    # a person frees a GPU and asks again
    before = user.get("vllmtunings", "llama")["status"]["run"]["id"]
    user.annotate("vllmtunings", "llama", "vllmtuning.io/rerun", "1")
    user.wait(
        lambda: user.get("vllmtunings", "llama")["status"]["run"]["id"] != before, "another run"
    )


def quota(**hard: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "tight"},
        "spec": {"hard": {k.replace("_", "/"): v for k, v in hard.items()}},
    }


def refused(user: Tenant, *bodies: dict[str, Any]) -> None:
    budget = {"scheduleDeadlineSeconds": 6}
    user.apply(*bodies, a_server(replicas=0), a_tuning("llama", budget=budget))


def check_refused(user: Tenant, words: str) -> None:
    assert words in user.wait_for("llama", "Stalled", "True", "PodRefused")
    user.wait(lambda: not user.items("jobs"), "no Job to be left")
    assert user.args_of("llama") == ARGS


@given(lambda user: refused(user, quota(**{"count_jobs.batch": "0"})))
def test_edge_09_a_quota_that_refuses_the_job(user: Tenant) -> None:
    check_refused(user, "exceeded quota: tight")


@given(lambda user: refused(user, quota(pods="0")))
def test_edge_09_a_quota_that_refuses_the_pod(user: Tenant) -> None:
    check_refused(user, "exceeded quota: tight")


def narrow(user: Tenant) -> None:
    limits = [{"type": "Container", "min": {"memory": "2Gi"}}]
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "narrow"}}
    refused(user, body | {"spec": {"limits": limits}})


@given(narrow)
def test_edge_09_a_limit_range_that_refuses_the_pod(user: Tenant) -> None:
    check_refused(user, "minimum memory usage per Container is 2Gi")


@given(refused, **{"pod-security.kubernetes.io__enforce": "restricted"})
def test_edge_09_pod_security_that_refuses_the_pod(user: Tenant) -> None:
    check_refused(user, 'violates PodSecurity "restricted')


def without_image(user: Tenant) -> None:
    target = a_target("llama", NO_IMAGE)
    target["spec"]["replicas"] = 0
    user.apply(target, a_tuning("llama"))


@given(without_image)
def test_edge_10_an_image_that_can_not_be_pulled(user: Tenant) -> None:
    """The real kubelet tries."""
    words = user.wait_for("llama", "Stalled", "True", "ImagePullFailed", 90)
    assert NO_IMAGE in words
    assert "vllmtuning.io/rerun" in words
    user.wait(lambda: not user.items("jobs"), "the Job to be deleted")
    assert user.items("vllmtrials") == []  # the configuration is not to blame


def test_edge_12_a_pod_that_does_not_start_is_given_up_with_its_events(user: Tenant) -> None:
    """The kubelet's word on the volume is the test's own: no volume can hang here."""
    user.kubelet.starts = False
    budget = {"startupDeadlineSeconds": 5}
    user.apply(a_server(replicas=0), a_tuning("llama", budget=budget))
    pod = user.wait(lambda: user.items("pods", **OURS), "a pod")[0]
    about = {"kind": "Pod", "namespace": user.namespace} | {
        key: pod["metadata"][key] for key in ("name", "uid")
    }
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "hangs", "namespace": user.namespace},
        "involvedObject": about,
        "type": "Warning",
        "reason": "FailedAttachVolume",
        "message": "Multi-Attach error for volume model",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    user.must("POST", path_of("events", user.namespace), event)
    words = user.wait_for("llama", "Stalled", "True", "BenchmarkFailed")
    assert "Multi-Attach error for volume model" in words
    assert "budget.startupDeadlineSeconds" in words
    user.wait(lambda: not user.items("jobs"), "the Job to be deleted")
