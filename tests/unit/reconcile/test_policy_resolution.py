"""Who wins: a tuning, its profile, a policy's default, our default, a policy's override."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.reconcile.builders import policy
from vllm_tuning.api.selector import LabelSelector
from vllm_tuning.api.spec import UpdateMode, VLLMTuningSpec
from vllm_tuning.reconcile import effective
from vllm_tuning.reconcile.bounds import describe
from vllm_tuning.reconcile.policy import Subject, matching, resolve, selects

TTFT = {"metric": "TTFT", "percentile": 95, "maxMilliseconds": 500}
CHAT = Subject("serving", {"env": "prod"}, {"app": "chat"})


def wish(**spec: Any) -> VLLMTuningSpec:
    """Return a tuning's spec that says nothing but its target and what is given."""
    return VLLMTuningSpec.from_object({"targetRef": {"name": "chat"}, **spec})


def sources(found: Any) -> dict[str, tuple[str, str | None]]:
    """Return source and name by field."""
    return {note.field: (str(note.source), note.name) for note in found.effective.sources}


# Whom a policy concerns


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        (None, True),
        ({}, True),
        ({"matchLabels": {"app": "chat"}}, True),
        ({"matchLabels": {"app": "chat", "tier": "a"}}, False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["x", "chat"]}]}, True),
        ({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["chat"]}]}, False),
        ({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["a"]}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, False),
        (
            {
                "matchLabels": {"app": "chat"},
                "matchExpressions": [{"key": "t", "operator": "Exists"}],
            },
            False,
        ),
    ],
)
def test_label_selectors(selector: dict[str, Any] | None, matches: bool) -> None:
    parsed = None if selector is None else LabelSelector.from_object(selector)

    assert selects(parsed, CHAT.labels) is matches


@pytest.mark.parametrize(
    ("spec", "concerned"),
    [
        ({}, True),
        ({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"env": "dev"}}}, False),
        ({"selector": {"matchLabels": {"app": "batch"}}}, False),
        ({"excludedNamespaces": ["serving"]}, False),
    ],
)
def test_whom_a_policy_concerns(spec: dict[str, Any], concerned: bool) -> None:
    assert bool(matching([policy("p", **spec)], CHAT)) is concerned


def test_precedence_is_priority_then_age_then_name() -> None:
    policies = [
        policy("young-b", age=1),
        policy("young-a", age=1),
        policy("old", age=9),
        policy("high", age=0, priority=5),
        policy("low", age=20, priority=-1),
    ]

    names = [found.metadata.name for found in matching(policies, CHAT)]

    assert names == ["high", "old", "young-a", "young-b", "low"]


# Defaults: the tuning wins


def test_a_policy_gives_the_sla_that_a_tuning_lacks() -> None:
    found = resolve(wish(), [policy("prod", defaults={"slos": [TTFT]})])

    assert [describe(slo) for slo in found.effective.slos] == ["p95 TTFT ≤ 500 ms"]
    assert sources(found)["slos"] == ("Policy", "prod")
    assert found.used == {"prod"}


def test_a_tuning_keeps_its_own_sla() -> None:
    own = {"metric": "TPOT", "percentile": 95, "maxMilliseconds": 40}

    found = resolve(wish(slos=[own]), [policy("prod", defaults={"slos": [TTFT]})])

    assert [describe(slo) for slo in found.effective.slos] == ["p95 TPOT ≤ 40 ms"]
    assert sources(found)["slos"] == ("Spec", None)
    assert found.used == frozenset()


def test_a_profile_that_a_tuning_names_wins_over_a_policys_sla() -> None:
    found = resolve(wish(profile="Chat"), [policy("prod", defaults={"slos": [TTFT]})])

    assert sources(found)["slos"] == ("Profile", "Chat")


def test_a_policys_profile_brings_what_the_policy_does_not_say_itself() -> None:
    prod = policy("prod", defaults={"profile": "Batch", "workload": {"concurrency": 7}})

    found = resolve(wish(), [prod])

    assert found.effective.workload is not None
    assert found.effective.workload.concurrency == 7
    assert sources(found)["workload.concurrency"] == ("Policy", "prod")
    assert sources(found)["workload.inputTokens"] == ("Profile", "Batch")
    assert sources(found)["profile"] == ("Policy", "prod")


def test_slas_of_two_policies_are_not_mixed() -> None:
    first = policy("first", priority=1, defaults={"slos": [TTFT]})
    second = policy("second", defaults={"profile": "Batch"})

    found = resolve(wish(), matching([second, first], CHAT))

    assert found.effective.profile is None
    assert found.used == {"first"}


def test_nested_defaults_are_filled_field_by_field_from_several_policies() -> None:
    first = policy("first", priority=1, defaults={"budget": {"gpuSeconds": 100}})
    second = policy("second", defaults={"budget": {"gpuSeconds": 200, "deadlineSeconds": 60}})

    found = resolve(wish(budget={"scheduleDeadlineSeconds": 5}), [first, second])

    budget = found.effective.budget
    assert budget is not None
    assert (budget.gpu_seconds, budget.deadline_seconds) == (100, 60)
    assert budget.schedule_deadline_seconds == 5
    noted = sources(found)
    assert noted["budget.gpuSeconds"] == ("Policy", "first")
    assert noted["budget.deadlineSeconds"] == ("Policy", "second")
    assert noted["budget.scheduleDeadlineSeconds"] == ("Spec", None)


