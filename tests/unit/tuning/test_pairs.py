"""Windows whose clocks do not belong together are no pair."""

from __future__ import annotations

import csv
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import pytest

from vllm_tuning.tuning.model import (
    GPUActivity,
    Limits,
    OpenLoad,
    Probe,
    ProbeResult,
    Purpose,
    SLOResult,
    Verdict,
)
from vllm_tuning.tuning.pairs import unlike_clocks

from .test_final_and_proof import CHALLENGER, INCUMBENT, TTFT, final

MEASURED = Path(__file__).parents[3] / "benchmarks/data/h200/activity.csv"


def window(name: str, **gpu: object) -> ProbeResult:
    probe = Probe(name, Purpose.SEARCH, Limits(64, 2048), OpenLoad(10.0), 1, 10.0)
    return ProbeResult(probe, Verdict.UNDECIDED, "", "", 10.0, gpu=GPUActivity("NVML", **gpu))


def measured() -> dict[tuple[str, ...], list[ProbeResult]]:
    """The windows of a real card by their load."""
    found = defaultdict(list)
    with MEASURED.open() as lines:
        for row in csv.DictReader(lines):
            gpu = {
                "sm_clock_megahertz": float(row["sm_clock_mhz"]),
                "power_watts": float(row["power_w"]),
                "throttled": None if row["power_capped"] == "never" else "SwPowerCap",
            }
            load = (row["rate"], row["concurrency"], row["input_tokens"], row["output_tokens"])
            # Of closed loops only those of one series were offered the same lengths.
            found[(*load, "" if row["rate"] else row["name"])].append(window(row["window"], **gpu))
    return found


def test_what_limits_cost_in_power_makes_no_pair_unlike():
    pairs = [pair for windows in measured().values() for pair in combinations(windows, 2)]
    assert len(pairs) > 20
    assert [why for pair in pairs if (why := unlike_clocks(pair))] == []


def test_a_lower_clock_without_a_cap_is_told():
    fast = window("p7", sm_clock_megahertz=1980.0)
    slow = window("p8", sm_clock_megahertz=1410.0)
    assert unlike_clocks([fast, slow]) == (
        "p7 and p8: SM clock 1410 against 1980 MHz, and no power cap to explain it"
    )
    assert unlike_clocks([fast, window("p8", sm_clock_megahertz=1900.0)]) is None


def test_a_cap_that_moved_is_told():
    high = window("p7", sm_clock_megahertz=1700.0, power_watts=690.0, throttled="SwPowerCap 99 %")
    low = window("p8", sm_clock_megahertz=1300.0, power_watts=500.0, throttled="SwPowerCap 100 %")
    assert "at 500 W in one and at 690 W" in (unlike_clocks([high, low]) or "")


@pytest.mark.parametrize("gpu", [None, GPUActivity("NVML")])
def test_without_clocks_nothing_is_told(gpu):
    blind = ProbeResult(window("p7").probe, Verdict.UNDECIDED, "", "", 10.0, gpu=gpu)
    assert unlike_clocks([blind, window("p8", sm_clock_megahertz=1980.0)]) is None


def test_a_final_repeats_a_turn_whose_clocks_differ(problem, toy):
    """In the first turn the challenger only wins because the incumbent's clocks were held down."""
    asked: list[Probe] = []

    def answer(probe: Probe) -> ProbeResult:
        asked.append(probe)
        held_down = len(asked) <= 2 and probe.limits == INCUMBENT
        holds = probe.limits == CHALLENGER if len(asked) <= 2 else probe.limits == INCUMBENT
        slo = SLOResult(TTFT, 0.99 if holds else 0.5, observed_milliseconds=290.0)
        verdict = Verdict.PASS if holds else Verdict.FAIL
        gpu = GPUActivity("NVML", sm_clock_megahertz=1200.0 if held_down else 1980.0)
        return ProbeResult(probe, verdict, "", "", 10.0, slos=(slo,), gpu=gpu)

    winner, loads = final(problem(), toy(), answer)
    assert winner == INCUMBENT
    assert loads == [30.0] * 6  # the spoiled turn, and two that count
    assert len({probe.seed for probe in asked}) == 3  # other arrivals in each
