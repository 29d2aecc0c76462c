"""Reading and writing objects of the API server."""

from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from pathlib import Path

import pytest
from pydantic import ValidationError

from vllm_tuning.api.base import decimal, wire_name
from vllm_tuning.api.meta import Condition
from vllm_tuning.api.reasons import ConditionType, Described, EventReason, Reason
from vllm_tuning.api.spec import ObjectiveName
from vllm_tuning.api.status import Applied, AppliedState, Argv, Effective, VLLMTuningStatus
from vllm_tuning.api.trial import TrialPurpose
from vllm_tuning.api.tuning import VLLMTuning
from vllm_tuning.api.values import MeasuredVerdict, SLOMetric
from vllm_tuning.tuning import model

SIX_LINES = {
    "apiVersion": "vllmtuning.io/v1alpha1",
    "kind": "VLLMTuning",
    "metadata": {"name": "chat"},
    "spec": {
        "targetRef": {"name": "chat"},
        "slos": [{"metric": "TTFT", "percentile": 95, "maxMilliseconds": 300}],
    },
}


def test_six_lines_are_enough() -> None:
    tuning = VLLMTuning.from_object(SIX_LINES)

    assert tuning.spec.target_ref.kind == "Deployment"
    assert tuning.spec.slos is not None
    assert tuning.spec.slos[0].metric is SLOMetric.TTFT
    assert tuning.spec.update_policy is None
    assert tuning.spec.history_limit == 3


def test_what_was_not_said_is_not_written() -> None:
    spec = VLLMTuning.from_object(SIX_LINES).spec.to_object()

    assert set(spec) == {"targetRef", "slos", "suspend", "historyLimit"}


def test_fields_of_a_newer_crd_do_not_stop_an_older_operator() -> None:
    newer = SIX_LINES | {"spec": {**SIX_LINES["spec"], "somethingNew": {"a": 1}}}  # type: ignore[dict-item]

    assert VLLMTuning.from_object(newer).spec.target_ref.name == "chat"


def test_a_word_of_a_newer_crd_is_a_validation_error() -> None:
    newer = SIX_LINES | {"spec": {"targetRef": {"name": "chat"}, "profile": "Agents"}}

    with pytest.raises(ValidationError, match="profile"):
        VLLMTuning.from_object(newer)


def test_times_are_written_to_the_second_in_utc() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=timezone(timedelta(hours=1)))
    condition = Condition(type="Ready", status="True", reason="Ready", last_transition_time=moment)

    written = condition.to_object()

    assert written["lastTransitionTime"] == "2026-01-02T02:04:05Z"
    assert Condition.from_object(written).last_transition_time == datetime(
        2026, 1, 2, 2, 4, 5, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("name", "wire"),
    [
        ("run_id", "runID"),
        ("uid", "uid"),
        ("target_uid", "targetUID"),
        ("gpu_seconds", "gpuSeconds"),
        ("max_num_seqs", "maxNumSeqs"),
        ("e2e_milliseconds", "e2eMilliseconds"),
        ("slos", "slos"),
    ],
)
def test_wire_names_follow_kubernetes(name: str, wire: str) -> None:
    assert wire_name(name) == wire


@pytest.mark.parametrize(
    ("value", "text"),
    [(12.5, "12.5"), (3.0, "3"), (-0.0001, "0"), (1e-9, "0"), (1234567.0, "1234567"), (None, None)],
)
def test_measured_numbers_are_decimal_strings(value: float | None, text: str | None) -> None:
    assert decimal(value) == text


@pytest.mark.parametrize(
    ("ours", "core"),
    [
        (SLOMetric, model.Metric),
        (ObjectiveName, model.Objective),
        (MeasuredVerdict, model.Verdict),
        (TrialPurpose, model.Purpose),
    ],
)
def test_api_and_core_use_the_same_words(ours: type[StrEnum], core: type[StrEnum]) -> None:
    assert [str(word) for word in ours] == [str(word) for word in core]


def test_every_ending_of_a_run_is_a_reason() -> None:
    assert {str(ending) for ending in model.Ending} <= {str(reason) for reason in Reason}


def test_every_purpose_is_a_stage() -> None:
    stages = {str(reason) for reason in Reason}
    assert {str(purpose) for purpose in model.Purpose} - {"Verify"} <= stages


def test_no_word_is_registered_that_nothing_says() -> None:
    rooms = Path(model.__file__).parents[1]
    code = "\n".join(
        path.read_text()
        for room in ("tuning", "reconcile", "cluster", "controller")
        for path in (rooms / room).rglob("*.py")
    )
    unsaid = {
        str(word)
        for registry in (ConditionType, Reason, EventReason)
        for word in registry
        if f"{registry.__name__}.{word.name}" not in code and f'"{word}"' not in code
    }
    assert not unsaid


@pytest.mark.parametrize("registry", [ConditionType, Reason, EventReason])
def test_words_are_camel_case_and_have_a_meaning_of_one_line(registry: type[Described]) -> None:
    for word in registry:
        assert word.value.isalnum()
        assert word.value[0].isupper()
        assert word.meaning.endswith(".")
        assert "\n" not in word.meaning


def test_empty_lists_are_not_written_but_items_keep_their_places() -> None:
    status = VLLMTuningStatus(
        effective=Effective(parameters=()),
        applied=Applied(
            hash="a",
            state=AppliedState.APPLIED,
            target_uid="u",
            container="c",
            before=Argv(args=()),
            after=Argv(args=("", "x")),
            time=datetime(2026, 1, 1, tzinfo=UTC),
        ),
    )

    written = status.to_object()

    assert set(written) == {"effective", "applied"}
    assert written["applied"]["after"]["args"] == ["", "x"]
    assert VLLMTuningStatus.from_object(written).to_object() == written
