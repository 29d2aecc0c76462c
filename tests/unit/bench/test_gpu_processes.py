"""Whose work on a GPU is whose, from pids that mean nothing."""

import pytest

from vllm_tuning.bench.gpu_processes import engine_processes, others_percent


def sample(time, percents, device=0):
    return {"time": time, "device": device, "process_sm_percent": percents}


def test_the_engine_is_what_worked_since_its_start_and_not_before():
    samples = [
        sample(95, {"7": 20, "8": 0}),
        sample(101, {"7": 20, "8": 90}),
        sample(101, {"12": 90}, device=1),
    ]
    assert engine_processes(samples, 100) == {0: {"8"}, 1: {"12"}}


def test_a_neighbour_counts_where_it_works_most():
    engine = {0: frozenset({"8"}), 1: frozenset({"12"})}
    samples = [
        sample(200, {"8": 90, "7": 10}),
        sample(201, {"8": 90}),
        sample(200, {"12": 50, "13": 30}, device=1),
        sample(201, {"12": 50, "13": 50}, device=1),
    ]
    assert others_percent(samples, engine) == 40
    assert others_percent(samples[:2], engine) == 5


def test_alone_on_the_card_is_none_of_others():
    assert others_percent([sample(200, {"8": 97}), sample(201, {})], {0: frozenset({"8"})}) == 0


@pytest.mark.parametrize("engine", [{}, {0: frozenset({"99"})}])
def test_an_engine_that_was_not_seen_at_its_start_is_the_busiest(engine):
    assert others_percent([sample(200, {"8": 60, "7": 30})], engine) == 30


def test_without_answers_nothing_is_told():
    silent = [{"time": 200, "device": 0, "power_watts": 300}]
    assert engine_processes(silent, 100) == {0: frozenset()}
    assert others_percent(silent, {}) is None
