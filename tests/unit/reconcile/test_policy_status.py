"""What a policy says about itself."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.unit.reconcile.builders import policy
from vllm_tuning.api.policy import VLLMSLAPolicyStatus
from vllm_tuning.reconcile.policy_status import (
    Tuning,
    policy_statuses,
    read_policies,
    read_tunings,
    unread_statuses,
)

NOW = datetime(2026, 2, 1, tzinfo=UTC)
AUTO = {"updatePolicy": {"mode": "Auto"}}


def body(
    name: str, *, sla: str | None = None, namespace: str = "serving", **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"targetRef": {"name": name}, **spec},
        "status": {"sla": sla} if sla else {},
    }


def tunings(*bodies: dict[str, Any], **labels: str) -> tuple[Tuning, ...]:
    return read_tunings(bodies, {}, {"serving": labels})


def status(policies: list[Any], found: tuple[Tuning, ...], name: str = "p") -> VLLMSLAPolicyStatus:
    return policy_statuses(policies, found, NOW)[name]


def counts(found: VLLMSLAPolicyStatus) -> tuple[int | None, ...]:
    return found.matched, found.compliant, found.violating, found.unknown


def test_every_tuning_is_compliant_violating_or_unknown() -> None:
    found = tunings(
        body("met", sla="Met"),
        body("impossible", sla="Unsatisfiable"),
        body("new"),
        body("unclear", sla="Inconclusive"),
    )

    told = status([policy("p")], found)

    assert counts(told) == (4, 1, 1, 2)
    assert [(v.name, v.reason) for v in told.violators] == [("impossible", "SLAUnsatisfiable")]


def test_what_is_enforced_is_no_violation_and_what_is_only_audited_is() -> None:
    found = tunings(body("bold", sla="Met", **AUTO))
    rules = {"overrides": {"maxMode": "Manual"}}

    assert counts(status([policy("p", **rules)], found)) == (1, 1, 0, 0)
    for enforcement in ("Audit", "Warn"):
        told = status([policy("p", enforcement=enforcement, **rules)], found)
        assert counts(told) == (1, 0, 1, 0)
        assert told.violators[0].message.startswith("updatePolicy.mode: Auto should be Manual")


def test_a_policy_counts_only_whom_it_concerns() -> None:
    elsewhere = body("b", namespace="other")
    found = tunings(body("a"), elsewhere, env="prod")

    told = status([policy("p", namespaceSelector={"matchLabels": {"env": "prod"}})], found)

    assert told.matched == 1


def test_the_list_of_violators_is_capped_and_sorted_but_the_count_is_not() -> None:
    found = tunings(*(body(f"t{n:02d}", sla="Unsatisfiable") for n in reversed(range(30))))

    told = status([policy("p")], found)

    assert told.violating == 30
    assert [v.name for v in told.violators] == [f"t{n:02d}" for n in range(20)]


def test_bounds_that_do_not_hold_are_told_by_the_policy_that_lost() -> None:
    strong = policy(
        "strong", priority=1, overrides={"parameters": [{"name": "max_num_seqs", "min": 200}]}
    )
    weak = policy("p", overrides={"parameters": [{"name": "max_num_seqs", "max": 128}]})
    found = tunings(body("a"))

    lost = status([weak, strong], found)
    won = status([weak, strong], found, "strong")

    condition = {c.type: c for c in lost.conditions}["Programmed"]
    assert (condition.status, condition.reason) == ("False", "Overruled")
    assert "make the bounds overlap" in condition.message
    assert {c.type: c.status for c in won.conditions}["Programmed"] == "True"


def test_conditions_keep_their_transition_time() -> None:
    first = status([policy("p")], ())
    again = policy("p").model_copy(update={"status": first})

    later = policy_statuses([again], (), NOW + timedelta(hours=1))["p"]

    assert later == first


def test_labels_come_from_the_deployment_and_else_from_the_tuning() -> None:
    chat = policy("p", selector={"matchLabels": {"app": "chat"}})
    by_tuning = read_tunings([body("chat")], {}, {})
    by_target = read_tunings([body("chat")], {("serving", "chat"): {"app": "other"}}, {})

    assert status([chat], by_tuning).matched == 1
    assert status([chat], by_target).matched == 0


def test_what_is_not_understood_is_left_out() -> None:
    newer = {"metadata": {"name": "p"}, "spec": {"enforcement": "Ask"}}

    assert read_policies([newer]) == ()
    assert read_tunings([body("a", profile="Agents"), body("b", sla="Maybe")], {}, {}) == ()


def test_a_policy_of_a_newer_schema_says_that_it_holds_for_nobody() -> None:
    newer = {"metadata": {"name": "p", "generation": 3}, "spec": {"enforcement": "Forbid"}}
    older = {"metadata": {"name": "q"}, "spec": {"defaults": {}}}
    assert [found.metadata.name for found in read_policies([newer, older])] == ["q"]

    told = unread_statuses([newer, older], NOW)

    assert told.keys() == {"p"}
    accepted = next(c for c in told["p"].conditions if c.type == "Accepted")
    assert (accepted.status, accepted.reason) == ("False", "UnsupportedVersion")
    assert accepted.message.startswith("spec.enforcement: ")
    assert "holds for nobody" in accepted.message
    assert told["p"].observed_generation == 3
