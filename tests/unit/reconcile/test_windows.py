"""Windows: open, closed until when, and never by guess."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.reconcile.bench_events import a_whole_run
from tests.unit.reconcile.builders import NOW, a_tuning, conditions, message, observe
from tests.unit.reconcile.world import World, step
from vllm_tuning.api.status import WindowsOf
from vllm_tuning.api.windows import Weekday, Window
from vllm_tuning.reconcile.decide import decide
from vllm_tuning.reconcile.effects import CreateRun, DeleteJob, PatchTarget
from vllm_tuning.reconcile.windows import closed, covers, is_open, next_open

NIGHT = {"start": "22:00", "durationMinutes": 480}


def window(**fields: Any) -> Window:
    return Window.model_validate({**NIGHT, **fields})


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def rule(*windows: Window, policy: str | None = None) -> WindowsOf:
    return WindowsOf(windows=windows, policy=policy)


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2026-11-29T21:59:59", False),
        ("2026-11-29T22:00:00", True),
        ("2026-11-30T05:59:59", True),  # past midnight
        ("2026-11-30T06:00:00", False),
    ],
)
def test_a_window_is_open_from_its_start_for_its_duration(moment: str, expected: bool):
    assert is_open([window()], at(moment)) is expected


def test_the_day_is_the_one_on_which_it_opens():
    saturday = window(days=["Saturday"])
    assert is_open([saturday], at("2026-11-29T03:00:00"))  # Sunday, three hours after midnight
    assert not is_open([saturday], at("2026-11-29T23:00:00"))
    assert next_open([rule(saturday)], at("2026-11-29T23:00:00")) == at("2026-12-05T22:00:00")


def test_summer_time_is_followed():
    berlin = window(start="02:00", durationMinutes=60, timeZone="Europe/Berlin")
    assert is_open([berlin], at("2026-01-10T01:30:00"))
    assert is_open([berlin], at("2026-07-10T00:30:00"))
    assert not is_open([berlin], at("2026-07-10T01:30:00"))


def test_all_rules_must_be_open_at_once():
    weekend = rule(window(days=["Saturday", "Sunday"], start="00:00", durationMinutes=1440))
    night = rule(window(), policy="nights")
    assert next_open([weekend, night], at("2026-11-25T12:00:00")) == at("2026-11-28T00:00:00")
    shut = closed([weekend, night], at("2026-11-28T12:00:00"))
    assert shut is not None
    assert shut.message == (
        "outside of the windows of VLLMSLAPolicy nights (daily 22:00 for 480 min UTC); "
        "opens on Saturday 2026-11-28T22:00Z"
    )


def test_rules_that_never_meet_and_unknown_zones_say_so():
    noon = rule(window(start="12:00", durationMinutes=60))
    night = rule(window(), policy="nights")
    shut = closed([noon, night], NOW)
    assert shut is not None
    assert shut.opens is None
    assert "never open together" in shut.message
    nowhere = closed([rule(window(timeZone="Mars/Olympus"))], NOW)
    assert nowhere is not None
    assert nowhere.opens is None
    assert "time zone Mars/Olympus is not known" in nowhere.message


def test_a_window_within_another_needs_no_second_rule():
    weekend = [window(days=["Saturday", "Sunday"], start="00:00", durationMinutes=1440)]
    assert covers(weekend, [window(days=["Saturday"], start="02:00", durationMinutes=60)])
    assert not covers(weekend, [window(days=["Sunday"])])  # goes on into Monday
    berlin = [window(start="10:00", durationMinutes=60, timeZone="Europe/Berlin")]
    assert covers(berlin, berlin)
    # the same hour in winter only
    assert not covers(berlin, [window(start="09:00", durationMinutes=60)])


windows = st.builds(
    lambda days, minute, duration, zone: Window(
        days=tuple(days) or None,
        start=f"{minute // 60:02}:{minute % 60:02}",
        duration_minutes=duration,
        time_zone=zone,
    ),
    st.sets(st.sampled_from(list(Weekday)), max_size=3),
    st.integers(0, 1439),
    st.integers(1, 10_080),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]),
)
moments = st.integers(0, 365 * 1440).map(
    lambda minutes: at("2026-01-01T00:00:00") + timedelta(minutes=minutes)
)


@given(st.lists(windows, min_size=1, max_size=3), moments)
def test_the_next_opening_is_open_and_nothing_before_it_is(found: list[Window], now: datetime):
    opens = next_open([rule(*found)], now)
    assert opens is not None
    assert is_open(found, opens)
    assert opens == now or not is_open(found, opens - timedelta(seconds=1))
    assert is_open(found, now) == (opens == now)


def world(**spec: Any) -> World:
    return World(observe(a_tuning(**spec)))  # noon on a Sunday


def test_a_run_starts_when_the_window_opens_and_goes_on_when_it_closes():
    found = world(windows=[NIGHT])
    decision = step(found)
    assert decision.effects == ()
    assert conditions(decision)["Progressing"] == ("True", "WaitingForWindow")
    assert conditions(decision)["Ready"] == ("True", "Ready")
    assert conditions(decision)["Succeeded"] == ("Unknown", "InProgress")
    assert "opens on Sunday 2026-11-29T22:00Z" in message(decision, "Progressing")
    assert decision.look_again_at == NOW + timedelta(hours=10)
    assert step(found).announcements == ()

    opened = step(found, seconds=10 * 3600)
    assert [type(e) for e in opened.effects] == [CreateRun]
    found.says(*a_whole_run()[:3])
    late = step(found, seconds=9 * 3600)  # closed again
    assert conditions(late)["Progressing"] == ("True", "Baseline")
    assert DeleteJob not in [type(e) for e in late.effects]


def test_a_lost_attempt_waits_for_the_next_window_without_repeating_itself():
    found = world(windows=[NIGHT])
    found.now += timedelta(hours=10)
    step(found)
    found.finish_job("Failed", "PodFailurePolicy", "evicted")
    found.now += timedelta(hours=9)
    waits = [step(found), step(found)]
    assert [w.effects for w in waits] == [(), ()]
    assert [w.announcements for w in waits] == [(), ()]
    again = step(found, seconds=15 * 3600)
    assert [type(e) for e in again.effects] == [CreateRun]
    assert [a.reason for a in again.announcements] == ["RunPreempted"]


def test_a_recommendation_is_applied_in_the_window_only():
    found = world(windows=[NIGHT], updatePolicy={"mode": "Auto"})
    found.now += timedelta(hours=10)
    step(found)
    found.now += timedelta(hours=9)
    found.says(*a_whole_run(), complete=True)
    for _ in range(3):
        decision = step(found)
    assert conditions(decision)["Applied"] == ("False", "WaitingForWindow")
    assert conditions(decision)["Succeeded"][0] == "Unknown"
    assert decision.look_again_at is not None
    assert found.patches == []
    found.now = at("2026-11-30T22:00:00")
    effects = [e for _ in range(3) for e in step(found).effects]
    assert PatchTarget in [type(e) for e in effects]


def test_an_answer_to_another_question_is_not_applied_while_its_run_waits():
    found = world(updatePolicy={"mode": "Manual"})
    step(found)
    found.says(*a_whole_run(), complete=True)
    for _ in range(3):
        decision = step(found)
    assert decision.status.recommendation is not None
    for edit in ({"windows": [NIGHT]}, {"suspend": True}):
        tuning = deepcopy(dict(found.observed.tuning))
        tuning["metadata"]["annotations"] = {
            "vllmtuning.io/approve": decision.status.recommendation.hash
        }
        tuning["spec"] |= {"workload": {"inputTokens": {"mean": 64}}, **edit}
        waiting = decide(replace(found.observed, tuning=tuning, jobs=()), found.now)
        assert waiting.effects == ()
        assert conditions(waiting)["Applied"] == ("False", "NotApplied")


POLICY = {
    "metadata": {"name": "nights", "uid": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"overrides": {"windows": [NIGHT]}},
}


def test_a_policys_windows_hold_beside_the_tunings_own():
    noon = {"start": "12:00", "durationMinutes": 60}
    decision = decide(observe(a_tuning(windows=[noon]), policies=(POLICY,)), NOW)
    assert decision.effects == ()
    assert "never open together" in message(decision, "Progressing")
    assert conditions(decision)["PolicyCompliant"] == ("True", "NarrowedByPolicies")
    assert decision.status.effective is not None
    assert [w.policy for w in decision.status.effective.windows] == [None, "nights"]


def test_a_tuning_within_a_policys_windows_is_not_narrowed():
    inside = {"start": "23:00", "durationMinutes": 60}
    decision = decide(observe(a_tuning(windows=[inside]), policies=(POLICY,)), NOW)
    assert conditions(decision)["PolicyCompliant"] == ("True", "WithinPolicies")
    assert decision.status.effective is not None
    assert len(decision.status.effective.windows) == 1


def test_a_policy_that_warns_of_windows_closes_nothing():
    warns = {**POLICY, "spec": {**POLICY["spec"], "enforcement": "Warn"}}
    decision = decide(observe(policies=(warns,)), NOW)
    assert [type(e) for e in decision.effects] == [CreateRun]
    assert "at any time should be daily 22:00" in message(decision, "PolicyCompliant")


def test_default_windows_are_for_tunings_that_name_none():
    defaults = {**POLICY, "spec": {"defaults": {"windows": [NIGHT]}}}
    assert decide(observe(policies=(defaults,)), NOW).effects == ()
    noon = {"start": "11:00", "durationMinutes": 120}
    own = decide(observe(a_tuning(windows=[noon]), policies=(defaults,)), NOW)
    assert [type(e) for e in own.effects] == [CreateRun]
