"""Tunings that policies make, and those that they never touch."""

from __future__ import annotations

from typing import Any

from tests.unit.reconcile.builders import a_deployment, a_tuning, policy
from vllm_tuning.api.tuning import VLLMTuning
from vllm_tuning.reconcile.auto_create import tunings_to_create
from vllm_tuning.reconcile.fleet import find_members
from vllm_tuning.reconcile.policy_status import read_tunings

TTFT = {"metric": "TTFT", "percentile": 95, "maxMilliseconds": 250}
OPT_IN = {"selector": {"matchLabels": {"vllmtuning.io/tune": "true"}}}


def maker(name: str = "p", **spec: Any) -> Any:
    return policy(name, defaults={"slos": [TTFT]}, autoCreate=OPT_IN, **spec)


def opted_in(name: str = "llama", **metadata: Any) -> dict[str, Any]:
    body = a_deployment()
    body["metadata"] |= {"name": name, "labels": {"vllmtuning.io/tune": "true"}, **metadata}
    return body


def made(
    bodies: list[dict[str, Any]], tunings: list[dict[str, Any]], *policies: Any
) -> list[dict[str, Any]]:
    found = policies or (maker(),)
    members = find_members(bodies, read_tunings(tunings, {}, {}), found, {})
    return [body for _, body in tunings_to_create(members, tunings, found)]


def test_an_opted_in_server_without_a_tuning_gets_one_that_only_recommends():
    (body,) = made([opted_in(), a_deployment()], [])
    tuning = VLLMTuning.from_object(body)
    assert tuning.metadata.name == "llama"
    assert tuning.spec.target_ref.name == "llama"
    assert body["spec"]["updatePolicy"] == {"mode": "Recommend"}
    assert set(body["spec"]) == {"targetRef", "updatePolicy"}  # the policy fills the rest
    assert body["metadata"]["labels"]["vllmtuning.io/created-by-policy"] == "p"
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Deployment", "target-uid")
    assert "controller" not in owner


def test_any_tuning_of_the_server_is_enough():
    mine = a_tuning()
    mine["metadata"]["name"] = "mine"
    assert made([opted_in()], [mine]) == []
    newer = {**mine, "spec": {"targetRef": {"name": "llama"}, "slos": "of another version"}}
    assert made([opted_in()], [newer]) == []


def test_a_taken_name_is_left_to_its_owner():
    other = a_tuning(targetRef={"name": "other"})  # named llama, for another server
    (body,) = made([opted_in()], [other])
    assert body["metadata"]["name"] == "llama-auto"
    second = a_tuning(targetRef={"name": "third"})
    second["metadata"]["name"] = "llama-auto"
    assert made([opted_in()], [other, second]) == []


def test_only_servers_that_run_vllm_are_selected_and_stay():
    web = opted_in("web")
    web["spec"]["template"]["spec"]["containers"] = [{"name": "web", "image": "nginx:1"}]
    going = opted_in("going", deletionTimestamp="2026-11-29T12:00:00Z")
    elsewhere = maker(selector={"matchLabels": {"team": "b"}})
    assert made([web, going], []) == []
    assert made([opted_in()], [], elsewhere) == []
    assert made([opted_in()], [], maker(excludedNamespaces=["serving"])) == []


def test_of_two_policies_the_first_in_precedence_makes_it():
    (body,) = made([opted_in()], [], maker("low"), maker("high", priority=5))
    assert body["metadata"]["labels"]["vllmtuning.io/created-by-policy"] == "high"
