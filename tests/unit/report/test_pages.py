"""The page as people see it: by a browser, wide and on a telephone, light and dark.

The pictures are kept in ``build/report`` to be looked at.
"""

import warnings

import pytest

from tests.browser import CHROMIUM, browser
from tests.cluster_fixtures.cluster import ROOT
from tests.unit.report.runs import a_recommendation, a_result, a_run
from vllm_tuning.report.html import render
from vllm_tuning.report.model import from_events, read_events
from vllm_tuning.report.plots import load_curves, sweep_curves
from vllm_tuning.report.timeline import timeline
from vllm_tuning.tuning.model import OpenLoad, Verdict

RECORDED = ROOT / "benchmarks/results/h200-chat/events.jsonl"

UNREADABLE = """
(() => {
  const channels = text => text.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => [r, g, b]
    .map(c => c / 255)
    .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = channels(getComputedStyle(e).backgroundColor);
      if (colour.length == 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some(n => n.nodeType == 3 && n.data.trim());
    if (!own || element.tagName == 'style') continue;
    const style = getComputedStyle(element);
    const inPicture = element.ownerSVGElement;
    const [ink, paper] = [inPicture ? style.fill : style.color, ground(element)];
    const [light, dark] = [luminance(channels(ink)), luminance(paper)].sort((a, b) => b - a);
    const contrast = (light + 0.05) / (dark + 0.05);
    const height = inPicture
      ? parseFloat(style.fontSize) * element.getScreenCTM().d
      : parseFloat(style.fontSize);
    if (contrast < 4.5 || height < 8)
      found.push([element.textContent.trim(), contrast.toFixed(1), height.toFixed(1)]);
  }
  return found;
})()
"""
"""Texts with less contrast than WCAG 2.2 AA asks for (1.4.3), or smaller than 8 pixels."""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render(from_events(read_events(RECORDED.open()), title="chat")))
    return file


@pytest.fixture
def kept():
    folder = ROOT / "build" / "report"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
async def test_the_page_is_readable_at_every_width_and_in_the_dark(page, kept):
    async with browser() as tab:
        for width in (1400, 400):
            for scheme in ("light", "dark"):
                await tab.show(page, width=width, scheme=scheme)
                (kept / f"{width}-{scheme}.png").write_bytes(await tab.picture())
                where = (width, scheme)
                assert await tab.evaluate(UNREADABLE) == [], where
                wide = await tab.evaluate("document.documentElement.scrollWidth")
                assert wide == width, where
                paper = await tab.evaluate("getComputedStyle(document.body).backgroundColor")
                assert (paper == "rgb(255, 255, 255)") == (scheme == "light"), where


def test_many_settings_leave_room_for_the_curves():
    results = [
        a_result(seqs, tokens, load=OpenLoad(rate), name=f"p{seqs}-{rate}")
        for seqs in (16, 32, 64, 128, 256)
        for tokens in (512, 2048, 8192)
        for rate in (4, 8)
    ]
    report = from_events(a_run(*results), title="x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns when axes collapse
        loads = load_curves(report)
        sweep = sweep_curves(report, "max_num_seqs", "Sweep")
    assert len(loads.key) == 15
    assert len(sweep.panels) == 3


def test_a_fresh_start_is_a_line_of_its_own():
    events = read_events(RECORDED.open())
    labels = [label for _, label in load_curves(from_events(events, title="x")).key]
    assert labels[-2:] == ["128 seqs, 2048 tokens", "128 seqs, 2048 tokens, fresh start"]


def test_the_timeline_covers_the_run_and_tells_each_outcome():
    best = a_result(96)
    run = a_run(a_result(48, verdict=Verdict.FAIL), best, recommendation=a_recommendation(best))
    line = timeline(from_events(run, title="x"))
    assert [bar.span.outcome for bar in line.probes] == ["FAIL", "PASS"]
    (start,) = line.starts
    assert start.left == 0
    last = line.probes[-1]
    assert last.left + last.width == pytest.approx(100)
    assert [seconds for _, seconds in line.ticks] == [0, 10, 20, 30, 40, 50]


def test_a_run_without_an_answer_has_no_timeline():
    assert timeline(from_events([], title="x")) is None