def test_without_policies_the_wish_is_what_it_was() -> None:
    spec = wish(profile="Chat", budget={"gpuSeconds": 10})

    found = resolve(spec, [])

    assert found.effective == effective.resolve(spec)
    assert found.deviations == ()


# Overrides: the policy wins


def _narrowed(
    spec: dict[str, Any], *overrides: dict[str, Any], enforcement: str = "Enforce"
) -> Any:
    policies = [
        policy(f"p{number}", priority=-number, overrides=rules, enforcement=enforcement)
        for number, rules in enumerate(overrides)
    ]
    return resolve(wish(**spec), policies)


@pytest.mark.parametrize(
    ("own", "ceiling", "expected"),
    [
        (TTFT | {"maxMilliseconds": 800}, TTFT, ["p95 TTFT ≤ 500 ms"]),
        (TTFT | {"maxMilliseconds": 300}, TTFT, ["p95 TTFT ≤ 300 ms"]),
        (TTFT | {"percentile": 99}, TTFT, ["p99 TTFT ≤ 500 ms"]),
        (TTFT | {"percentile": 50}, TTFT, ["p95 TTFT ≤ 500 ms"]),
        (
            TTFT | {"percentile": 99, "maxMilliseconds": 900},
            TTFT,
            ["p99 TTFT ≤ 900 ms", "p95 TTFT ≤ 500 ms"],
        ),
        (
            TTFT | {"metric": "TPOT"},
            {"metric": "ErrorRate", "maxPercent": 1},
            ["p95 TPOT ≤ 500 ms", "ErrorRate ≤ 1 %"],
        ),
    ],
)
def test_an_sla_is_tightened_and_completed(
    own: dict[str, Any], ceiling: dict[str, Any], expected: list[str]
) -> None:
    found = _narrowed({"slos": [own]}, {"slos": [ceiling]})

    assert [describe(slo) for slo in found.effective.slos] == expected


@pytest.mark.parametrize(
    ("wished", "highest", "expected"),
    [
        ("Auto", "Manual", UpdateMode.MANUAL),
        ("Auto", "Recommend", UpdateMode.RECOMMEND),
        ("Recommend", "Auto", UpdateMode.RECOMMEND),
        ("Manual", "Manual", UpdateMode.MANUAL),
    ],
)
def test_modes_are_lowered_never_raised(wished: str, highest: str, expected: UpdateMode) -> None:
    found = _narrowed({"updatePolicy": {"mode": wished}}, {"maxMode": highest})

    assert found.effective.update_policy.mode is expected


def test_of_several_policies_the_strictest_holds() -> None:
    found = _narrowed(
        {"budget": {"gpuSeconds": 900}, "parameters": [{"name": "max_num_seqs", "max": 512}]},
        {"budget": {"gpuSeconds": 600}, "parameters": [{"name": "max_num_seqs", "max": 64}]},
        {"budget": {"gpuSeconds": 300}, "parameters": [{"name": "max_num_seqs", "max": 128}]},
    )

    assert found.effective.budget.gpu_seconds == 300
    assert found.effective.parameters[0].max == 64


@pytest.mark.parametrize(
    ("own", "bound", "expected"),
    [
        ({}, {"min": 4, "max": 64}, (4, 64)),
        ({"min": 8, "max": 32}, {"min": 4, "max": 64}, (8, 32)),
        ({"min": 8, "max": 128}, {"max": 64}, (8, 64)),
        ({"min": 256}, {"max": 64}, (64, 64)),
        ({"max": 2}, {"min": 4, "max": 64}, (4, 4)),
    ],
)
def test_bounds_are_clamped_into_the_policys(
    own: dict[str, int], bound: dict[str, int], expected: tuple[int, int]
) -> None:
    found = _narrowed(
        {"parameters": [{"name": "max_num_seqs", **own}]},
        {"parameters": [{"name": "max_num_seqs", **bound}]},
    )

    (parameter,) = found.effective.parameters
    assert (parameter.min, parameter.max) == expected


def test_of_bounds_that_exclude_each_other_the_first_policys_hold() -> None:
    found = _narrowed(
        {},
        {"parameters": [{"name": "max_num_seqs", "min": 200}]},
        {"parameters": [{"name": "max_num_seqs", "max": 128}]},
    )

    assert found.effective.parameters[0].min == 200
    assert found.effective.parameters[0].max is None
    assert [item.policy for item in found.overruled] == ["p1"]
    assert "…128 excludes 200…" in str(found.overruled[0])


def test_frozen_parameters_are_left_alone() -> None:
    found = _narrowed({}, {"frozenParameters": ["max_num_seqs"]})

    assert [str(p.name) for p in found.effective.parameters] == ["max_num_batched_tokens"]


