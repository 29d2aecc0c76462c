"""Values that more than one kind carries: SLOs, limits, load points and measured figures.

The enumerations repeat the words of ``vllm_tuning.tuning.model``: the API is versioned on its own
and imports nothing; a test holds both sides together.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from vllm_tuning.api.base import APIModel, DecimalString, Message, Rule, ShortText, schema_extra


class SLOMetric(StrEnum):
    """What an SLO may bound."""

    TTFT = "TTFT"
    TPOT = "TPOT"
    ITL = "ITL"
    MAX_GAP = "MaxGap"
    E2E_LATENCY = "E2ELatency"
    ERROR_RATE = "ErrorRate"
    PREEMPTION_RATE = "PreemptionRate"


_IS_RATE = "self.metric in ['ErrorRate', 'PreemptionRate']"


class SLO(APIModel):
    """One service level objective: so many percent of requests stay within a bound."""

    model_config = ConfigDict(
        json_schema_extra=schema_extra(
            Rule(
                "has(self.maxMilliseconds) || has(self.maxPercent)",
                "an SLO needs a bound: add maxMilliseconds (latency) or maxPercent (ErrorRate, "
                "PreemptionRate)",
            ),
            Rule(
                "!(has(self.maxMilliseconds) && has(self.maxPercent))",
                "an SLO has one bound: keep maxMilliseconds for a latency, maxPercent for a "
                "rate, and remove the other",
            ),
            Rule(
                f"!({_IS_RATE}) || !has(self.maxMilliseconds)",
                "a rate is bounded in percent: write maxPercent instead of maxMilliseconds",
                field_path=".maxMilliseconds",
            ),
            Rule(
                f"!({_IS_RATE}) || !has(self.percentile)",
                "a rate has no percentile: remove percentile, keep maxPercent",
                field_path=".percentile",
            ),
            Rule(
                f"{_IS_RATE} || !has(self.maxPercent)",
                "a latency is bounded in milliseconds: write maxMilliseconds instead of maxPercent",
                field_path=".maxPercent",
            ),
            Rule(
                f"{_IS_RATE} || has(self.percentile)",
                "say for how many percent of requests the bound holds, e.g. percentile: 95",
            ),
        )
    )

    metric: SLOMetric
    """What is bounded. TTFT: time to first token. TPOT: time per output token after the first,
    averaged over a request. ITL: each gap between tokens. MaxGap: the longest such gap of a
    request (shows stalls that TPOT hides). E2ELatency: whole request. ErrorRate: failed or
    cut-off requests. PreemptionRate: preemptions per 100 requests."""
    percentile: Annotated[int, Field(ge=1, le=99)] | None = None
    """Share of requests that must stay within maxMilliseconds: 95 means at least 95 percent of
    them."""
    max_milliseconds: Annotated[int, Field(ge=1, le=86_400_000)] | None = None
    """Bound of a latency metric."""
    max_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    """Bound of ErrorRate or PreemptionRate."""


class BatchLimits(APIModel):
    """The batch limits of one vLLM server."""

    max_num_seqs: Annotated[int, Field(ge=1)]
    """Most sequences in one step."""
    max_num_batched_tokens: Annotated[int, Field(ge=1)]
    """Most tokens in one step."""
    gpu_memory_utilization_percent: Annotated[int, Field(ge=1, le=100)] | None = None
    """Share of the GPU's memory that vLLM may use. Absent: as the target has it."""
    enable_chunked_prefill: bool | None = None
    """Absent: as the target has it."""
    long_prefill_token_threshold: Annotated[int, Field(ge=0)] | None = None
    """Absent: as the target has it."""


class LoadKind(StrEnum):
    """How requests arrive: at their own times, or from clients that wait for answers."""

    OPEN = "Open"
    CLOSED = "Closed"


