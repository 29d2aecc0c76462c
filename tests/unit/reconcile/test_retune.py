"""Measured again: for its age, for somebody else's limits, and never too soon."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from typing import Any

from tests.unit.reconcile.bench_events import a_whole_run
from tests.unit.reconcile.builders import NOW, a_deployment, a_tuning, conditions, message, observe
from tests.unit.reconcile.world import World, step
from vllm_tuning.reconcile.decide import decide
from vllm_tuning.reconcile.effects import CreateRun, DeleteTrial, PatchTarget
from vllm_tuning.tuning.run import RUN_SPEC

DAY = 24 * 3600
START_LOG = "non-default args: {'max_num_seqs': 64, 'max_num_batched_tokens': 4096}"


def finished(**spec: Any) -> World:
    """A tuning whose run has ended, its Job gone."""
    world = World(observe(a_tuning(**spec)))
    step(world)
    world.says(*a_whole_run(), complete=True)
    for _ in range(3):
        step(world)
    world.observed = replace(world.observed, jobs=(), pods=(), logs={})
    return world


def edit(world: World, **spec: Any) -> None:
    tuning = deepcopy(dict(world.observed.tuning))
    tuning["spec"] |= spec
    world.observed = replace(world.observed, tuning=tuning)


def created(world: World, seconds: float = 0) -> list[CreateRun]:
    return [e for e in step(world, seconds).effects if isinstance(e, CreateRun)]


def test_without_a_policy_nothing_is_measured_again():
    assert created(finished(), 366 * DAY) == []


def test_a_result_that_is_too_old_is_measured_again_once():
    world = finished(retunePolicy={"afterDays": 30})
    rest = step(world)
    ended = rest.status.run and rest.status.run.completion_time
    assert ended is not None
    assert rest.look_again_at is not None
    assert (rest.look_again_at - ended).days == 30
    assert created(world, 29 * DAY) == []
    (again,) = created(world, 2 * DAY)
    assert RUN_SPEC.validate_json(again.config_map["data"]["run.json"]).previous == ()
    assert created(world) == []
    world.says(*a_whole_run(), complete=True)
    for _ in range(3):
        step(world)
    world.observed = replace(world.observed, jobs=(), pods=(), logs={})
    assert created(world, DAY) == []
    assert len(created(world, 30 * DAY)) == 1


def test_a_crash_before_the_status_was_written_repeats_no_repetition():
    world = finished(retunePolicy={"afterDays": 30})
    world.now = NOW + timedelta(days=31)
    decision = decide(world.observed, world.now)
    world.perform(decision, status=False)
    world.now = world.now.replace(minute=5)
    assert decide(world.observed, world.now).effects == ()
    step(world)
    assert step(world).effects == ()


def test_the_next_run_waits_until_the_last_one_has_cooled():
    world = finished(retunePolicy={"cooldownSeconds": 7200})
    world.observed = replace(world.observed, target=a_deployment(image="vllm/vllm-openai:v0.21.0"))
    waiting = step(world, 3600)
    assert waiting.effects == ()
    assert conditions(waiting)["Progressing"] == ("True", "CoolingDown")
    assert "no run starts before 2026-11-29T14:00:00Z" in message(waiting, "Progressing")
    assert conditions(waiting)["RecommendationProvided"] == ("False", "Stale")
    assert waiting.look_again_at is not None
    assert step(world, 3000).announcements == ()
    assert len(created(world, 600)) == 1


def applied(**spec: Any) -> World:
    """A tuning whose recommendation serves."""
    world = finished(updatePolicy={"mode": "Auto"}, **spec)
    for _ in range(3):
        if any(isinstance(e, PatchTarget) for e in step(world).effects):
            break
    world.roll_out(log=START_LOG)
    for _ in range(2):
        decision = step(world)
    assert conditions(decision)["Applied"] == ("True", "RolledOut")
    return world


def with_limits(world: World, *flags: str) -> None:
    target = deepcopy(dict(world.observed.target or {}))
    container = target["spec"]["template"]["spec"]["containers"][0]
    container["args"] = [container["args"][0], *flags]
    world.observed = replace(world.observed, target=target)


THEIRS = ("--max-num-seqs=32", "--max-num-batched-tokens=4096")


def test_somebody_elses_limits_are_only_reported():
    world = applied()
    with_limits(world, *THEIRS)
    decision = step(world)
    assert decision.effects == ()
    assert conditions(decision)["Applied"] == ("False", "Drifted")


def test_somebody_elses_limits_become_the_new_baseline_if_wished():
    world = applied(retunePolicy={"onDrift": "Measure"})
    assert step(world).effects == ()
    with_limits(world, *THEIRS)
    (again,) = created(world)
    run = RUN_SPEC.validate_json(again.config_map["data"]["run.json"])
    assert run.problem.current.max_num_seqs == 32
    assert run.previous == ()
    world.says(*a_whole_run(), complete=True)
    kinds = [type(e) for _ in range(4) for e in step(world).effects]
    assert PatchTarget in kinds  # ours is better: Auto applies it, over limits that were measured
    world.roll_out(log=START_LOG)
    world.observed = replace(world.observed, jobs=(), pods=(), logs={})
    for _ in range(3):
        decision = step(world)
    assert not {CreateRun, PatchTarget} & {type(e) for e in decision.effects}
    assert conditions(decision)["Applied"] == ("True", "RolledOut")


def test_a_return_to_limits_that_were_measured_needs_no_run():
    world = applied(retunePolicy={"onDrift": "Measure"})
    with_limits(world, "--max-num-seqs=4", "--max-num-batched-tokens=2048")  # as at first
    assert step(world).effects == ()


def test_an_epoch_lasts_and_its_trials_are_kept():
    world = finished(retunePolicy={"afterDays": 1})
    (again,) = created(world, 2 * DAY)
    run = again.job["metadata"]["labels"]["vllmtuning.io/run"]
    world.says(*a_whole_run(), complete=True)
    for _ in range(3):
        decision = step(world)
    assert decision.status.run is not None
    assert decision.status.run.id == run
    edit(world, retunePolicy=None)
    rest = step(world)
    assert not {CreateRun, DeleteTrial} & {type(e) for e in rest.effects}
    assert rest.status.run is not None
    assert rest.status.run.id == run
