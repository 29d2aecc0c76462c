"""The traffic under which the limits are measured, as a user says it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from vllm_tuning.api.base import APIModel, Rule, schema_extra
from vllm_tuning.api.values import LoadKind

MAX_TOKENS = 10_000_000
"""Longest request that a workload may have."""


class TokenLengths(APIModel):
    """A distribution of token counts."""

    model_config = ConfigDict(
        json_schema_extra=schema_extra(
            Rule(
                "!has(self.max) || self.max >= self.mean",
                "max is below mean: raise max or lower mean",
                field_path=".max",
            )
        )
    )

    mean: Annotated[int, Field(ge=1, le=MAX_TOKENS)]
    """Mean number of tokens."""
    cv_percent: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Coefficient of variation (standard deviation / mean). 0: every request has the mean;
    above: lognormal."""
    max: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    """Longer draws are cut to this."""


class WorkloadSource(StrEnum):
    """Where the traffic comes from, as far as nobody declares it."""

    AUTO = "Auto"
    DECLARED = "Declared"


class TraceRef(APIModel):
    """A file of recorded requests in a ConfigMap of the VLLMTuning's own namespace."""

    name: Annotated[
        str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
    ]
    """Name of the ConfigMap."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key of the file in it."""


class Workload(APIModel):
    """The traffic under which the limits are measured."""

    model_config = ConfigDict(
        json_schema_extra=schema_extra(
            Rule(
                "!has(self.arrival) || self.arrival != 'Open' || !has(self.concurrency)",
                "open arrivals are never slowed by answers: write arrival: Closed, or remove "
                "concurrency",
                field_path=".concurrency",
            ),
            Rule(
                "!has(self.arrival) || self.arrival != 'Closed' || !has(self.requestsPerMinute)",
                "closed arrivals have clients, not a rate: write arrival: Open, or concurrency "
                "instead of requestsPerMinute",
                field_path=".requestsPerMinute",
            ),
            Rule(
                "!has(self.concurrency) || !has(self.requestsPerMinute)",
                "the demand is either requestsPerMinute (open arrivals) or concurrency (closed): "
                "remove one",
            ),
            Rule(
                "!has(self.traceRef) || !(has(self.inputTokens) || has(self.outputTokens))",
                "a trace brings its own lengths: remove inputTokens and outputTokens, or traceRef",
                field_path=".traceRef",
            ),
            Rule(
                "!has(self.traceRef) || !has(self.source)",
                "with a trace nothing is learnt: remove source, or traceRef",
                field_path=".source",
            ),
        )
    )

    source: WorkloadSource | None = None
    """Where lengths, shared prefix and rate come from that nobody declares. Auto (the default):
    learnt from the target's own metrics as a run begins, if it has served at least 300 requests
    since its pods started, else from the profile. Declared: from the profile only."""
    trace_ref: TraceRef | None = None
    """Recorded requests instead of drawn ones, in one of the formats in which traces are
    published: Azure LLM inference (CSV), BurstGPT (CSV), Mooncake (JSON lines). With open arrivals
    the shape of its arrivals is kept, at the rates that are measured."""
    input_tokens: TokenLengths | None = None
    """Prompt lengths."""
    output_tokens: TokenLengths | None = None
    """Answer lengths."""
    arrival: LoadKind | None = None
    """Open: requests come at their own times, as from many independent users. Closed: a fixed
    number of clients, each waiting for its answer."""
    concurrency: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Number of clients with closed arrivals; the demand of objective
    MaxThroughputAtConcurrency."""
    requests_per_minute: Annotated[int, Field(ge=1, le=6_000_000)] | None = None
    """The demand of objective MinLatencyAtRate; of all replicas together with MaxRateUnderSLO,
    which then tells how many replicas it needs."""
    shared_prefix_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    """Share of every prompt that all requests have in common, such as a system prompt."""
