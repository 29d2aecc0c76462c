"""The fleet by its own metrics: met, missed, or honestly not known."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.unit.reconcile.builders import a_deployment, policy
from vllm_tuning.api.policy import MAX_MEMBERS, LiveState
from vllm_tuning.api.values import SLO
from vllm_tuning.engine.latency import Histogram, LatencyPage
from vllm_tuning.reconcile.fleet import (
    endpoint_of,
    find_members,
    live_fleet,
    serving_pods,
)
from vllm_tuning.reconcile.live import LiveVerdict, judge_live, judge_slo
from vllm_tuning.reconcile.policy_status import read_tunings

TTFT = {"metric": "TTFT", "percentile": 95, "maxMilliseconds": 250}


def slo(**fields: Any) -> SLO:
    return SLO.model_validate({**TTFT, **fields})


def window(*within: tuple[float, float], count: float = 100, **fields: Any) -> LatencyPage:
    """``within`` = (edge in seconds, requests of at most that)."""
    ttft = Histogram({**dict(within), math.inf: count})
    return LatencyPage({"TTFT": ttft}, finished={"stop": count}, **fields)


@pytest.mark.parametrize(
    ("bound", "within", "state"),
    [
        (250, ((0.25, 95),), "Meeting"),
        (250, ((0.25, 94),), "Missing"),
        (300, ((0.25, 95), (0.5, 100)), "Meeting"),  # the edge below is enough
        (300, ((0.25, 90), (0.5, 94)), "Missing"),  # the edge above is not
        (300, ((0.25, 90), (0.5, 99)), "Unknown"),  # finer than the buckets
        (900, ((0.25, 90),), "Unknown"),  # beyond the last edge
        (100, ((0.25, 99),), "Unknown"),  # below the first
    ],
)
def test_a_bound_between_two_edges_is_known_only_where_both_agree(
    bound: int, within: tuple[tuple[float, float], ...], state: str
):
    assert judge_slo(slo(maxMilliseconds=bound), window(*within)).state == state


def test_what_is_not_known_says_why():
    told = judge_slo(slo(maxMilliseconds=300), window((0.25, 90), (0.5, 99))).message
    assert told == (
        "p95 TTFT ≤ 300 ms: 90% to 99% within: the engine counts at 250 and 500 ms only"
    )
    assert "no traffic" in judge_slo(slo(), window((0.25, 0), count=0)).message
    few = judge_slo(slo(), window((0.25, 19), count=19))
    assert (few.state, "fewer than 20" in few.message) == (LiveState.UNKNOWN, True)
    gap = judge_slo(slo(metric="MaxGap"), window((0.25, 100)))
    assert (gap.state, "no histogram" in gap.message) == (LiveState.UNKNOWN, True)


def test_rates_count_what_the_engine_counts():
    errors = SLO.model_validate({"metric": "ErrorRate", "maxPercent": 1})
    page = LatencyPage(finished={"stop": 97, "error": 3})
    assert judge_slo(errors, page).state is LiveState.MISSING
    assert judge_slo(errors, LatencyPage(finished={"stop": 100})).state is LiveState.MEETING
    left = LatencyPage(finished={"stop": 90, "abort": 10})
    assert judge_slo(errors, left).state is LiveState.UNKNOWN
    preempted = SLO.model_validate({"metric": "PreemptionRate", "maxPercent": 1})
    assert judge_slo(preempted, LatencyPage(finished={"stop": 100})).state is LiveState.UNKNOWN
    page = LatencyPage(finished={"stop": 100}, preemptions=2)
    assert judge_slo(preempted, page).state is LiveState.MISSING


def test_one_missed_slo_is_enough_and_one_unknown_is_not_met():
    page = window((0.25, 99))
    met, finer = slo(), slo(maxMilliseconds=300, percentile=99)
    assert judge_live([met], page).state is LiveState.MEETING
    missed = slo(maxMilliseconds=250, percentile=99)
    page = window((0.25, 98), (0.5, 99))
    assert judge_live([met, missed, finer], page).state is LiveState.MISSING
    assert judge_live([met, slo(metric="MaxGap")], page).state is LiveState.UNKNOWN
    assert judge_live([], page).state is LiveState.UNKNOWN


def a_named(name: str, **labels: str) -> dict[str, Any]:
    body = a_deployment()
    body["metadata"] |= {"name": name, "labels": labels}
    return body


def test_members_are_what_runs_vllm_and_a_policy_selects():
    web = a_named("web", team="a")
    web["spec"]["template"]["spec"]["containers"] = [{"name": "web", "image": "nginx:1"}]
    bodies = [web, a_named("tuned", team="a"), a_named("bare", team="a"), a_named("other")]
    mine = policy("p", selector={"matchLabels": {"team": "a"}}, defaults={"slos": [TTFT]})
    other = {"metric": "TPOT", "percentile": 95, "maxMilliseconds": 40}
    tunings = [
        {
            "metadata": {"name": name, "namespace": "serving", "creationTimestamp": created},
            "spec": {"targetRef": {"name": "tuned"}, "slos": slos},
        }
        for name, created, slos in (
            ("younger", "2026-02-02T00:00:00Z", [TTFT]),
            ("older", "2026-02-01T00:00:00Z", [other]),
        )
    ]
    found = find_members(bodies, read_tunings(tunings, {}, {}), [mine], {})
    assert [(m.ref[1], m.tuning) for m in found] == [("bare", None), ("tuned", "older")]
    assert found[0].slos == (slo(),)  # what a tuning without a word would get
    assert found[1].slos == (SLO.model_validate(other),)


def test_the_page_is_where_the_engine_listens():
    spec = a_deployment(args=["/model", "--port=9000", "--ssl-certfile=/tls/crt"])["spec"]
    found = endpoint_of(spec["template"]["spec"])
    assert found is not None
    assert (found.container, found.port, found.tls) == ("vllm", 9000, True)
    plain = endpoint_of(a_deployment()["spec"]["template"]["spec"])
    assert plain is not None
    assert plain.port == 8000


def test_only_the_ready_pods_of_the_deployment_itself_count():
    def pod(name: str, *, owner: str = "llama-1", ready: str = "True", **meta: Any):
        return {
            "metadata": {
                "name": name,
                "labels": {"pod-template-hash": "1"},
                "ownerReferences": [{"kind": "ReplicaSet", "name": owner}],
                **meta,
            },
            "status": {
                "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": ready}],
            },
        }

    pods = [
        pod("mine"),
        pod("canary", owner="canary-1"),
        pod("starting", ready="False"),
        pod("going", deletionTimestamp="2026-02-01T00:00:00Z"),
    ]
    assert [p["metadata"]["name"] for p in serving_pods("llama", pods)] == ["mine"]


def test_the_status_names_those_that_miss_first_and_is_capped():
    bodies = [a_named(f"d{n:03}") for n in range(MAX_MEMBERS + 20)]
    mine = policy("p", defaults={"slos": [TTFT]})
    members = find_members(bodies, (), [mine], {})
    verdicts = {m.ref: LiveVerdict(LiveState.MEETING) for m in members}
    verdicts["serving", "d069"] = LiveVerdict(LiveState.MISSING, message="p95 TTFT")
    verdicts["serving", "d068"] = LiveVerdict(LiveState.UNKNOWN, message="no traffic")
    found = live_fleet(mine, members, verdicts)
    assert (found.deployments, found.meeting, found.missing, found.unknown) == (70, 68, 1, 1)
    assert found.untuned == 70
    assert [m.name for m in found.members[:3]] == ["d069", "d068", "d000"]
    assert len(found.members) == MAX_MEMBERS
