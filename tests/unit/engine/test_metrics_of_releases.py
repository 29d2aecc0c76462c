"""One page for each release at which a spelling changed, in its form, cut to few buckets.

All of them say the same, so every release must be read as the same.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from vllm_tuning.engine.exposition import parse_samples
from vllm_tuning.engine.flags.version import parse_version
from vllm_tuning.engine.metrics import COUNTERS, SERIES, EnginePage, Series, read_page

PAGES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in (Path(__file__).parent / "metrics_pages").iterdir()
}
READ = EnginePage(
    running=12,
    waiting=3,
    kv_usage=0.25,
    preemptions=7,
    prompt_tokens=5000,
    generation_tokens=1280,
    prefix_queries=1000,
    prefix_hits=400,
    finished=11,
    aborted=1,
    steps=320,
    step_tokens=6280,
    queue_seconds=1.1,
    prefill_seconds=2.2,
    decode_seconds=13.2,
    started_at=1.7958e9,
    created_at=1.7959e9,
    engines=1,
)
ALIASES = [
    pytest.param(meaning, series, id=series.name)
    for meaning, spellings in SERIES.items()
    for series in spellings
]


def shows(series: Series, release: str) -> bool:
    version = parse_version(release)
    return parse_version(series.since) <= version and (
        series.until is None or version <= parse_version(series.until)
    )


def test_the_pages_span_the_supported_releases():
    assert min(PAGES, key=parse_version) == "0.8.5"
    assert max(PAGES, key=parse_version) == "0.33.0"


@pytest.mark.parametrize("release", PAGES)
def test_every_release_is_read_alike(release):
    page = read_page(PAGES[release], model="llama")
    configured = dict(page.cache_config)
    assert (configured["num_gpu_blocks"], configured["block_size"]) == ("57512", "16")
    for field in fields(EnginePage):
        if field.name not in {"cache_config", "rejections"}:
            assert getattr(page, field.name) == getattr(READ, field.name), field.name
    assert page.rejections == (4 if shows(SERIES["rejections"][0], release) else None)


@pytest.mark.parametrize(("meaning", "series"), ALIASES)
def test_a_spelling_is_on_the_pages_of_its_releases_and_read_there_alone(meaning, series):
    where = {
        release
        for release, text in PAGES.items()
        if any(sample.name == series.name for sample in parse_samples(text, {series.name}))
    }
    assert where == {release for release in PAGES if shows(series, release)}
    assert where, "no page shows it"
    for release in where:
        lines = [line for line in PAGES[release].splitlines() if line.startswith(series.name)]
        alone = read_page("\n".join(lines), model="llama")
        assert getattr(alone, meaning) is not None


def test_every_field_of_a_page_has_a_spelling():
    derived = {"aborted", "engines", "cache_config"}
    assert {field.name for field in fields(EnginePage)} - derived == set(SERIES)
    gauges = {"running", "waiting", "kv_usage", "started_at", "created_at"}
    assert set(COUNTERS) == set(SERIES) - gauges | {"aborted"}