def test_managed_targets_and_small_gains() -> None:
    found = _narrowed(
        {"updatePolicy": {"allowManaged": True, "minimumImprovementPercent": 1}},
        {"denyManaged": True, "minimumImprovementPercent": 10},
    )

    assert found.effective.update_policy.allow_managed is False
    assert found.effective.update_policy.minimum_improvement_percent == 10


@pytest.mark.parametrize(
    ("own", "bounds", "expected"),
    [
        ({}, {"afterDays": 30, "cooldownSeconds": 60}, (30, 60)),
        (
            {"afterDays": 90, "cooldownSeconds": 10},
            {"afterDays": 30, "cooldownSeconds": 60},
            (30, 60),
        ),
        (
            {"afterDays": 7, "cooldownSeconds": 90},
            {"afterDays": 30, "cooldownSeconds": 60},
            (7, 90),
        ),
        ({"afterDays": 7}, {"cooldownSeconds": 60}, (7, 60)),
    ],
)
def test_targets_are_measured_again_as_late_as_allowed_and_not_too_soon(
    own: dict[str, int], bounds: dict[str, int], expected: tuple[int, int]
) -> None:
    found = _narrowed({"retunePolicy": own}, {"retunePolicy": bounds})

    policy = found.effective.retune_policy
    assert (policy.after_days, policy.cooldown_seconds) == expected


def test_retune_and_queue_defaults_are_filled_field_by_field() -> None:
    prod = policy(
        "prod",
        defaults={
            "retunePolicy": {"afterDays": 30, "onDrift": "Measure"},
            "benchmark": {"queueName": "night"},
        },
    )

    found = resolve(wish(retunePolicy={"afterDays": 7}), [prod])

    assert found.effective.retune_policy is not None
    assert found.effective.retune_policy.after_days == 7
    assert found.effective.retune_policy.on_drift == "Measure"
    assert found.effective.benchmark is not None
    assert found.effective.benchmark.queue_name == "night"
    noted = sources(found)
    assert noted["retunePolicy.afterDays"] == ("Spec", None)
    assert noted["retunePolicy.onDrift"] == noted["benchmark.queueName"] == ("Policy", "prod")


@pytest.mark.parametrize(
    "own", [{"queueName": "mine"}, {"labels": {"kueue.x-k8s.io/queue-name": "mine"}}]
)
def test_a_tuning_keeps_its_queue_however_it_names_it(own: dict[str, Any]) -> None:
    prod = policy("prod", defaults={"benchmark": {"queueName": "night"}})

    found = resolve(wish(benchmark=own), [prod])

    assert found.effective.benchmark is not None
    assert found.effective.benchmark.queue_name == "mine"
    assert sources(found)["benchmark.queueName"] == ("Spec", None)


def test_of_two_queues_the_first_policys_holds_and_the_other_is_told() -> None:
    found = _narrowed(
        {"benchmark": {"queueName": "mine"}},
        {"benchmark": {"queueName": "night", "priorityClassName": "low"}},
        {"benchmark": {"queueName": "day", "priorityClassName": "low"}},
    )

    job = found.effective.benchmark
    assert (job.queue_name, job.priority_class_name) == ("night", "low")
    assert [str(item) for item in found.overruled] == [
        "benchmark.queueName: day excludes night of the policies before it"
    ]
    assert [str(item) for item in found.deviations] == [
        "benchmark.queueName: mine is night by VLLMSLAPolicy p0",
        "benchmark.priorityClassName: absent is low by VLLMSLAPolicy p0",
    ]
    assert sources(found)["benchmark.priorityClassName"] == ("Policy", "p0")


def test_every_deviation_names_policy_field_wish_and_bound() -> None:
    found = _narrowed({"updatePolicy": {"mode": "Auto"}}, {"maxMode": "Manual"})

    assert [str(item) for item in found.deviations] == [
        "updatePolicy.mode: Auto is Manual by VLLMSLAPolicy p0"
    ]
    assert sources(found)["updatePolicy.mode"] == ("Policy", "p0")


@pytest.mark.parametrize("enforcement", ["Warn", "Audit"])
def test_a_policy_that_is_not_enforced_changes_nothing_and_tells(enforcement: str) -> None:
    spec = {"updatePolicy": {"mode": "Auto"}, "budget": {"gpuSeconds": 900}}
    rules = {"maxMode": "Manual", "budget": {"gpuSeconds": 10}}

    found = _narrowed(spec, rules, enforcement=enforcement)

    assert found.effective == resolve(wish(**spec), []).effective
    assert {item.field for item in found.deviations} == {"updatePolicy.mode", "budget.gpuSeconds"}
    assert "should be" in str(found.deviations[0])


def test_what_an_enforced_policy_has_cured_is_no_deviation_from_another() -> None:
    enforced = policy("enforced", overrides={"maxMode": "Recommend"})
    audit = policy("audit", overrides={"maxMode": "Manual"}, enforcement="Audit", priority=9)

    found = resolve(wish(updatePolicy={"mode": "Auto"}), matching([audit, enforced], CHAT))

    assert [item.policy for item in found.deviations] == ["enforced"]
