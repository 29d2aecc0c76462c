"""The measured load windows of ``benchmarks/data/h200``, and the same windows on the twin.

A window on the twin repeats the protocol of the measurement: the same arrivals, lengths, warm-up,
limits and rules for what is counted, so that what differs is the engine. Percentile p is element
int(p n) of the sorted list, as in the data.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from vllm_tuning.bench.sim.assemble import assemble
from vllm_tuning.bench.sim.frontend import FrontendCost
from vllm_tuning.bench.sim.memory import EngineSettings, MemoryPlan
from vllm_tuning.bench.sim.parameters import EngineParameters
from vllm_tuning.bench.sim.virtual import VirtualLoad

DATA = Path(__file__).resolve().parents[1] / "data" / "h200"
STARTED = EngineSettings(
    max_num_seqs=256,
    max_num_batched_tokens=8192,
    max_model_len=4096,
    enable_prefix_caching=False,
)
BLOCKS = {"main": 57_512, "kv": 6_093}
METRICS = ("ttft_p50", "ttft_p95", "tpot_p50", "tpot_p95", "out_tok_s")
UNSTREAMED_TOKEN_SHARE = 0.4
"""Work of the API server per token if the answer is not streamed, of that if it is. At 20,300
tokens per second its process took 69 % of a core, so it is less than 34 microseconds."""
LENGTH_LIMITS = (16, 3500)
LONG_SHARE, LONG, SHORT = 0.1, 3500, 64


@dataclass(frozen=True)
class MeasuredWindow:
    """One window as it was measured. Times in seconds, latencies in milliseconds."""

    window: int
    name: str
    plan: str
    limits: dict[str, Any]
    conc: int | None
    rate: float | None
    isl: int
    osl: int
    seed: int
    stream: bool
    warm_s: float
    meas_s: float
    n_fixed: int | None
    measured: dict[str, float]

    @property
    def label(self) -> str:
        """Short name for tables."""
        load = f"conc {self.conc}" if self.conc else f"{self.rate:g} req/s"
        extra = f", threshold {self.limits['lpt']}" if self.limits["lpt"] else ""
        extra += "" if self.limits["chunked"] else ", not chunked"
        return f"{self.name} S {self.limits['seqs']} B {self.limits['tokens']} {load}{extra}"


def load_windows() -> list[MeasuredWindow]:
    """Read every window."""
    rows = json.loads((DATA / "windows.json").read_text(encoding="utf-8"))
    return [MeasuredWindow(**row) for row in rows]


def lengths(window: MeasuredWindow) -> Iterator[tuple[int, int]]:
    """Prompt and output tokens of the window's requests, as the measurement drew them."""
    if window.name.startswith(("D-cv", "G-chunked", "G-nochunk", "warmup-mixed")):
        spread = float(window.name[4:]) if window.name.startswith("D-cv") else 1.0
        if window.name == "warmup-mixed":
            spread = 1.5
        variance = np.log(1 + spread * spread)
        index = 0
        while True:
            random = np.random.default_rng([window.seed, index])
            drawn = random.lognormal(np.log(512) - variance / 2, variance**0.5)
            low, high = LENGTH_LIMITS
            yield min(high, max(low, round(float(drawn)))), window.osl
            index += 1
    elif window.name == "G-long-prefill":
        index = 0
        while True:
            random = np.random.default_rng([window.seed, index])
            yield LONG if random.random() < LONG_SHARE else SHORT, window.osl
            index += 1
    else:
        yield from repeat((window.isl, window.osl))


def arrivals(window: MeasuredWindow) -> Iterator[float]:
    """Arrival times of an open window, as the measurement drew them."""
    random = np.random.default_rng(20_000 + window.seed)
    at = 0.0
    while True:
        yield at
        at += random.exponential(1 / window.rate)


def predict(
    parameters: EngineParameters, window: MeasuredWindow, seed: int
) -> dict[str, float | None]:
    """Run the window on the twin; keys as in ``MeasuredWindow.measured``."""
    blocks = BLOCKS[window.plan]
    memory = MemoryPlan(0, blocks, blocks * 16)
    # All windows come from one card, so the coefficients are that card's: no other is drawn.
    parameters = replace(parameters, noise=replace(parameters.noise, card=0.0))
    core = assemble(parameters, STARTED, memory, seed=seed, card_seed=seed, track_decoding=False)
    core.scheduler.limits = replace(
        core.scheduler.limits,
        seqs=window.limits["seqs"],
        tokens=window.limits["tokens"],
        long_prefill_token_threshold=window.limits["lpt"],
        chunked=window.limits["chunked"],
    )
    if window.limits["kv_blocks"] is not None:
        core.scheduler.pool.hold_back(blocks - 1 - window.limits["kv_blocks"])
    load = VirtualLoad(
        core,
        lengths(window),
        frontend=_frontend(parameters, window),
        origin=0.0,
        request_limit=window.n_fixed,
    )
    if window.rate:
        load.start_open(arrivals(window))
    else:
        load.start_closed(window.conc)
    if window.n_fixed:
        begin, end = 0.0, float("inf")
        load.run_until(0.0)
        load.run_until_answered(end, limit=1000.0)
    else:
        begin, end = window.warm_s, window.warm_s + window.meas_s
        load.run_until(end)
        load.run_until_answered(end, limit=15.0)
    return _summary(load, window, begin, end)


def _frontend(parameters: EngineParameters, window: MeasuredWindow) -> FrontendCost:
    if window.stream:
        return parameters.frontend
    return replace(parameters.frontend, token=parameters.frontend.token * UNSTREAMED_TOKEN_SHARE)


def _summary(
    load: VirtualLoad, window: MeasuredWindow, begin: float, end: float
) -> dict[str, float | None]:
    samples = load.samples()
    rows = samples.ok & (samples.scheduled_at >= begin) & (samples.scheduled_at < end)
    ttft, tpot = samples.ttft_ms[rows], samples.tpot_ms[rows]
    if not window.stream:  # the client saw only the whole answer
        ttft, tpot = samples.e2e_ms[rows], np.zeros(int(rows.sum()))
    log = load.log
    ended = np.asarray(log.ended_at)
    last = ended[-1] if window.n_fixed else end
    inside = (ended >= begin) & (ended <= last)
    span = last - begin
    summary: dict[str, float | None] = {
        f"{name}_p{share}": _percentile(values, share / 100)
        for name, values in (("ttft", ttft), ("tpot", tpot), ("max_gap", samples.max_gap_ms[rows]))
        for share in (50, 95, 99)
    }
    outputs = np.asarray(log.output_tokens)[inside].sum()
    summary["out_tok_s"] = float(outputs) / span
    if window.conc and not window.n_fixed and window.osl > 1:
        summary["out_tok_s"] = _whole_waves(load, window)
    summary["preemptions"] = float(np.asarray(log.preempted)[inside].sum())
    summary["running_max"] = float(max(log.running))
    summary["requests"] = float(rows.sum())
    return summary


def _percentile(values: np.ndarray, share: float) -> float | None:
    ordered = np.sort(values[~np.isnan(values)])
    return (
        float(ordered[min(len(ordered) - 1, int(share * len(ordered)))]) if len(ordered) else None
    )


def _whole_waves(load: VirtualLoad, window: MeasuredWindow) -> float | None:
    """Tokens per second from the start to the end of the last complete wave of clients."""
    ends = np.sort(load.samples().ended_at)
    ends = ends[~np.isnan(ends)]
    waves = len(ends) // window.conc
    if not waves:
        return None
    count = waves * window.conc
    return float(count * window.osl / ends[count - 1])
