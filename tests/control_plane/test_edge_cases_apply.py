"""Edge cases of changing a target: whoever else writes it, and whatever keeps it from serving."""

from __future__ import annotations

import pytest
from aiohttp import web

from tests.control_plane.fleet import ARGS, NEW_ARGS, Tenant, a_server, given
from tests.operator_process import a_tuning

pytestmark = pytest.mark.control_plane

AUTO = {"mode": "Auto"}
SEEDED = [*ARGS, "--seed=7"]
BY_HAND = ["m", "--max-num-seqs=32", "--max-num-batched-tokens=4096"]


def auto(user: Tenant) -> None:
    user.apply(a_server(), a_tuning("llama", updatePolicy=AUTO))


def slow_to_serve(user: Tenant) -> None:
    """The new pods stay without a node until the test lets them go."""
    user.kubelet.unschedulable = lambda args: "no room yet" if args == NEW_ARGS else None
    auto(user)


def check_undisturbed(user: Tenant) -> None:
    """The pod that served before we wrote anything is the one that serves."""
    (pod,) = user.items("pods", labelSelector="app=llama")
    written = user.get("vllmtunings", "llama")["status"]["applied"]["time"]
    assert pod["metadata"]["creationTimestamp"] < written
    assert pod["status"]["containerStatuses"][0]["ready"]


@given(slow_to_serve)
def test_edge_15_an_autoscaler_scales_while_we_roll_out(user: Tenant) -> None:
    """The autoscaler's effect: it writes the scale, as a real one does."""
    user.wait(lambda: user.patches("llama"), "the patch")
    user.scale("llama", 3)
    user.kubelet.unschedulable = lambda _: None
    words = user.wait_for("llama", "Applied", "True", "RolledOut")
    assert "3 of 3 pods" in words
    assert user.get("deployments", "llama")["spec"]["replicas"] == 3
    assert user.args_of("llama") == NEW_ARGS
    assert user.patches("llama") == 1


def restless(user: Tenant) -> None:
    paused, zero, down = a_server("paused"), a_server("zero", replicas=0), a_server("down")
    paused["spec"]["paused"] = True
    down_args = ["down", *ARGS[1:]]
    down["spec"]["template"]["spec"]["containers"][0]["args"] = down_args
    user.kubelet.serves = lambda args: args != down_args
    user.apply(paused, zero, down)
    user.apply(*(a_tuning(name, updatePolicy=AUTO) for name in ("paused", "zero", "down")))


@given(restless)
def test_edge_16_a_target_that_is_paused_at_zero_or_down_is_waited_for(user: Tenant) -> None:
    for name, words in (
        ("paused", "paused: kubectl rollout resume"),
        ("zero", "scaled to zero"),
        ("down", "0 of 1 pods are available"),
    ):
        assert words in user.wait_for(name, "Applied", "False", "TargetNotStable")
        assert user.conditions(name)["Succeeded"][0] == "Unknown"
        assert user.patches(name) == 0
    user.scale("zero", 1)
    user.wait_for("zero", "Applied", "True", "RolledOut")
    assert user.args_of("zero") == NEW_ARGS


def contested(user: Tenant) -> None:
    answers = iter(("edit", 409))

    def before(method: str, path: str, _: bytes) -> web.Response | None:
        if method != "PATCH" or "/deployments/" not in path:
            return None
        match next(answers, None):
            case "edit":
                user.write_args("llama", SEEDED)
            case 409:
                return web.json_response(
                    {"kind": "Status", "reason": "Conflict", "message": "modified", "code": 409},
                    status=409,
                )
        return None

    user.before = before
    auto(user)


@given(contested)
def test_edge_17_a_patch_that_loses_a_race_is_decided_anew(user: Tenant) -> None:
    """A person edits the very list that we are about to patch (422), and a conflict follows (409,
    by the proxy). A new flag is another question: it is measured before anything is applied."""
    user.wait_for("llama", "Applied", "True", "RolledOut", 120)
    assert user.args_of("llama") == [*NEW_ARGS, "--seed=7"]
    assert user.patches("llama") == 1
    assert len(user.kubelet.specs) == 2


def failing(user: Tenant) -> None:
    user.kubelet.serves = lambda args: args != NEW_ARGS
    auto(user)


