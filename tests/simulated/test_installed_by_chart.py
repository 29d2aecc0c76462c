"""The operator in its pod, as the chart installs it: image, user, rights, watches."""

from __future__ import annotations

import pytest

from tests.control_plane.api_server import APIServer
from tests.control_plane.objects import concerning, tuning
from tests.user import User

pytestmark = [pytest.mark.simulated, pytest.mark.timeout(1800)]  # images may have to be built

QUICKLY = 90.0
"""Seconds; far below the operator's resync, so only an event can have woken it."""


def _log(server: APIServer) -> str:
    deployment = f"deploy/{server.release}-vllm-tuning-operator"
    return server.must("logs", "-n", server.namespace, deployment)


def _make_target(user: User) -> None:
    options = ("--image=vllm/vllm-openai:v0.20.0", "--replicas=0", "--", "vllm", "serve", "m")
    user.kubectl("create", "deployment", "chat", *options)


def test_it_hears_of_tunings_and_of_their_targets(installed: APIServer, user: User) -> None:
    installed.create(user.namespace, tuning(suspend=True))
    user.wait_for("chat", "TargetResolved", "False", "TargetNotFound", QUICKLY)

    _make_target(user)
    user.wait_for("chat", "TargetResolved", "True", "Resolved", QUICKLY)


def test_it_follows_policies(installed: APIServer, user: User) -> None:
    namespace = user.namespace
    installed.create(namespace, concerning(namespace, overrides={"maxMode": "Manual"}))
    installed.create(namespace, tuning(suspend=True, updatePolicy={"mode": "Auto"}))

    user.wait_for("chat", "PolicyCompliant", "True", "NarrowedByPolicies", QUICKLY)
    user.wait(
        lambda: installed.get(namespace, f"vsp/{namespace}").get("status", {}).get("matched") == 1,
        "the policy to count its tuning",
        QUICKLY,
    )
    installed.delete(namespace, f"vsp/{namespace}")


def test_nothing_was_forbidden_and_nothing_failed(installed: APIServer, user: User) -> None:
    installed.create(user.namespace, tuning(suspend=True))
    user.wait(lambda: "Ready" in user.conditions("chat"), "a first look", QUICKLY)

    log = _log(installed)

    assert "forbidden" not in log.lower()
    assert '"level": "ERROR"' not in log


def test_no_finalizer_and_no_annotation_is_left_on_anything(
    installed: APIServer, user: User
) -> None:
    """A dead operator must never block a delete."""
    installed.create(user.namespace, tuning(suspend=True))
    _make_target(user)
    user.wait_for("chat", "TargetResolved", "True", "Resolved", QUICKLY)

    metadata = user.get("vllmtunings", "chat")["metadata"]
    assert "finalizers" not in metadata
    assert "annotations" not in metadata
    path = "jsonpath={.metadata.finalizers}{.metadata.annotations}"
    target = user.kubectl("get", "deploy/chat", "-o", path)
    assert "vllmtuning.io" not in target
    assert "kopf" not in target
