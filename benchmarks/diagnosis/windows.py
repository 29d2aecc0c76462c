"""The measured windows of ``benchmarks/data/h200/activity.csv`` as results of probes."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from vllm_tuning.tuning.model import (
    ClosedLoad,
    EngineDeltas,
    GPUActivity,
    Limits,
    Load,
    OpenLoad,
    Probe,
    ProbeResult,
    Purpose,
    Verdict,
)
from vllm_tuning.tuning.text import load_text

DATA = Path(__file__).resolve().parents[1] / "data" / "h200" / "activity.csv"


@dataclass(frozen=True)
class Window:
    """One window: what was offered, and what a probe would have reported of it."""

    number: int
    name: str
    input_tokens: int
    output_tokens: int
    gpu_util_percent: float
    result: ProbeResult

    @property
    def load(self) -> str:
        load = load_text(self.result.probe.load)
        return f"{load}, {self.input_tokens}/{self.output_tokens}"


def load_windows() -> list[Window]:
    """Read every window."""
    with DATA.open(encoding="utf-8") as file:
        return [_window(row) for row in csv.DictReader(file)]


def _window(row: dict[str, str]) -> Window:
    load: Load = (
        ClosedLoad(int(row["concurrency"])) if row["concurrency"] else OpenLoad(float(row["rate"]))
    )
    probe = Probe(
        id=row["window"],
        purpose=Purpose.SEARCH,
        limits=Limits(int(row["max_num_seqs"]), int(row["max_num_batched_tokens"])),
        load=load,
        seed=0,
        window_seconds=0.0,
    )
    result = ProbeResult(
        probe,
        Verdict.UNDECIDED,
        "Measured",
        "",
        seconds=0.0,
        output_tokens_per_second=float(row["out_tok_s"]),
        engine=EngineDeltas(
            preemptions=int(row["preemptions"]),
            running_mean=float(row["running_mean"]),
            running_max=int(row["running_max"]),
            waiting_mean=float(row["waiting_mean"]),
            kv_usage_peak_fraction=float(row["kv_peak_fraction"]),
            steps=int(row["steps"]),
            tokens_per_step=float(row["tokens_per_step"]),
        ),
        gpu=GPUActivity(
            source="GPM",
            dram_active_percent=float(row["dram_percent"]),
            tensor_active_percent=float(row["tensor_percent"]),
            sm_active_percent=float(row["sm_percent"]),
            memory_utilization_percent=float(row["memory_util_percent"]),
            sm_clock_megahertz=float(row["sm_clock_mhz"]),
            power_watts=float(row["power_w"]),
        ),
    )
    return Window(
        int(row["window"]),
        row["name"],
        int(row["input_tokens"]),
        int(row["output_tokens"]),
        float(row["gpu_util_percent"]),
        result,
    )
