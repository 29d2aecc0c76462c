"""A report from a run's log: folded, rendered, and complete on its own."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from tests.unit.report.runs import a_recommendation, a_result, a_run
from vllm_tuning.report.html import render as render_html
from vllm_tuning.report.model import REPORT, from_events, read_events
from vllm_tuning.report.terminal import WIDE, number, render
from vllm_tuning.tuning.model import Bottleneck, OpenLoad, Verdict
from vllm_tuning.tuning.run import EVENT, RunFailed


@pytest.fixture
def events():
    best = a_result(96, load=OpenLoad(12.5), name="confirm")
    sweep = [
        a_result(s, throughput=t, preemptions=p)
        for s, t, p in ((48, 6000, 0), (96, 8500, 5), (128, 8600, 134))
    ]
    return a_run(
        *sweep,
        a_result(48, ttft=412.0, verdict=Verdict.FAIL, load=OpenLoad(12.5)),
        best,
        recommendation=a_recommendation(best),
    )


def as_lines(events):
    return [EVENT.dump_json(event).decode() for event in events]


def text(report, width=200):
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(render(report, wide=width >= WIDE))
    return console.export_text()


def test_the_terminal_says_what_bound_the_recommended_point_and_each_probe():
    best = replace(
        a_result(96, load=OpenLoad(12.5), name="confirm"),
        bottleneck=Bottleneck.MEMORY_BANDWIDTH,
        bottleneck_evidence="memory 60 %, tensor 10 % active (GPM)",
    )
    shown = text(from_events(a_run(best, recommendation=a_recommendation(best)), title="chat"))
    assert "MemoryBandwidthBound: memory 60 %, tensor 10 % active (GPM)" in shown
    (row,) = [line for line in shown.splitlines() if line.split()[:1] == [best.probe.id]]
    assert row.split()[-1] == "MemoryBandwidth"


def test_a_log_read_in_pieces_and_mixed_with_other_lines_counts_each_event_once(events):
    lines = as_lines(events)
    mixed = ["INFO starting", *lines[:5], *lines[2:], '{"kind": "somebody else\'s"}', "{broken"]
    assert read_events(mixed) == tuple(events)


def test_the_report_survives_its_own_json(events):
    report = from_events(events, title="chat")
    assert REPORT.validate_json(REPORT.dump_json(report)) == report


def test_the_terminal_shows_answer_knee_and_each_verdict(events):
    shown = text(from_events(events, title="chat"))
    for expected in (
        "Recommended",
        "max_num_seqs=96",
        "+31 %",
        "◄ knee",
        "FAIL",
        "412",
        "KV cache 97,488 tokens",
    ):
        assert expected in shown


def test_eighty_columns_name_each_figure_in_full():
    failed = a_result(48, ttft=412.0, verdict=Verdict.FAIL, load=OpenLoad(12.5))
    failed = replace(failed, probe=replace(failed.probe, id="p12"))
    lines = text(from_events(a_run(failed), title="chat"), width=80).splitlines()
    (heading,) = [line for line in lines if line.split()[:1] == ["probe"]]
    assert heading.split() == [
        *("probe", "seqs", "tokens", "load", "TTFT", "p95", "TPOT", "p95"),
        *("out", "tok/s", "verdict"),
    ]
    (row,) = [line for line in lines if "412" in line]
    assert re.split(r" {2,}", row.strip()) == [
        *("p12 Sear", "48", "8192", "12.5 req/s", "412", "10", "7000", "FAIL"),
    ]


def test_a_broken_run_says_why():
    report = from_events(
        [*a_run(), RunFailed(99, 1.0, "Terminated", "the pod was evicted", 30.0)], title="x"
    )
    assert report.complete
    assert "Terminated: the pod was evicted" in text(report)


def test_an_unfinished_run_is_told_as_such(events):
    report = from_events(events[:5], title="x")
    assert not report.complete
    assert "still running" in text(report)


def test_the_page_needs_nothing_else_and_its_ids_are_unique(events):
    page = render_html(from_events(events, title="<chat> & co"))
    assert len(page) < 2_000_000
    assert not re.search(r"<script|<link|@import|src=|https?://(?!www\.w3\.org)", page)
    assert "&lt;chat&gt; &amp; co" in page

    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids)) > 0


def test_what_is_not_known_is_a_dash_and_never_zero():
    assert number(None) == "-"
    assert number(0.0) == "0"
    assert number(1234.5) == "1234"
    assert number(0.01234) == "0.0123"
