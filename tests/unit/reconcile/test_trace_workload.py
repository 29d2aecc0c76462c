"""A workload from a trace in a ConfigMap: what is taken, what is refused, what starts a run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.reconcile.bench_events import a_whole_run
from tests.unit.reconcile.builders import NOW, a_tuning, conditions, message, observe, policy
from tests.unit.reconcile.world import World, finish, step
from vllm_tuning.reconcile.decide import decide
from vllm_tuning.reconcile.effects import CreateRun, DeleteJob
from vllm_tuning.tuning.model import Lengths, Workload
from vllm_tuning.tuning.run import RUN_SPEC

REF = {"name": "traces", "key": "azure.csv"}
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,400,10
2023-11-16 18:17:04.0319600,200,30
2023-11-16 18:17:05.0319600,200,many
"""
MOONCAKE = "\n".join(
    json.dumps({"timestamp": at, "input_length": 600, "output_length": 5, "hash_ids": [0, at]})
    for at in (0, 1000)
)


def replaying(text: str | None = AZURE, ref: dict[str, str] = REF, **workload: Any) -> World:
    """A tuning with a trace, and the ConfigMap if there is one."""
    tuning = a_tuning(workload={"traceRef": ref, **workload})
    maps = {} if text is None else {"traces": {"azure.csv": text}}
    return World(observe(tuning, config_maps=maps))


def made(world: World) -> dict[str, Any]:
    (run,) = [e for e in step(world).effects if isinstance(e, CreateRun)]
    return {"job": run.job, "workload": workload_of(run)}


def workload_of(run: CreateRun) -> Workload:
    return RUN_SPEC.validate_json(run.config_map["data"]["run.json"]).problem.workload


def test_its_lengths_content_and_left_out_rows_reach_run_and_status():
    world = replaying()
    found = made(world)["workload"]
    assert found.input_tokens == Lengths(mean=300, cv_percent=33, maximum=400)
    assert found.output_tokens == Lengths(mean=20, cv_percent=50, maximum=30)
    assert found.trace_sha256 == hashlib.sha256(AZURE.encode()).hexdigest()
    told = (
        "trace traces/azure.csv: 2 requests over 0 s in Azure's format; 1 row left out (line 4: "
        "invalid literal for int() with base 10: 'many')"
    )
    assert found.origin == told
    effective = world.observed.tuning["status"]["effective"]
    assert effective["trace"] == {
        "sha256": found.trace_sha256,
        "requests": 2,
        "rowsLeftOut": 1,
        "inputTokens": {"mean": 300, "cvPercent": 33, "max": 400},
        "outputTokens": {"mean": 20, "cvPercent": 50, "max": 30},
        "message": told,
    }
    assert {"field": "workload.traceRef", "source": "Spec"} in effective["sources"]
    assert "learnt" not in effective
    assert effective["workload"] == {
        "traceRef": REF,
        "arrival": "Open",
        "sharedPrefixPercent": 0,
    }


def test_the_bench_alone_mounts_the_one_key_and_keeps_it():
    found = made(replaying())
    pod = found["job"]["spec"]["template"]["spec"]
    (volume,) = [v for v in pod["volumes"] if v.get("configMap", {}).get("name") == "traces"]
    assert volume["configMap"]["items"] == [{"key": "azure.csv", "path": "trace"}]
    mounts = {
        container["name"]: mount
        for container in (*pod["initContainers"], *pod["containers"])
        for mount in container["volumeMounts"]
        if mount["name"] == volume["name"]
    }
    assert mounts == {
        "bench": {
            "name": volume["name"],
            "mountPath": found["workload"].trace_path,
            "subPath": "trace",  # such a mount does not follow edits of the ConfigMap
            "readOnly": True,
        }
    }


