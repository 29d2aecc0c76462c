"""Arrivals, lengths and prompts: what a seed fixes, and what the distributions promise."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_tuning.bench.load.arrivals import arrival_times, trace_times
from vllm_tuning.bench.load.lengths import RequestShape, draw_lengths
from vllm_tuning.bench.load.prompts import RequestSource, Vocabulary
from vllm_tuning.tuning.model import Lengths

# Shared machines stall: how long an example takes says nothing here.
calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def take(count, endless):
    return np.array(list(itertools.islice(endless, count)))


def test_a_seed_fixes_the_schedule():
    one, same, other = (take(3000, arrival_times(10, seed=seed)) for seed in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()
    assert (np.diff(one) >= 0).all()


@pytest.mark.parametrize(("burstiness", "cv"), [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5)])
def test_gaps_have_the_mean_and_variation_that_are_declared(burstiness, cv):
    gaps = np.diff(take(200_000, arrival_times(50, burstiness=burstiness, seed=3)))
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_a_ramp_rises_linearly_and_then_has_the_full_rate():
    times = take(200_000, arrival_times(1000, seed=5, ramp_seconds=10))
    within = [((times >= start) & (times < start + 1)).sum() for start in range(10)]
    assert within == pytest.approx([1000 * (start + 0.5) / 10 for start in range(10)], rel=0.25)
    after = ((times >= 10) & (times < 110)).sum()
    assert after == pytest.approx(100_000, rel=0.02)


@pytest.mark.parametrize("bad", [{"rate_per_second": 0}, {"rate_per_second": 1, "burstiness": 0}])
def test_a_schedule_without_a_rate_is_refused(bad):
    with pytest.raises(ValueError, match="positive"):
        next(arrival_times(**bad, seed=1))


@calmly
@given(
    st.lists(st.floats(0, 1e6), min_size=2, max_size=30, unique=True).map(sorted),
    st.floats(0.01, 1000),
)
def test_a_scaled_trace_has_the_rate_and_the_shape(recorded, rate):
    from hypothesis import assume

    assume(recorded[-1] - recorded[0] > 1e-3)
    times = take(3 * len(recorded), trace_times(recorded, rate_per_second=rate))
    assert (np.diff(times) >= -1e-6).all()
    assert times[len(recorded)] * rate == pytest.approx(len(recorded), rel=1e-6)
    gaps, wanted = np.diff(times[: len(recorded)]), np.diff(recorded)
    assert gaps / gaps.sum() == pytest.approx(wanted / wanted.sum(), abs=1e-6)


def test_a_trace_of_one_moment_has_no_rate():
    with pytest.raises(ValueError, match="one moment"):
        next(trace_times([3.0, 3.0], rate_per_second=1))


def test_fixed_lengths():
    assert set(take(3000, draw_lengths(Lengths(512), seed=1, stream=1))) == {512}


def test_lognormal_lengths_have_the_mean_and_variation_that_are_declared():
    drawn = take(200_000, draw_lengths(Lengths(1000, cv_percent=80), seed=1, stream=1))
    assert drawn.mean() == pytest.approx(1000, rel=0.02)
    assert drawn.std() / drawn.mean() == pytest.approx(0.8, rel=0.03)
    assert drawn.min() >= 1


def test_lengths_are_clipped():
    drawn = take(5000, draw_lengths(Lengths(10, cv_percent=300, maximum=20), seed=1, stream=1))
    assert (drawn.min(), drawn.max()) == (1, 20)


def test_a_histogram_is_drawn_as_it_is():
    buckets = ((1, 0.0), (10, 30.0), (100, 60.0), (1000, 10.0))
    drawn = take(100_000, draw_lengths(Lengths(1, histogram=buckets), seed=1, stream=1))
    shares = [((drawn > low) & (drawn <= high)).mean() for low, high in
              ((0, 1), (1, 10), (10, 100), (100, 1000))]  # fmt: skip
    assert shares == pytest.approx([0, 0.3, 0.6, 0.1], abs=0.01)
    assert drawn.max() <= 1000


def test_inputs_and_outputs_are_drawn_apart():
    lengths = Lengths(100, cv_percent=50)
    inputs, outputs = (take(1000, draw_lengths(lengths, seed=1, stream=n)) for n in (1, 2))
    assert abs(np.corrcoef(inputs, outputs)[0, 1]) < 0.1


@calmly
@given(st.integers(1, 5000), st.integers(1, 5000), st.one_of(st.none(), st.integers(2, 6000)))
def test_shapes_fit_the_model_and_are_never_empty(inputs, outputs, most):
    shape = RequestShape(inputs, outputs).within(most)
    assert 1 <= shape.input_tokens <= inputs
    assert 1 <= shape.output_tokens <= outputs
    assert most is None or shape.input_tokens + shape.output_tokens <= most


def bodies(count, shape, **settings):
    source = RequestSource(
        itertools.repeat(shape),
        model='a "quoted" name',
        vocabulary=Vocabulary(10, 5000),
        **settings,
    )
    planned = [source.next() for _ in range(count)]
    return planned, [json.loads(item.body) for item in planned]


def test_bodies_are_what_the_server_should_do():
    _, [body] = bodies(1, RequestShape(300, 7))
    assert body["model"] == 'a "quoted" name'
    assert len(body["prompt"]) == 300
    assert all(10 <= token < 5000 for token in body["prompt"])
    assert (body["max_tokens"], body["ignore_eos"], body["stream"]) == (7, True, True)
    assert body["stream_options"] == {"include_usage": True}


def test_prompts_share_the_prefix_and_nothing_else():
    planned, made = bodies(10, RequestShape(100, 1), shared_prefix_tokens=40)
    assert {item.shared_tokens for item in planned} == {40}
    assert len({tuple(body["prompt"][:40]) for body in made}) == 1
    assert len({body["prompt"][40] for body in made}) > 5


def test_a_prompt_has_a_token_of_its_own():
    planned, made = bodies(10, RequestShape(8, 1), shared_prefix_tokens=40)
    assert {item.shared_tokens for item in planned} == {7}
    assert len({body["prompt"][-1] for body in made}) > 5


def test_preparing_ahead_changes_nothing_but_the_moment():
    def source():
        shapes = (RequestShape(number, 1) for number in itertools.count(1))
        return RequestSource(shapes, model="m", vocabulary=Vocabulary(0, 99), entropy=7)

    plain, ahead = source(), source()
    while ahead.prepare():
        pass
    assert [plain.next().body for _ in range(40)] == [ahead.next().body for _ in range(40)]
