"""Another SLA on what is measured already: judged from the trials, and a GPU only for the rest."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.simulated_bench import measure
from tests.unit.reconcile.builders import a_deployment, a_tuning, conditions, message, observe
from tests.unit.reconcile.world import World, step
from vllm_tuning.api.status import SLAState
from vllm_tuning.reconcile.decide import decide
from vllm_tuning.reconcile.effects import CreateRun, Decision, DeleteJob
from vllm_tuning.tuning.run import RUN_SPEC, ProbeBegan, ProbeEnded, RunSpec, RunStarted

TTFT = {"metric": "TTFT", "percentile": 95, "maxMilliseconds": 200}
TPOT = {"metric": "TPOT", "percentile": 95, "maxMilliseconds": 25}
ROOMY = {"metric": "E2ELatency", "percentile": 50, "maxMilliseconds": 60_000}
"""A bound that binds nowhere."""


def quick_tuning(*slos: dict[str, Any], **fields: Any) -> dict[str, Any]:
    spec = {
        "workload": {"inputTokens": {"mean": 64}, "outputTokens": {"mean": 16}},
        "slos": list(slos),
        **fields,
    }
    tuning = a_tuning(**spec)
    tuning["metadata"]["annotations"] = {"vllmtuning.io/quick": "true"}
    return tuning


def asked(decision: Decision) -> RunSpec:
    (effect,) = [e for e in decision.effects if isinstance(e, CreateRun)]
    return RUN_SPEC.validate_json(effect.config_map["data"]["run.json"])


def finished(*slos: dict[str, Any], **fields: Any) -> World:
    """A tuning whose run has ended with an answer, its Job gone."""
    world = World(observe(quick_tuning(*(slos or (TTFT, TPOT)), **fields)))
    run = asked(step(world))
    world.says(*measure(run.problem, run.previous), complete=True)
    for _ in range(3):
        step(world)
    world.observed = replace(world.observed, jobs=(), pods=(), logs={})
    assert step(world).effects == ()
    return world


def edit(world: World, **spec: Any) -> None:
    tuning = deepcopy(dict(world.observed.tuning))
    tuning["spec"] |= spec
    tuning["metadata"]["generation"] += 1
    world.observed = replace(world.observed, tuning=tuning)


def test_an_unchanged_question_never_runs_again():
    world = finished()
    edit(world, historyLimit=9, budget={"gpuSeconds": 60})
    assert step(world).effects == ()
    assert step(world, seconds=30 * 24 * 3600).effects == ()


def test_an_sla_that_binds_nowhere_is_answered_without_a_gpu_second():
    world = finished()
    before = decide(world.observed, world.now).status
    edit(world, slos=[TTFT, TPOT, ROOMY])
    decision = step(world)
    assert decision.effects == ()
    found, run = decision.status.recommendation, decision.status.run
    assert found is not None
    assert before.recommendation is not None
    assert run is not None
    assert before.run is not None
    assert run.id != before.run.id
    assert run.judged_from == before.run.id
    assert found.limits == before.recommendation.limits
    assert found.hash != before.recommendation.hash  # an approval is for an SLA, too
    assert len(found.margins) == 3
    assert "no GPU" in found.message
    assert decision.status.usage is not None
    assert decision.status.usage.gpu_seconds == 0
    assert decision.status.history[0].gpu_seconds == 0
    assert "JudgedAnew" in [a.reason for a in decision.announcements]
    assert conditions(decision)["RecommendationProvided"] == ("True", "Recommended")
    rest = step(world)
    assert (rest.effects, rest.announcements) == ((), ())


def test_an_sla_that_is_tightened_within_the_margin_is_answered_without_a_gpu_second():
    world = finished()
    before = step(world).status
    edit(world, slos=[{**TTFT, "maxMilliseconds": 190}, TPOT])
    decision = step(world)
    assert decision.effects == ()
    found = decision.status.recommendation
    assert found is not None
    assert before.recommendation is not None
    assert found.limits == before.recommendation.limits
    assert found.load == before.recommendation.load
    assert "that load meets it as well" in found.message
    assert [margin.slo.max_milliseconds for margin in found.margins] == [190, 25]


def test_an_sla_that_comes_back_is_answered_by_its_own_measurements():
    world = finished()
    first = decide(world.observed, world.now).status
    edit(world, slos=[TTFT, TPOT, ROOMY])
    step(world)
    edit(world, slos=[TPOT, TTFT])  # their order says nothing
    decision = step(world)
    assert decision.effects == ()
    assert first.run is not None
    assert decision.status.run is not None
    assert decision.status.run.id == first.run.id


def test_a_suspended_tuning_is_judged_anew_as_well():
    world = finished()
    edit(world, slos=[TTFT, TPOT, ROOMY], suspend=True)
    decision = step(world)
    assert decision.effects == ()
    assert "no GPU" in message(decision, "RecommendationProvided")


def test_an_sla_that_binds_elsewhere_begins_with_what_holds_and_says_what_is_missing():
    world = finished()
    before = decide(world.observed, world.now).status
    edit(world, slos=[TTFT, {**TPOT, "maxMilliseconds": 15}])
    decision = step(world)
    run = asked(decision)
    assert 0 < len(run.previous) < 10
    assert run.problem.budget.gpu_seconds > 14_400  # what was paid before is not charged again
    told = {a.reason: a.message for a in decision.announcements}
    assert "first to be measured: seqs" in told["JudgedAnew"]
    assert decision.status.run is not None
    assert before.run is not None
    assert decision.status.run.judged_from == before.run.id

    events = measure(run.problem, run.previous)
    assert isinstance(events[0], RunStarted)
    assert events[0].replayed == len(run.previous)
    world.says(*events[:5])
    step(world)
    world.finish_job("Failed", "PodFailurePolicy", "evicted")
    again = asked(step(world))
    assert again.attempt == 2
    assert again.previous[: len(run.previous)] == run.previous
    lost = [event.result for event in events[2:5] if isinstance(event, ProbeEnded)]
    assert len(lost) == 3
    assert set(lost) <= set(again.previous)  # what the lost pod had measured

    world.says(*measure(again.problem, again.previous), complete=True)
    for _ in range(3):
        decision = step(world)
    assert conditions(decision)["Succeeded"][0] in ("True", "False")
    runs = {trial["spec"]["runID"] for trial in world.observed.trials}
    assert runs >= {before.run.id}  # still there for the next SLA


def test_a_wish_to_repeat_is_not_answered_from_the_store():
    world = finished()
    tuning = deepcopy(dict(world.observed.tuning))
    tuning["metadata"]["annotations"]["vllmtuning.io/rerun"] = "1"
    world.observed = replace(world.observed, tuning=tuning)
    assert asked(step(world)).previous == ()


def test_another_workload_is_another_measurement():
    world = finished()
    edit(world, slos=[TTFT, TPOT, ROOMY], workload={"inputTokens": {"mean": 65}})
    assert asked(step(world)).previous == ()


def test_an_applied_recommendation_stays_one_under_an_sla_that_it_meets():
    """The target has other limits than when it was measured; the stored baseline tells which."""
    world = finished()
    found = decide(world.observed, world.now).status.recommendation
    assert found is not None
    assert found.limits is not None
    target = a_deployment(
        args=[
            "meta-llama/Llama-3.1-8B-Instruct",
            f"--max-num-seqs={found.limits.max_num_seqs}",
            f"--max-num-batched-tokens={found.limits.max_num_batched_tokens}",
        ]
    )
    world.observed = replace(world.observed, target=target)
    assert step(world).effects == ()
    edit(world, slos=[TTFT, TPOT, ROOMY])
    decision = step(world, seconds=timedelta(minutes=1).total_seconds())
    assert decision.effects == ()
    assert "which the target had then" in message(decision, "RecommendationProvided")
    assert conditions(decision)["Applied"] == ("True", "RolledOut")


def test_an_sla_that_is_edited_during_a_run_takes_over_what_holds():
    world = World(observe(quick_tuning(TTFT, TPOT)))
    run = asked(step(world))
    events = measure(run.problem, run.previous)
    began = next(event.result.probe for event in events[6:] if isinstance(event, ProbeEnded))
    world.says(*events[:6], ProbeBegan(6, events[6].time, began))
    step(world)
    assert "Running" in [t["status"]["outcome"] for t in world.observed.trials]

    edit(world, slos=[TTFT, {**TPOT, "maxMilliseconds": 20}])
    assert [type(e) for e in step(world).effects] == [DeleteJob]
    world.observed = replace(world.observed, pods=(), logs={})
    decision = step(world)
    assert len(asked(decision).previous) > 0
    assert "JudgedAnew" in [a.reason for a in decision.announcements]
    assert "Running" not in [t["status"]["outcome"] for t in world.observed.trials]


def test_until_it_is_judged_an_sla_counts_as_neither_met_nor_missed():
    world = finished()
    assert step(world).status.sla is SLAState.MET
    edit(world, workload={"inputTokens": {"mean": 65}}, suspend=True)
    decision = step(world)
    assert decision.status.sla is None
    assert conditions(decision)["RecommendationProvided"] == ("False", "Stale")
