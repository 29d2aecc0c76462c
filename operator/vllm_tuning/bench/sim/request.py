"""The words of the scheduler twin: limits, requests, and what one step holds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from vllm_tuning.bench.sim.kv import Lease


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """The limits in force: those of the start, or lower ones set live."""

    seqs: int
    """``max_num_seqs``"""
    tokens: int
    """``max_num_batched_tokens``"""
    long_prefill_token_threshold: int = 0
    """Most prompt tokens of one request in a step while others are there; 0 = off."""
    chunked: bool = True


class Request:
    """One request inside the engine. Times are engine seconds, ``None`` until they happen."""

    __slots__ = (
        "arrived_at",
        "cached_tokens",
        "cancelled",
        "computed",
        "finish_tick",
        "generated",
        "id",
        "join_tick",
        "lease",
        "output_tokens",
        "payload",
        "preemptions",
        "prompt_tokens",
        "scheduled_at",
        "spans",
    )

    def __init__(
        self,
        id_: Hashable,
        prompt_tokens: int,
        output_tokens: int,
        *,
        arrived_at: float = 0.0,
        hashes: Sequence[Hashable] = (),
        payload: object = None,
    ) -> None:
        if prompt_tokens < 1 or output_tokens < 1:
            msg = "a request needs at least one prompt token and one output token"
            raise ValueError(msg)
        self.id = id_
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.arrived_at = arrived_at
        self.payload = payload
        self.scheduled_at: float | None = None
        """First time it was put into a step."""
        self.computed = 0
        """Tokens whose KV is there or being computed, while it prefills; stale while it decodes."""
        self.generated = 0
        """Output tokens scheduled so far, as of ``join_tick``."""
        self.join_tick = -1
        """Tick of its first decode step; -1 while it prefills or waits."""
        self.finish_tick = -1
        """Tick whose step yields its last token."""
        self.preemptions = 0
        self.cached_tokens = 0
        """Prompt tokens found in the prefix cache at its first admission."""
        self.cancelled = False
        self.lease = Lease(key=id_, hashes=hashes)
        self.spans: list[tuple[int, int]] = []
        """Runs of consecutive steps (first, last) that each gave one token."""


@dataclass(slots=True)
class Batch:
    """One scheduled step."""

    index: int
    tokens: int = 0
    """All tokens scheduled."""
    prefill_tokens: int = 0
    prefill_requests: int = 0
    prefill_attention: float = 0.0
    """Sum over prefill chunks of n * (context before + n / 2): pairs of tokens that attend."""
    decode_requests: int = 0
    decode_context: int = 0
    """Tokens in the KV cache of all decoding requests, the new ones included."""
    running: int = 0
    waiting: int = 0
    kv_blocks: int = 0
    first_tokens: Sequence[Request] = ()
    """Requests whose prefill ends here: they get a token."""
    last_tokens: Sequence[Request] = ()
    """Requests that get their last token here."""
    preempted: Sequence[Request] = ()
    decoding: Sequence[Request] = ()
    """Requests that get a token by decoding; filled only if the scheduler tracks them."""
