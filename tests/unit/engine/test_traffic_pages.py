"""What an engine's page says of its traffic, over releases and over several engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.metrics_page import traffic_page
from vllm_tuning.engine.traffic import Traffic, add_traffic, read_traffic

PAGES = sorted((Path(__file__).parent / "metrics_pages").glob("*.txt"))
NOW = 2e9


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_release_tells_prefix_hits_and_since_when(path):
    found = read_traffic(path.read_text(), now=NOW)
    assert found.prefix_hit_fraction == pytest.approx(0.4)
    assert found.begun_at is not None


def test_lengths_hits_and_rate():
    lengths = [(100, 10), (300, 30)] * 50
    found = read_traffic(traffic_page(lengths, hit_fraction=0.25, begun_at=NOW - 200), now=NOW)
    assert found.requests == 100
    assert (found.prompts.mean, found.outputs.mean) == (200, 20)
    assert found.prefix_hit_fraction == 0.25
    assert found.requests_per_second == 0.5


@pytest.mark.parametrize("begun_at", [0.0, NOW + 60])
def test_a_rate_needs_a_beginning_that_is_past(begun_at):
    text = traffic_page([(1, 1)], begun_at=begun_at)
    assert read_traffic(text, now=NOW).requests_per_second is None


def test_a_page_of_something_else_tells_nothing():
    assert read_traffic("up 1\n", now=NOW) == Traffic()


def test_engines_together():
    one = read_traffic(traffic_page([(100, 10)] * 4, hit_fraction=0.5, begun_at=NOW - 8), now=NOW)
    other = read_traffic(traffic_page([(400, 20)] * 2, begun_at=NOW - 4), now=NOW)
    both = add_traffic([one, other])
    assert (both.requests, both.prompts.mean) == (6, 200)
    assert both.prefix_hit_fraction == 200 / 1200
    assert both.begun_at == NOW - 8
    assert both.requests_per_second == 1.0
    assert add_traffic([one, Traffic()]).requests_per_second is None  # of one it is not known
    assert add_traffic([]) == Traffic()
