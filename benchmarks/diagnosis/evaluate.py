"""Diagnose every measured window and write ``benchmarks/results/diagnosis.md``.

    python benchmarks/diagnosis/evaluate.py

A bottleneck is a claim about what would help, so it is checked against what did: windows that
differ in one limit or in the number of clients alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from windows import Window, load_windows

from vllm_tuning.api.markdown import table
from vllm_tuning.tuning.diagnosis import diagnose
from vllm_tuning.tuning.model import Bottleneck, GPUActivity, Probe
from vllm_tuning.tuning.run import EVENT, ProbeEnded
from vllm_tuning.tuning.text import load_text

RESULTS = Path(__file__).resolve().parents[1] / "results"
RUN = RESULTS / "h200-chat" / "events.jsonl"


@dataclass(frozen=True)
class Step:
    """From one window to another that differs in one thing."""

    before: int
    after: int
    change: str


STEPS = (
    *(Step(before, before + 1, "twice the clients and max_num_seqs") for before in (4, 5, 6, 7, 8)),
    Step(35, 36, "8 times the decoding clients"),
    Step(36, 37, "4 times the decoding clients"),
    Step(1006, 1005, "max_num_seqs 48 to 64"),
    Step(1005, 1004, "max_num_seqs 64 to 96"),
    Step(1004, 1003, "max_num_seqs 96 to 128"),
    Step(1003, 1002, "max_num_seqs 128 to 256"),
    Step(24, 14, "max_num_batched_tokens 512 to 2048, at 50 req/s"),
    Step(14, 19, "max_num_batched_tokens 2048 to 8192, at 50 req/s"),
)


INTRODUCTION = """# The bottleneck verdict against the H200

Made by `python benchmarks/diagnosis/evaluate.py` from `benchmarks/data/h200/activity.csv` (our
own measurements, see there): `vllm_tuning.tuning.diagnosis` on GPM activity and engine signals of
50 load windows. The thresholds were set on these windows, so that they are separated shows little;
the next two tables are the checks that are not circular. Another kind of GPU was not measured.
"""
EFFECTS = """## What a verdict claims, and what happened
Memory-bound: a larger batch still pays. Compute-bound: it hardly does. SchedulerBound: raising that
limit pays. KVCapacityBound: raising `max_num_seqs` does not.
"""
OFFERED = """\
Windows 24 and 14 carry the same offered load, so throughput shows little of it; TTFT p50 went from
634 to 128 ms.
"""
ANOTHER_RUN = """## Another run
The probes of a whole tuning, `h200-chat/events.jsonl` (512/128; see there). None set a threshold.
"""
EVERY_WINDOW = """## Every window
GPU utilisation is shown for what it is worth: 82-100 % everywhere. It is not used.
"""
FEWER = """## With fewer counters
The same windows where the GPU or the cluster offers less. A verdict that is lost becomes Unknown
and says what is missing; one that changes would be wrong.
"""


def report(windows: list[Window]) -> Iterator[str]:
    yield INTRODUCTION
    yield from effects({window.number: window for window in windows})
    yield from another_run()
    yield from every_window(windows)
    yield from without_counters(windows)


def effects(windows: dict[int, Window]) -> Iterator[str]:
    yield EFFECTS
    rows = []
    for step in STEPS:
        before, after = windows[step.before], windows[step.after]
        old, new = (w.result.output_tokens_per_second or 0.0 for w in (before, after))
        verdict = diagnose(before.result).bottleneck
        throughput = f"{old:.0f} → {new:.0f}"
        rows.append((step.before, verdict, step.change, throughput, f"{new / old - 1:+.0%}"))
    yield table(("window", "verdict there", "change", "output tok/s", "gain"), rows)
    yield OFFERED


def another_run() -> Iterator[str]:
    yield ANOTHER_RUN
    rows = []
    for line in RUN.read_text(encoding="utf-8").splitlines():
        event = EVENT.validate_json(line)
        if isinstance(event, ProbeEnded):
            probe, found = event.result.probe, diagnose(event.result)
            load = load_text(probe.load)
            rows.append((probe.id, *_pair(probe), load, found.bottleneck, found.evidence))
    yield table(("probe", "seqs", "tokens", "load", "verdict", "evidence"), rows)


def every_window(windows: list[Window]) -> Iterator[str]:
    yield EVERY_WINDOW
    rows = []
    for window in windows:
        pair, found = _pair(window.result.probe), diagnose(window.result)
        util = f"{window.gpu_util_percent:.0f}"
        verdict = found.bottleneck, found.evidence
        rows.append((window.number, window.name, *pair, window.load, util, *verdict))
    head = ("window", "name", "seqs", "tokens", "load", "GPU util %", "verdict", "evidence")
    yield table(head, rows)


def _pair(probe: Probe) -> tuple[int, int]:
    return probe.limits.max_num_seqs, probe.limits.max_num_batched_tokens


def without_counters(windows: list[Window]) -> Iterator[str]:
    """How many verdicts stay with fewer counters, and whether any changes."""
    yield FEWER
    rows = []
    for name, cut in (
        ("memory activity only", ("tensor_active_percent",)),
        (
            "NVML only (before Hopper, no DCGM)",
            ("tensor_active_percent", "dram_active_percent", "sm_active_percent"),
        ),
        ("none", None),
    ):
        same = lost = changed = 0
        for window in windows:
            full = diagnose(window.result).bottleneck
            gpu = window.result.gpu
            less: GPUActivity | None = (
                replace(gpu, source="NVML", **dict.fromkeys(cut)) if gpu and cut else None
            )
            found = diagnose(replace(window.result, gpu=less)).bottleneck
            same += found is full
            lost += found is not full and found is Bottleneck.UNKNOWN
            changed += found is not full and found is not Bottleneck.UNKNOWN
        rows.append((name, same, lost, changed))
    yield table(("counters", "same", "lost", "changed"), rows)


if __name__ == "__main__":
    page = RESULTS / "diagnosis.md"
    page.write_text("\n".join(report(load_windows())), encoding="utf-8")
    print(f"wrote {page}")
