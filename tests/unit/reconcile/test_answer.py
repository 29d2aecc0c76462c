"""The first line of a status: what a person reads who looks once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.reconcile.bench_events import (
    BETTER,
    a_probe,
    a_whole_run,
    probe_began,
    probe_result,
    run_ended,
)
from tests.unit.reconcile.builders import a_tuning, observe
from tests.unit.reconcile.world import World, started, step
from vllm_tuning.tuning.model import Ending, Verdict
from vllm_tuning.tuning.run import RunEnded


def ended(world: World, *, ending: Ending = Ending.RECOMMENDED, **found: Any) -> Any:
    """The status once the bench has given this answer."""
    events = [event for event in a_whole_run() if not isinstance(event, RunEnded)]
    world.says(*events, run_ended(len(events), ending, **found), complete=True)
    world.finish_job("Complete")
    return step(world).status


def begun(**spec: Any) -> World:
    world = World(observe(a_tuning(**spec)))
    step(world)
    return world


def test_while_a_run_is_under_way_it_is_the_stage() -> None:
    world = begun()
    world.says(probe_began(1, a_probe("p1", BETTER)))

    assert step(world).status.answer == "Search: probe p1"


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("Recommend", "RecommendOnly: mode Recommend: apply status.recommendation.patch by hand"),
        ("Manual", "WaitingForApproval: to apply: kubectl annotate vt/llama vllmtuning.io/approve"),
        ("Auto", "RollingOut: about to write max_num_seqs=64"),
    ],
)
def test_after_it_the_finding_and_what_becomes_of_it(mode: str, words: str) -> None:
    status = ended(begun(updatePolicy={"mode": mode}))

    assert words in status.answer
    assert status.answer.startswith(
        "RollingOut" if mode == "Auto" else "Recommended: the run says Recommended"
    )


def test_a_finding_without_a_change_stands_alone() -> None:
    status = ended(begun(), ending=Ending.NO_IMPROVEMENT)

    assert status.answer == "NoImprovement: the run says NoImprovement"


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        ({"target": None}, "TargetNotFound: there is no Deployment llama"),
        ({"tuning": a_tuning(suspend=True)}, "Suspended: spec.suspend is true"),
        ({"tuning": a_tuning(slos=None)}, "Invalid: nothing to hold: add slos"),
    ],
)
def test_what_a_person_has_to_do_comes_first(observed: dict[str, Any], words: str) -> None:
    assert words in step(World(observe(**observed))).status.answer


def test_the_gain_is_told_with_what_the_measurements_allow_and_the_replicas_of_a_demand() -> None:
    world = started()

    found = ended(world, gain_range_percent=(101.6, 140.2), replicas=3).recommendation

    assert found.to_object()["gainRangePercent"] == {"least": 102, "greatest": 140}
    assert found.replicas == 3
    assert found.confirmed.probe_id == "p9"


@pytest.mark.parametrize(
    ("ending", "told"), [(Ending.RECOMMENDED, False), (Ending.SLA_UNSATISFIABLE, True)]
)
def test_what_came_closest_is_told_where_nothing_meets_the_sla(ending: Ending, told: bool) -> None:
    miss = probe_result(a_probe("p5", BETTER), Verdict.FAIL, 900)

    found = ended(started(), ending=ending, nearest_miss=miss).recommendation

    assert (found.nearest_miss is not None) is told