@given(failing)
def test_edge_18_a_roll_out_that_fails_is_taken_back(user: Tenant) -> None:
    words = user.wait_for("llama", "Succeeded", "False", "RolledBack", 90)
    assert "old arguments" in words
    assert user.args_of("llama") == ARGS
    assert user.patches("llama") == 2
    status = user.get("vllmtunings", "llama")["status"]
    assert status["applied"]["state"] == "RolledBack"
    assert status["rejected"] == [status["recommendation"]["hash"]]
    assert user.events("RolledBack", "Deployment")
    assert user.events("RolledBack", "VLLMTuning")
    check_undisturbed(user)


def full(user: Tenant) -> None:
    words = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu"
    user.kubelet.unschedulable = lambda args: words if args == NEW_ARGS else None
    user.apply(a_server(), a_tuning("llama", updatePolicy={**AUTO, "rolloutDeadlineSeconds": 4}))


@given(full)
def test_edge_19_a_roll_out_that_finds_no_gpu_is_taken_back_and_names_the_strategy(
    user: Tenant,
) -> None:
    words = user.wait_for("llama", "Succeeded", "False", "RolledBack", 90)
    assert "Insufficient nvidia.com/gpu" in words
    assert "maxSurge: 0 with maxUnavailable: 1" in words
    assert user.args_of("llama") == ARGS
    check_undisturbed(user)


def contested_on_the_way_back(user: Tenant) -> None:
    edits = iter((BY_HAND,))

    def before(method: str, path: str, body: bytes) -> None:
        if method == "PATCH" and "/deployments/" in path and b"restored-" in body:
            for args in edits:
                user.write_args("llama", args)

    user.before = before
    failing(user)


@given(contested_on_the_way_back)
def test_edge_20_a_person_who_edits_while_we_roll_back_wins(user: Tenant) -> None:
    words = user.wait_for("llama", "Applied", "False", "Drifted", 90)
    assert "vllmtuning.io/rerun" in words
    assert user.args_of("llama") == BY_HAND
    assert user.patches("llama") == 1
    assert len(user.events("DriftDetected")) == 1


def managed(user: Tenant) -> None:
    flux, argo = a_server("flux"), a_server("argo")
    flux["metadata"]["labels"] = {"kustomize.toolkit.fluxcd.io/name": "apps"}
    argo["metadata"]["annotations"] = {"argocd.argoproj.io/tracking-id": "apps:Deployment"}
    user.apply(
        flux,
        argo,
        a_server("hand"),
        a_tuning("flux", updatePolicy=AUTO),
        a_tuning("argo", updatePolicy={**AUTO, "allowManaged": True}),
        a_tuning("hand", updatePolicy=AUTO),
    )


@given(managed)
def test_edge_21_what_git_or_a_person_writes_after_us_is_left_alone(user: Tenant) -> None:
    """No GitOps tool is here; what one does is: it writes the old arguments again."""
    words = user.wait_for("flux", "Applied", "False", "ManagedTarget")
    assert "Flux Kustomization apps" in words
    assert "allowManaged" in words
    assert user.patches("flux") == 0
    assert "max-num-seqs=64" in user.get("vllmtunings", "flux")["status"]["recommendation"]["patch"]

    for name, written in (("argo", ARGS), ("hand", BY_HAND)):
        user.wait_for(name, "Applied", "True", "RolledOut")
        user.write_args(name, written)
        user.wait_for(name, "Applied", "False", "Drifted")
        assert user.args_of(name) == written
        assert user.patches(name) == 1
    assert len(user.events("DriftDetected")) == 2


@given(slow_to_serve)
def test_edge_34_a_tuning_and_its_namespace_go_while_we_apply(user: Tenant) -> None:
    """No finalizer holds them, and what the tuning began is not disturbed by its end."""
    user.wait(lambda: user.patches("llama"), "the patch")
    user.delete("vllmtunings", "llama")
    user.wait(lambda: not user.items("vllmtunings") and not user.items("jobs"), "nothing to stay")
    assert user.args_of("llama") == NEW_ARGS

    user.apply(a_server("other"), a_tuning("other"))
    user.wait(lambda: user.items("jobs"), "a Job")
    path = f"api/v1/namespaces/{user.namespace}"
    user.must("DELETE", path)
    user.wait(lambda: user.rest.request("GET", path)[0] == 404, "the namespace to go")
    assert user.fleet.operator.running
