"""A workload learnt from the target's own metrics: what is taken, when, and how long it holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.metrics_page import traffic_page
from tests.unit.reconcile.bench_events import a_whole_run
from tests.unit.reconcile.builders import (
    NOW,
    a_deployment,
    a_tuning,
    conditions,
    message,
    observe,
    policy,
)
from tests.unit.reconcile.world import World
from vllm_tuning.engine.traffic import Traffic, read_traffic
from vllm_tuning.reconcile.decide import decide
from vllm_tuning.reconcile.effects import CreateRun, Decision
from vllm_tuning.reconcile.observed import PodTraffic
from vllm_tuning.tuning.model import Workload
from vllm_tuning.tuning.run import RUN_SPEC

CHAT = [(300, 40)] * 270 + [(1500, 400)] * 30
"""Prompts of 420 tokens in the mean, answers of 76."""


def traffic(
    lengths: list[tuple[int, int]] = CHAT, *, hits: float = 0.0, hours: float = 1.0
) -> Traffic:
    begun = (NOW - timedelta(hours=hours)).timestamp()
    page = traffic_page(lengths, hit_fraction=hits, begun_at=begun)
    return read_traffic(page, now=NOW.timestamp())


def serving(name: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "labels": {"pod-template-hash": "1"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "llama-1", "uid": "rs-1"}],
        },
        "status": {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]},
    }


class Served(World):
    """A world whose target serves: its pods are read when a decision asks for it."""

    def __init__(self, told: tuple[Traffic | str, ...] = (traffic(),), **spec: Any) -> None:
        pods = tuple(serving(f"llama-1-{n}") for n in range(len(told)))
        super().__init__(observe(a_tuning(**spec), target_pods=pods))
        self.told = told
        self.asked = 0

    def look(self, hours: float = 0) -> Decision:
        """Decide once as the controller does, and perform it."""
        self.now += timedelta(hours=hours)
        decision = decide(self.observed, self.now)
        if decision.traffic_wanted is not None:
            self.asked += 1
            assert len(decision.traffic_wanted.pods) == len(self.told)
            read = tuple(
                PodTraffic(f"llama-1-{n}", None, told)
                if isinstance(told, str)
                else PodTraffic(f"llama-1-{n}", told)
                for n, told in enumerate(self.told)
            )
            decision = decide(replace(self.observed, target_traffic=read), self.now)
        self.perform(decision)
        return decision

    def settle(self, hours: float = 0) -> list[CreateRun]:
        """Look until nothing more follows; return the runs that were made."""
        made = []
        for _ in range(4):
            decision = self.look(hours)
            made += [e for e in decision.effects if isinstance(e, CreateRun)]
            hours = 0
        return made

    def finish(self) -> None:
        """The bench ends, and its Job goes."""
        self.says(*a_whole_run(), complete=True)
        self.settle()
        self.observed = replace(self.observed, jobs=(), pods=(), logs={})

    @property
    def effective(self) -> dict[str, Any]:
        found: dict[str, Any] = self.observed.tuning["status"]["effective"]
        return found

    @property
    def learnt(self) -> dict[str, Any]:
        found: dict[str, Any] = self.effective["learnt"]
        return found

    def source(self, field: str) -> tuple[str, str | None]:
        notes = {note["field"]: note for note in self.effective["sources"]}
        note = notes[f"workload.{field}"]
        return note["source"], note.get("name")


def workload_of(run: CreateRun) -> Workload:
    return RUN_SPEC.validate_json(run.config_map["data"]["run.json"]).problem.workload


def test_what_nobody_declares_is_learnt_and_drawn_from_the_engines_own_buckets():
    world = Served((traffic(hits=0.3), traffic(hits=0.3)))
    (run,) = world.settle()
    found = workload_of(run)
    assert (found.input_tokens.mean, found.output_tokens.mean) == (420, 76)
    shares = dict(found.input_tokens.histogram)
    assert sorted(weight for weight in shares.values() if weight) == [60, 540]
    assert found.shared_prefix_percent == 30
    assert found.rate_per_second == pytest.approx(600 / 3600)
    assert found.origin.startswith(
        "learnt from 600 requests that 2 of 2 pods of llama have served since 2026-11-29T11:00Z: "
        "prompts 420 tokens ± 6 % (p50 201 to 500, p95 1001 to 2000), outputs 76 tokens ± "
    )
    assert found.origin.endswith(
        ", 30 % of prompt tokens from the prefix cache, 10 requests a minute in the mean (peaks "
        "are higher)"
    )
    for field in ("inputTokens", "outputTokens", "sharedPrefixPercent", "requestsPerMinute"):
        assert world.source(field) == ("Target", "llama")
    assert world.effective["workload"]["inputTokens"]["mean"] == 420


def test_it_is_written_down_before_a_run_rests_on_it():
    world = Served()
    first = world.look()
    assert first.effects == ()
    assert conditions(first)["Progressing"] == ("True", "Pending")
    assert world.learnt["requests"] == 300
    (announced,) = [a for a in world.look().announcements if a.reason == "RunStarted"]
    assert "workload: learnt from 300 requests" in announced.message


def test_an_operator_that_dies_makes_no_other_run():
    world = Served()
    world.look()
    decision = decide(world.observed, world.now)
    world.perform(decision, status=False)
    world.told = (traffic(CHAT * 2),)  # it goes on serving
    assert world.settle() == []
    assert len(world.observed.jobs) == 1
    assert world.asked == 1


def test_a_finished_run_is_not_made_old_by_traffic():
    world = Served()
    world.settle()
    world.finish()
    world.told = (traffic([(10, 10)] * 900),)
    assert world.settle(hours=240) == []
    assert world.asked == 1
    world.edit(updatePolicy={"mode": "Manual"}, budget={"gpuSeconds": 99})
    assert world.settle() == []


def test_another_sla_is_asked_of_the_same_measurement():
    world = Served()
    world.settle()
    world.finish()
    before = world.observed.tuning["status"]["run"]
    world.told = (traffic([(10, 10)] * 900),)
    world.edit(slos=[{"metric": "TTFT", "percentile": 95, "maxMilliseconds": 299}])
    world.settle()
    after = world.observed.tuning["status"]["run"]
    assert after["id"] != before["id"]
    assert after["fingerprint"] == before["fingerprint"]
    assert world.asked == 1


@pytest.mark.parametrize("cause", ["image", "rerun", "age"])
def test_another_measurement_learns_anew(cause: str):
    world = Served(retunePolicy={"afterDays": 30})
    world.settle()
    world.finish()
    world.told = (traffic([(10, 10)] * 900),)
    hours = 0.0
    if cause == "image":
        target = a_deployment(image="vllm/vllm-openai:v0.21.0")
        world.observed = replace(world.observed, target=target)
    elif cause == "rerun":
        world.annotate("vllmtuning.io/rerun", "1")
    else:
        hours = 31 * 24
    (run,) = world.settle(hours)
    assert workload_of(run).input_tokens.mean == 10
    assert world.asked == 2


def test_a_run_that_waits_long_begins_with_fresh_numbers():
    night = [{"start": "22:00", "durationMinutes": 60}]
    world = Served(windows=night)
    assert world.settle() == []
    assert world.settle(hours=0.5) == []
    assert world.asked == 1
    world.told = (traffic([(10, 10)] * 900),)
    (run,) = world.settle(hours=9.6)
    assert world.asked == 2
    assert workload_of(run).input_tokens.mean == 10


def test_while_suspended_nothing_is_read_again():
    world = Served(suspend=True)
    world.settle()
    world.settle(hours=50)
    assert world.asked == 1
    world.edit(suspend=False)
    assert len(world.settle()) == 1
    assert world.asked == 2


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ((), "no pod of it is ready"),
        ((traffic(CHAT[:12]),), "12 requests so far, 300 are needed"),
        ((Traffic(),), "0 requests so far, 300 are needed"),
        (("http://10.0.0.7:8000/metrics: refused",), "can not be read: http://10.0.0.7:8000/m"),
    ],
)
@pytest.mark.parametrize("profile", [None, "Chat"])
def test_what_can_not_be_learnt_is_told_and_the_default_used(
    told: tuple[Traffic | str, ...], why: str, profile: str | None
):
    world = Served(told, **({"profile": profile} if profile else {}))
    (run,) = world.settle()
    found = workload_of(run)
    assert (found.input_tokens.mean, found.input_tokens.histogram) == (512, ())
    instead = "those of profile Chat" if profile else "the default ones"
    assert found.origin.startswith(f"nothing learnt from llama, lengths are {instead}: ")
    assert why in found.origin
    assert world.learnt["message"] == found.origin
    assert world.source("inputTokens") == (("Profile", "Chat") if profile else ("Default", None))
    world.told = (traffic(),)
    assert world.settle(hours=100) == []  # a run that has begun keeps what it began with


@pytest.mark.parametrize(
    ("declared", "instead"),
    [
        ({"inputTokens": {"mean": 9}}, ", the other lengths are the default ones"),
        ({"inputTokens": {"mean": 9}, "outputTokens": {"mean": 9}}, ""),
    ],
)
def test_no_default_is_told_of_for_what_is_declared(declared: dict[str, Any], instead: str):
    world = Served((), workload=declared)
    (run,) = world.settle()
    told = f"nothing learnt from llama{instead}: no pod of it is ready"
    assert workload_of(run).origin == told


def test_a_pod_that_can_not_be_read_is_counted_in_the_rate_and_told():
    world = Served((traffic(), "refused"))
    (run,) = world.settle()
    assert "1 of 2 pods" in workload_of(run).origin
    assert world.effective["workload"]["requestsPerMinute"] == 10  # 5 of the one that was read


def test_declared_fields_win_one_by_one():
    world = Served(
        workload={"inputTokens": {"mean": 9}, "requestsPerMinute": 7, "sharedPrefixPercent": 5}
    )
    (run,) = world.settle()
    found = workload_of(run)
    assert (found.input_tokens.mean, found.input_tokens.histogram) == (9, ())
    assert (found.output_tokens.mean, found.shared_prefix_percent) == (76, 5)
    assert "inputTokens" not in world.learnt
    assert world.effective["workload"]["requestsPerMinute"] == 7
    assert world.source("inputTokens") == ("Spec", None)
    assert world.source("outputTokens") == ("Target", "llama")


def test_what_a_policy_declares_wins_too():
    world = Served()
    defaults = {"workload": {"inputTokens": {"mean": 9}}}
    given_by = policy("p", defaults=defaults).to_object()
    world.observed = replace(world.observed, policies=(given_by,))
    (run,) = world.settle()
    assert workload_of(run).input_tokens.mean == 9
    assert workload_of(run).output_tokens.mean == 76
    assert world.source("inputTokens") == ("Policy", "p")


@pytest.mark.parametrize(
    "workload",
    [
        {"source": "Declared"},
        {
            "inputTokens": {"mean": 9},
            "outputTokens": {"mean": 9},
            "sharedPrefixPercent": 0,
            "requestsPerMinute": 9,
        },
    ],
)
def test_where_nothing_is_to_be_learnt_nobody_is_asked(workload: dict[str, Any]):
    world = Served(workload=workload)
    (run,) = world.settle()
    assert world.asked == 0
    assert "learnt" not in world.effective
    assert workload_of(run).origin == ""


def test_no_rate_for_clients_and_none_instead_of_a_declared_demand():
    closed = Served(workload={"concurrency": 8})
    assert workload_of(closed.settle()[0]).rate_per_second is None
    fixed = Served(objective="MinLatencyAtRate", workload={"requestsPerMinute": 60})
    assert workload_of(fixed.settle()[0]).rate_per_second == 1


def test_declaring_what_was_the_default_measures_nothing_anew():
    world = Served(("refused",))
    world.settle()
    world.finish()
    world.edit(workload={"source": "Declared"})
    assert world.settle() == []
    assert conditions(world.look())["RecommendationProvided"][0] == "True"


def test_a_target_that_is_gone_for_a_while_takes_nothing_of_it_away():
    world = Served()
    world.settle()
    world.finish()
    target = world.observed.target
    world.observed = replace(world.observed, target=None)
    world.settle()
    assert world.source("inputTokens") == ("Target", "llama")
    world.observed = replace(world.observed, target=target)
    assert world.settle() == []


def test_a_decision_without_a_reader_goes_on_with_the_default():
    world = World(observe(a_tuning()))
    decision = decide(world.observed, NOW)
    assert decision.traffic_wanted is not None
    (run,) = decision.effects
    assert isinstance(run, CreateRun)
    assert workload_of(run).input_tokens.mean == 512
    assert message(decision, "Accepted") == "the wish is valid"


_LINES = st.lists(
    st.tuples(
        st.sampled_from(
            [
                'vllm:request_prompt_tokens_bucket{le="%s"}',
                'vllm:request_generation_tokens_bucket{le="%s"}',
                'vllm:request_prompt_tokens_sum{x="%s"}',
                'vllm:request_generation_tokens_sum{x="%s"}',
                'vllm:prefix_cache_hits_total{x="%s"}',
                'vllm:prefix_cache_queries_total{x="%s"}',
                'vllm:num_preemptions_created{x="%s"}',
            ]
        ),
        st.sampled_from(["0.5", "1", "1.5", "7", "1000", "1e9", "1e300", "-3", "NaN", "+Inf"]),
        st.one_of(
            st.integers(-5, 10**6),
            st.sampled_from(["NaN", "+Inf", "-Inf", "1e300", "1e14"]),
        ),
    ),
    max_size=30,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=150)
@given(_LINES)
def test_no_page_breaks_a_decision(lines: list[tuple[str, str, Any]]):
    """A pod of the target may say what it likes: a workload follows from it, or none."""
    ends = [
        f'vllm:request_{side}_tokens_bucket{{le="+Inf"}} 500' for side in ("prompt", "generation")
    ]
    page = "\n".join([*(f"{name % label} {value}" for name, label, value in lines), *ends])
    world = Served((read_traffic(page, now=NOW.timestamp()),))
    (run,) = world.settle()
    found = workload_of(run)
    for lengths in (found.input_tokens, found.output_tokens):
        edges = [edge for edge, _ in lengths.histogram]
        assert edges == sorted(set(edges))
        assert lengths.mean >= 1
