import math

import numpy as np
import pytest

from vllm_tuning.tuning.percentiles import summarize
from vllm_tuning.tuning.samples import FAILURES, RequestSamples, RequestStatus, Window


def three() -> RequestSamples:
    return RequestSamples.of(
        scheduled_at=[0.0, 1.0, 2.0],
        sent_at=[0.001, 1.0, 2.0],
        first_token_at=[0.1, 1.3, math.nan],
        last_token_at=[0.5, 1.3, math.nan],
        ended_at=[0.5, 1.3, 3.0],
        output_tokens=[5, 1, 0],
        status=[RequestStatus.OK, RequestStatus.OK, RequestStatus.TIMEOUT],
        gap_ms=[100, 90, 110, 100, 7],
        gap_row=[0, 0, 0, 0, 2],
    )


def test_latencies_start_at_the_scheduled_time():
    samples = three()
    assert samples.ttft_ms[:2] == pytest.approx([100, 300])
    assert samples.e2e_ms[:2] == pytest.approx([500, 300])
    assert samples.lateness_ms[0] == pytest.approx(1)
    assert math.isnan(samples.ttft_ms[2])
    assert math.isnan(samples.e2e_ms[2])


def test_one_token_has_no_tpot():
    tpot = three().tpot_ms
    assert tpot[0] == pytest.approx(100)
    assert np.isnan(tpot[1:]).all()


def test_a_selection_takes_its_gaps_along_under_their_new_rows():
    samples = three().select(np.array([False, True, True]))
    assert samples.scheduled_at.tolist() == [1.0, 2.0]
    assert samples.gap_ms.tolist() == [7.0]
    assert samples.gap_row.tolist() == [1]


def test_a_window_is_closed_below_and_open_above():
    assert three().window_mask(Window(1.0, 2.0)).tolist() == [False, True, False]


def test_failures_are_the_statuses_that_the_mask_counts():
    samples = RequestSamples.of(scheduled_at=[0.0] * len(RequestStatus), status=list(RequestStatus))
    assert {RequestStatus(s) for s in samples.status[samples.failed]} == FAILURES


def test_columns_must_agree():
    with pytest.raises(ValueError, match="sent_at"):
        RequestSamples.of(scheduled_at=[0.0, 1.0], sent_at=[0.0])
    with pytest.raises(ValueError, match="gaps"):
        RequestSamples.of(scheduled_at=[0.0], gap_ms=[1.0])


def test_no_rows():
    samples = RequestSamples.empty()
    assert len(samples) == 0
    assert len(samples.select(samples.ok)) == 0
    assert summarize(samples.ttft_ms).count == 0


@pytest.mark.parametrize("count", [1, 7, 20, 999, 1000])
def test_a_percentile_is_a_seen_value_that_its_share_stays_within(count: int):
    values = np.random.default_rng(count).exponential(100, count)
    found = summarize(values)
    assert found.count == count
    for share, value in ((0.50, found.p50), (0.90, found.p90), (0.95, found.p95)):
        assert value in values
        assert (values <= value).mean() >= share
        assert (values < value).mean() < share


def test_p99_needs_a_thousand():
    assert summarize(np.arange(999.0)).p99 is None
    assert summarize(np.arange(1000.0)).p99 == 989.0


def test_absent_values_do_not_count():
    found = summarize(np.array([np.nan, 5.0, np.nan, 7.0]))
    assert (found.count, found.mean, found.maximum) == (2, 6.0, 7.0)
