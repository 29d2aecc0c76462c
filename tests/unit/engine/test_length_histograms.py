"""The engine's own length histograms, and the workload they make."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from vllm_tuning.bench.load.lengths import draw_lengths
from vllm_tuning.engine.lengths import (
    LengthHistogram,
    add_lengths,
    read_lengths,
    spread,
    with_mean,
)
from vllm_tuning.tuning.model import Lengths

EDGES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)


def page(*engines, model="m"):
    registry = CollectorRegistry()
    family = Histogram(
        "vllm:request_prompt_tokens",
        "p",
        ["model_name", "engine"],
        buckets=EDGES,
        registry=registry,
    )
    for number, lengths in enumerate(engines):
        for length in lengths:
            family.labels(model, str(number)).observe(length)
    return generate_latest(registry).decode()


def test_counts_and_mean():
    found = read_lengths(page([3, 30, 300]), "prompt")
    assert (found.count, found.mean) == (3, 111)
    assert {edge: count for edge, count in found.buckets() if count} == {5: 1, 50: 1, 500: 1}


def test_engines_are_summed_and_other_models_left_out():
    found = read_lengths(page([3], [4, 40]) + page([7], model="other"), "prompt", model="m")
    assert found.count == 3


def test_only_what_came_since():
    before, after = (read_lengths(page(seen), "prompt") for seen in ([3, 3], [3, 3, 300]))
    recent = after.since(before)
    assert (recent.count, recent.mean) == (1, 300)


def test_after_a_restart_everything_is_recent():
    before, after = (read_lengths(page(seen), "prompt") for seen in ([3] * 9, [300]))
    assert after.since(before).count == 1


@pytest.mark.parametrize(
    ("longest", "edge"),
    [(None, 4999), (4096, 4096), (1500, 4999)],  # the last edge, 2000, is within the model's length
)
def test_beyond_the_last_edge(longest, edge):
    found = read_lengths(page([5, 3000]), "prompt")
    assert found.buckets(longest)[-1] == (edge, 1)
    assert found.within(0.99, longest) == (2001, edge)


def test_no_bucket_is_longer_than_the_longest_request():
    assert read_lengths(page([30]), "prompt").buckets(4096)[-1] == (50, 1)


def test_a_quantile_is_known_as_its_bucket():
    found = read_lengths(page([*[30] * 90, *[300] * 10]), "prompt")
    assert (found.within(0.5), found.within(0.9), found.within(0.95)) == (
        (21, 50),
        (21, 50),
        (201, 500),
    )


def test_engines_with_other_edges_are_added_where_all_have_one():
    left = read_lengths(page([3, 30]), "prompt")
    right = LengthHistogram({10.0: 4.0, 32.0: 5.0, np.inf: 6.0}, 200.0)
    both = add_lengths([left, right, LengthHistogram()])
    assert both.cumulative == {10.0: 5.0, np.inf: 8.0}
    assert (both.count, both.mean) == (8, 233 / 8)


@pytest.mark.parametrize("text", ["", 'vllm:request_prompt_tokens_bucket{le="x"} 1\n'])
def test_nothing_known(text):
    found = read_lengths(text, "prompt")
    assert (found.buckets(), found.mean, found.count) == ((), None, 0)
    assert found == LengthHistogram({}, 0.0)


@pytest.mark.parametrize("mean", [30, 150, 250, 900])
@pytest.mark.parametrize("cv", [0.1, 0.5, 1.0, 2.0])
def test_a_workload_learnt_from_it_is_like_the_traffic(mean, cv):
    rng = np.random.default_rng(1)
    sigma = np.sqrt(np.log1p(cv * cv))
    seen = np.clip(rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, 20_000), 1, 4000).astype(int)
    learnt = read_lengths(page(seen.tolist()), "prompt")
    whole = learnt.buckets(4096)
    narrowed = with_mean(whole, learnt.mean)
    workload = Lengths(round(learnt.mean), histogram=narrowed)
    drawn = np.array(list(itertools.islice(draw_lengths(workload, seed=1, stream=1), 20_000)))
    assert drawn.mean() == pytest.approx(seen.mean(), rel=0.03)  # 20,000 draws
    assert drawn.std() / drawn.mean() == pytest.approx(spread(narrowed), rel=0.1)
    edges = [edge for edge, _ in whole]
    shares = np.searchsorted(np.sort(drawn), edges, side="right") / drawn.size
    truth = np.searchsorted(np.sort(seen), edges, side="right") / seen.size
    assert shares == pytest.approx(truth, abs=0.015)  # the bound of every percentile


def test_percentiles_are_as_near_as_the_docs_say():
    """What ``docs/workload.md`` claims of lognormal traffic, from buckets of 1-2-5 alone."""
    worst = dict.fromkeys(("mean", 0.5, 0.9, 0.95, 0.99), 0.0)
    for mean in (30, 64, 128, 250, 300, 600, 900):
        for cv in (0.1, 0.3, 0.5, 1.0, 1.5, 2.5):
            seen = lognormal(mean, cv, 20_000)
            edges = [*(edge for edge in EDGES), np.inf]
            found = LengthHistogram(
                {float(edge): float((seen <= edge).sum()) for edge in edges}, float(seen.sum())
            )
            drawn = with_mean(found.buckets(4096), found.mean)
            upper = np.array([0, *(edge for edge, _ in drawn)])
            shares = np.cumsum([0.0, *(count for _, count in drawn)]) / seen.size
            middle = (upper[:-1] + upper[1:] + 1) / 2
            off = abs((np.diff(shares) * middle).sum() / seen.mean() - 1)
            worst["mean"] = max(worst["mean"], off)
            for share in (0.5, 0.9, 0.95, 0.99) if cv >= 0.5 else ():
                true = np.quantile(seen, share)
                error = abs(np.interp(share, shares, upper) / true - 1)
                worst[share] = max(worst[share], error)
    assert worst["mean"] < 0.005
    assert max(worst[0.5], worst[0.9]) < 0.16
    assert max(worst[0.95], worst[0.99]) < 0.3


def lognormal(mean, cv, count):
    sigma = np.sqrt(np.log1p(cv * cv))
    drawn = np.random.default_rng(1).lognormal(np.log(mean) - sigma**2 / 2, sigma, count)
    return np.clip(np.rint(drawn), 1, 4000)


@pytest.mark.parametrize("mean", [0.5, 1e9])
def test_a_mean_that_the_buckets_exclude_gives_the_nearest(mean):
    buckets = ((1, 3.0), (10, 4.0))
    found = with_mean(buckets, mean)
    assert found == (((1, 3.0), (2, 4.0)) if mean < 1 else ((1, 3.0), (9, 0.0), (10, 4.0)))
    assert found[-1][1] > 0


def test_one_length_only():
    assert with_mean(((1, 9.0),), 1.0) == ((1, 9.0),)
    assert spread(((1, 9.0),)) == 0.0
