"""From a declared workload to the requests and arrivals of one probe."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

from vllm_tuning.bench.load.arrivals import arrival_times, trace_times
from vllm_tuning.bench.load.facts import ServerFacts
from vllm_tuning.bench.load.lengths import RequestShape, draw_lengths
from vllm_tuning.bench.load.prompts import RequestSource
from vllm_tuning.bench.load.traces import read_trace
from vllm_tuning.tuning.model import OpenLoad, Probe, Workload
from vllm_tuning.tuning.recorded import Trace

log = logging.getLogger(__name__)


class ProbeWorkload:
    """What one probe sends, and when."""

    def __init__(self, workload: Workload, probe: Probe) -> None:
        """Read the trace if there is one; raises ``TraceError``."""
        self._workload = workload
        self._probe = probe
        self._trace = recorded(workload)

    @property
    def predictable_prefix(self) -> bool:
        """Whether the prefix hit ratio follows from the declaration.

        A trace's shared blocks hit only while they are still cached, which depends on the engine.
        """
        return self._trace is None or not self._trace.has_blocks

    def source(self, *, model: str, facts: ServerFacts) -> RequestSource:
        """Return the requests: shapes by the probe's seed, token ids never seen before."""
        inputs = self._workload.input_tokens
        return RequestSource(
            self._shapes(),
            model=model,
            vocabulary=facts.vocabulary,
            shared_prefix_tokens=inputs.mean * self._workload.shared_prefix_percent // 100,
            max_model_len=facts.max_model_len,
        )

    def arrivals(self, load: OpenLoad, *, ramp_seconds: float) -> Iterator[float]:
        """Return arrival times in seconds from the start of the load.

        A trace keeps the shape of its own arrivals, at the rate that is asked; it has no ramp.
        """
        if self._trace is not None and len(self._trace.rows) > 1:
            recorded = [row.at_seconds for row in self._trace.rows]
            if self._trace.span_seconds > 0:
                return trace_times(recorded, rate_per_second=load.rate_per_second)
        return arrival_times(
            load.rate_per_second,
            burstiness=load.burstiness,
            seed=self._probe.seed,
            ramp_seconds=ramp_seconds,
        )

    def _shapes(self) -> Iterator[RequestShape]:
        if self._trace is not None:
            rows = self._trace.rows
            shapes = [RequestShape(row.input_tokens, row.output_tokens, row.blocks) for row in rows]
            return cycle(shapes)
        seed = self._probe.seed
        inputs = draw_lengths(self._workload.input_tokens, seed=seed, stream=1)
        outputs = draw_lengths(self._workload.output_tokens, seed=seed, stream=2)
        return map(RequestShape, inputs, outputs)


def recorded(workload: Workload) -> Trace | None:
    """Read the workload's trace, if it has one. Raises ``TraceError``."""
    if workload.trace_path is None:
        return None
    trace = read_trace(Path(workload.trace_path), sha256=workload.trace_sha256)
    if trace.bad_rows:
        log.warning("%s: %s", workload.trace_path, trace.describe())
    return trace