@pytest.mark.parametrize(
    ("world", "reason", "words"),
    [
        (
            replaying(None),
            "TraceNotFound",
            "no ConfigMap traces in this namespace: kubectl create configmap traces --from-file=az",
        ),
        (
            replaying(ref={"name": "traces", "key": "other"}),
            "TraceNotFound",
            "no text under key other (keys with text: azure.csv); write one of these, or kubectl",
        ),
        (replaying("a,b\n1,2\n"), "TraceInvalid", "ConfigMap traces/azure.csv: neither Azure"),
        (replaying(AZURE.splitlines()[0]), "TraceInvalid", "no usable row: it is empty; workload"),
        (
            replaying(MOONCAKE, sharedPrefixPercent=10),
            "TraceInvalid",
            "remove workload.sharedPrefixPercent",
        ),
    ],
    ids=["no ConfigMap", "no key", "no trace", "no row", "two prefixes"],
)
def test_what_is_missing_or_wrong_is_told_with_what_to_do(world: World, reason: str, words: str):
    decision = step(world)
    assert decision.effects == ()
    assert conditions(decision)["Accepted"] == ("False", reason)
    assert conditions(decision)["Stalled"] == ("True", reason)
    assert words in message(decision, "Accepted")
    assert len([a for a in decision.announcements if a.reason == "InvalidSpec"]) == 1
    assert decision.look_again_at == NOW + timedelta(seconds=15)  # nobody tells of a ConfigMap
    assert step(world).announcements == ()


def test_it_goes_on_by_itself_once_the_trace_is_there():
    world = replaying(None)
    step(world)
    world.observed = replace(world.observed, config_maps={"traces": {"azure.csv": AZURE}})
    assert made(world)["workload"].input_tokens.mean == 300


def test_a_trace_that_goes_stops_the_run():
    world = replaying()
    step(world)
    world.observed = replace(world.observed, config_maps={})
    assert [type(e) for e in step(world).effects] == [DeleteJob]


def test_another_content_is_another_measurement_and_another_name_is_not():
    world = replaying()
    step(world)
    finish(world, *a_whole_run())
    renamed = {"other": {"x": AZURE}, "traces": {"azure.csv": AZURE + AZURE.splitlines()[1]}}
    world.observed = replace(world.observed, config_maps=renamed)
    world.edit(workload={"traceRef": {"name": "other", "key": "x"}})
    assert step(world).effects == ()
    world.edit(workload={"traceRef": REF})
    assert [type(e) for e in step(world).effects] == [CreateRun]


def test_shared_blocks_of_a_trace_and_a_declared_prefix_without_them():
    assert made(replaying(MOONCAKE))["workload"].shared_prefix_percent == 0
    assert made(replaying(sharedPrefixPercent=20))["workload"].shared_prefix_percent == 20


def test_a_trace_for_a_number_of_clients():
    found = made(replaying(concurrency=8))["workload"]
    assert (found.arrival, found.concurrency) == ("Closed", 8)
    assert found.trace_path is not None


def test_lengths_of_a_policy_do_not_mix_with_a_tunings_trace():
    world = replaying(MOONCAKE)
    defaults = {
        "workload": {"inputTokens": {"mean": 9}, "sharedPrefixPercent": 9, "arrival": "Open"}
    }
    given_by = policy("p", defaults=defaults).to_object()
    world.observed = replace(world.observed, policies=(given_by,))
    assert made(world)["workload"].input_tokens.mean == 600
    sources = {
        note["field"]: note["source"]
        for note in world.observed.tuning["status"]["effective"]["sources"]
    }
    assert "workload.inputTokens" not in sources
    assert sources["workload.arrival"] == "Policy"


def test_a_trace_as_large_as_a_config_map_may_be_makes_no_large_status():
    rows = "2023-11-16 18:17:03.9799600,400,10\n" * 29_000
    text = AZURE.splitlines()[0] + "\n" + rows
    assert 1_000_000 < len(text) <= 2**20
    world = replaying(text)
    assert made(world)["workload"].origin.startswith("trace traces/azure.csv: 29,000 requests")
    decision = decide(world.observed, NOW)
    assert decision.status.effective is not None
    assert len(str(decision.status.effective.to_object())) < 4096
