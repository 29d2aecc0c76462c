"""What is known of a target's traffic: learnt from its own metrics, or recorded in a trace."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from vllm_tuning.api.base import APIModel, DecimalString, ShortText, Timestamp, schema_extra
from vllm_tuning.api.workload import TokenLengths

MAX_BUCKETS = 64
"""vLLM has three for each power of ten."""


class LengthBucket(APIModel):
    """Requests whose length lies above the bucket before and within this one."""

    max_tokens: Annotated[int, Field(ge=1, le=1_000_000_000)]
    """Longest request of the bucket."""
    requests: Annotated[int, Field(ge=0)]
    """How many there were."""


class LearntLengths(APIModel):
    """Lengths by the engine's own histogram: the mean is exact, between two edges nothing is known.

    The benchmark draws evenly from one part of every bucket, the same for all, which is chosen so
    that the mean comes out right.
    """

    mean: DecimalString
    """Tokens of a request in the mean."""
    buckets: Annotated[
        tuple[LengthBucket, ...],
        Field(max_length=MAX_BUCKETS, json_schema_extra=schema_extra(list_type="atomic")),
    ]
    """How many requests had which length."""


class LearntTraffic(APIModel):
    """What the target's pods told of their traffic when the run's question was posed.

    It holds until something else is measured: after an edit of what is measured, by
    retunePolicy, or by annotation vllmtuning.io/rerun.
    """

    occasion: Annotated[str, Field(max_length=64)]
    """Hash of what is measured under it."""
    time: Timestamp
    """When the pods were read."""
    message: ShortText
    """What was learnt and how well it is known, or why nothing was."""
    requests: Annotated[int, Field(ge=0)] = 0
    """Requests that the pods had finished since they started."""
    pods: Annotated[int, Field(ge=0)] = 0
    """Pods that could be read."""
    input_tokens: LearntLengths | None = None
    """Prompt lengths; absent: declared, or not learnt."""
    output_tokens: LearntLengths | None = None
    """Answer lengths; absent: declared, or not learnt."""
    shared_prefix_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    """Share of prompt tokens that came from the prefix cache."""
    requests_per_minute: Annotated[int, Field(ge=1, le=6_000_000)] | None = None
    """Finished requests of all pods, in the mean since they started."""


class TraceFacts(APIModel):
    """The trace in force."""

    sha256: Annotated[str, Field(max_length=64, pattern=r"^[0-9a-f]*$")]
    """Of its content."""
    requests: Annotated[int, Field(ge=0)]
    """Rows that can be replayed."""
    rows_left_out: Annotated[int, Field(ge=0)] = 0
    """Rows that can not."""
    input_tokens: TokenLengths
    """Its prompts' lengths."""
    output_tokens: TokenLengths
    """Its answers' lengths."""
    message: ShortText
    """Its format and span, and the first rows left out with the reason."""
