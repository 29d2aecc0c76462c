"""A run read back from status and trials tells what its log told: on the recorded H200 run."""

import dataclasses
from datetime import UTC, datetime

import pytest

from tests.cluster_fixtures.cluster import ROOT
from vllm_tuning.api.status import (
    DecisionNote,
    ParameterRecommendation,
    Recommendation,
    Run,
    Usage,
    VLLMTuningStatus,
)
from vllm_tuning.reconcile import convert
from vllm_tuning.reconcile.stored_run import run_events
from vllm_tuning.tuning.run import EVENT, ProbeEnded, RunEnded, RunFailed, StartEnded

LOG = tuple(
    EVENT.validate_json(line)
    for line in (ROOT / "benchmarks/results/h200-chat/events.jsonl").open()
)
RECORDS = tuple(event for event in LOG if isinstance(event, StartEnded | ProbeEnded))
TOLD = LOG[-1].recommendation
RUN = Run(id="r1", stage="Recommended", completion_time=datetime(2026, 1, 1, tzinfo=UTC))
USAGE = Usage(engine_seconds=728, engine_starts=2, probes=17)


@pytest.fixture
def status():
    shown = Recommendation(
        hash="0123456789",
        run_id="r1",
        ending=str(TOLD.ending),
        message=TOLD.message,
        limits=convert.limits(TOLD.limits),
        parameters=[
            ParameterRecommendation(**dataclasses.asdict(choice)) for choice in TOLD.parameters
        ],
        load=convert.load(TOLD.load),
        margins=convert.margins(TOLD.margins),
        binding_limit=TOLD.binding_limit,
        confirmed=convert.measurement(TOLD.result),
        decisions=[DecisionNote(**dataclasses.asdict(step)) for step in TOLD.decisions],
    )
    status = VLLMTuningStatus(run=RUN, usage=USAGE, recommendation=shown)
    return VLLMTuningStatus.model_validate(status.to_object())  # as the API server returns it


def test_the_answer_comes_back_with_the_whole_results_behind_it(status):
    *records, end = run_events(status, RECORDS)
    assert tuple(records) == RECORDS
    assert isinstance(end, RunEnded)
    found = end.recommendation
    same = ("ending", "message", "limits", "parameters", "binding_limit", "decisions")
    for field in same:
        assert getattr(found, field) == getattr(TOLD, field), field
    assert found.replicas == TOLD.replicas
    for field in ("probe", "verdict", "message", "ttft", "tpot", "engine", "gpu"):
        assert getattr(found.result, field) == getattr(TOLD.result, field), field
    # it is judged over two seeds together, which no single answer of the run is
    assert [slo.attainment for slo in found.result.slos] == pytest.approx(
        [slo.attainment for slo in TOLD.result.slos], abs=1e-4
    )
    assert found.load.rate_per_second == pytest.approx(TOLD.load.rate_per_second, abs=1e-3)
    assert [margin.slo for margin in found.margins] == [margin.slo for margin in TOLD.margins]
    assert [m.attainment for m in found.margins] == pytest.approx(
        [m.attainment for m in TOLD.margins], abs=1e-4
    )


def test_a_log_that_lasts_is_believed_before_the_status(status):
    assert run_events(status, (), LOG) == LOG
    assert run_events(status, RECORDS, LOG[-3:])[-1] == LOG[-1]


def test_a_run_that_goes_on_has_no_end(status):
    going_on = status.model_copy(
        update={"run": RUN.model_copy(update={"completion_time": None}), "recommendation": None}
    )
    assert run_events(going_on, RECORDS) == RECORDS


def test_the_recommendation_of_an_earlier_run_is_not_taken_for_this_ones(status):
    failed = RUN.model_copy(update={"id": "r2", "stage": "EngineFailed", "message": "no GPU"})
    end = run_events(status.model_copy(update={"run": failed}), ())[-1]
    assert isinstance(end, RunFailed)
    assert (end.reason, end.message, end.engine_seconds) == ("EngineFailed", "no GPU", 728)
