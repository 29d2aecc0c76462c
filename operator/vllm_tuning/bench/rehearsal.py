"""Run the verdict once before the load, so that its first run delays no request.

The first call imports scipy and parts of numpy: 0.3 s of a busy machine, in the middle of a
measured window if it is left to the first look.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vllm_tuning.bench import rates
from vllm_tuning.tuning.model import SLO, Probe
from vllm_tuning.tuning.percentiles import summarize
from vllm_tuning.tuning.samples import RequestSamples, Window
from vllm_tuning.tuning.verdict import judge

ROWS = 64


def rehearse(probe: Probe, slos: Sequence[SLO]) -> None:
    """Judge made-up requests and throw the answer away."""
    at = np.arange(ROWS, dtype=np.float64)
    samples = RequestSamples.of(
        scheduled_at=at,
        first_token_at=at + 0.5,
        last_token_at=at + 1 + (at % 7),
        output_tokens=np.full(ROWS, 2),
        max_gap_ms=at,
        gap_ms=at,
        gap_row=np.arange(ROWS),
    )
    window = Window(0.0, float(ROWS))
    in_flight = [(float(time), int(time)) for time in at]
    for now in (float(ROWS), None):
        judge(samples, slos, probe, windows=[window], in_flight=in_flight, now=now)
    summarize(samples.tpot_ms)
    rates.goodput_fraction(slos, rates.rows_in(samples, [window]))