class LoadPoint(APIModel):
    """An offered load."""

    arrival: LoadKind
    """Open: a fixed rate. Closed: a fixed number of clients."""
    requests_per_second: DecimalString | None = None
    """Offered rate of open arrivals."""
    concurrency: Annotated[int, Field(ge=1)] | None = None
    """Clients of closed arrivals."""


class Latency(APIModel):
    """One latency metric of a load point, in milliseconds."""

    count: Annotated[int, Field(ge=0)]
    """Samples behind the figures."""
    mean: DecimalString | None = None
    """Mean."""
    p50: DecimalString | None = None
    """Median."""
    p90: DecimalString | None = None
    """90th percentile."""
    p95: DecimalString | None = None
    """95th percentile."""
    p99: DecimalString | None = None
    """99th percentile; absent when there are too few samples for one."""
    maximum: DecimalString | None = None
    """Largest value."""


class MeasuredVerdict(StrEnum):
    """The answer of a measurement."""

    PASS = "PASS"  # noqa: S105 - a verdict
    FAIL = "FAIL"
    UNDECIDED = "UNDECIDED"
    INVALID = "INVALID"


class Metrics(APIModel):
    """What a load point showed. A figure that was not measured is absent, never zero."""

    ttft_milliseconds: Latency | None = None
    """Time to first token."""
    tpot_milliseconds: Latency | None = None
    """Time per output token after the first, per request."""
    itl_milliseconds: Latency | None = None
    """Gap between tokens."""
    max_gap_milliseconds: Latency | None = None
    """Longest gap of a request."""
    e2e_milliseconds: Latency | None = None
    """Whole request."""
    requests_per_second: DecimalString | None = None
    """Completed requests."""
    output_tokens_per_second: DecimalString | None = None
    """Generated tokens."""
    input_tokens_per_second: DecimalString | None = None
    """Prompt tokens."""
    goodput_percent: DecimalString | None = None
    """Share of requests that meet every latency SLO at once."""
    preemptions: Annotated[int, Field(ge=0)] | None = None
    """Sequences that the engine had to push out of its KV cache."""
    running_max: Annotated[int, Field(ge=0)] | None = None
    """Largest number of sequences in one step."""
    waiting_max: Annotated[int, Field(ge=0)] | None = None
    """Longest queue seen."""
    kv_cache_peak_percent: DecimalString | None = None
    """Highest use of the KV cache."""


class SLOOutcome(APIModel):
    """How one SLO fared at a load point."""

    slo: SLO
    """The objective."""
    observed_milliseconds: DecimalString | None = None
    """The SLO's percentile as measured."""
    attainment_percent: DecimalString | None = None
    """Share of requests within the bound; for a rate, the rate itself."""
    margin_percent: DecimalString | None = None
    """Room left below the bound; negative when it is exceeded."""
    verdict: MeasuredVerdict | None = None
    """Whether the evidence shows it met or missed."""


class Measurement(APIModel):
    """One load point under one set of limits: offered load and verdict."""

    probe_id: Annotated[str, Field(max_length=64)] | None = None
    """The point of the run's VLLMTrials that has all figures."""
    limits: BatchLimits
    """The limits in force."""
    load: LoadPoint
    """What was offered."""
    verdict: MeasuredVerdict
    """PASS only where a confirmation showed it."""
    reason: Annotated[str, Field(max_length=64)] = ""
    """Stable word behind the verdict."""
    message: ShortText = ""
    """The verdict with its numbers."""
    slos: Annotated[tuple[SLOOutcome, ...], Field(max_length=16)] = ()
    """Each SLO's part in the verdict."""
    bottleneck: Annotated[str, Field(max_length=64)] | None = None
    """What bound this point, e.g. KVCapacityBound."""
    bottleneck_evidence: ShortText | None = None
    """The numbers behind that."""


__all__ = [
    "SLO",
    "BatchLimits",
    "Latency",
    "LoadKind",
    "LoadPoint",
    "MeasuredVerdict",
    "Measurement",
    "Message",
    "Metrics",
    "SLOMetric",
    "SLOOutcome",
]
