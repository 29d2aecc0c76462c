"""What the client saw of every request, one numpy column per fact.

Times are seconds on the bench's monotonic clock since the probe began (warm-up included), so that
they compare with ``Window`` and with each other and with nothing else. *Not there* is NaN in a
float column, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


class RequestStatus(IntEnum):
    """How a request ended.

    Everything but ``OK``, ``PENDING`` and ``CANCELLED`` is a failure, and so a miss.
    """

    PENDING = 0
    """Still in flight when the snapshot was taken."""
    OK = 1
    """A whole stream: status 200, the terminal event, the tokens that were asked for."""
    CANCELLED = 2
    """Ended by us because the probe stopped.

    Its latency is known only to be at least what it is so far.
    """
    TIMEOUT = 3
    """Not done at its own deadline; we closed it."""
    REJECTED = 4
    """503 or 429: admission refused (``--max-num-queued-reqs``, a proxy, ...)."""
    CLIENT_ERROR = 5
    """Any other 4xx: the request itself was wrong."""
    SERVER_ERROR = 6
    """5xx but 503, or an ``error`` event inside the stream."""
    CONNECT_FAILED = 7
    """No connection: refused, reset or timed out before the request was written."""
    BROKEN_STREAM = 8
    """Half-closed, reset, truncated, or no longer HTTP before the response was over."""
    INCOMPLETE = 9
    """Ended as HTTP does, but without the terminal event or short of the tokens asked for."""


FAILURES = frozenset(
    status
    for status in RequestStatus
    if status not in {RequestStatus.PENDING, RequestStatus.OK, RequestStatus.CANCELLED}
)


@dataclass(frozen=True, slots=True)
class Window:
    """A measured span of a probe, ``start <= t < end`` in seconds.

    A request belongs to the one it was scheduled in.
    """

    start: float
    end: float
    complete: bool = True
    """False = the probe stopped inside it, or it is still running."""

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start


@dataclass(frozen=True, slots=True, eq=False)
class RequestSamples:
    """Columns of equal length, one row per request, in the order of scheduling.

    The gaps between chunks are ragged, so they lie flat in ``gap_ms`` with the row they belong to
    in ``gap_row``.
    """

    scheduled_at: Floats
    """When the schedule wanted it sent (open), or when its client became free (closed loop)."""
    sent_at: Floats
    """When we began to send it, or to connect for it; minus ``scheduled_at`` = our lateness."""
    first_token_at: Floats
    last_token_at: Floats
    ended_at: Floats
    """When its status was decided: terminal event, failure, deadline. NaN while pending."""
    max_gap_ms: Floats
    """Longest gap between two of its chunks; NaN with fewer than two."""
    input_tokens: Ints
    output_tokens: Ints
    """From the server's ``usage``; the number of content chunks where it gave none."""
    chunks: Ints
    """Content chunks seen so far."""
    cached_tokens: Ints
    """Prompt tokens served from the prefix cache, by ``usage.prompt_tokens_details``; -1 = not
    told.
    """
    status: NDArray[np.int8]
    """``RequestStatus`` values."""
    gap_ms: NDArray[np.float32]
    gap_row: NDArray[np.int32]

    def __post_init__(self) -> None:
        rows = len(self.scheduled_at)
        for field in fields(self):
            if not field.name.startswith("gap_") and len(getattr(self, field.name)) != rows:
                msg = f"column {field.name} has {len(getattr(self, field.name))} rows, not {rows}"
                raise ValueError(msg)
        if len(self.gap_ms) != len(self.gap_row):
            msg = f"{len(self.gap_ms)} gaps belong to {len(self.gap_row)} rows"
            raise ValueError(msg)

    def __len__(self) -> int:
        return len(self.scheduled_at)

    @classmethod
    def empty(cls) -> Self:
        """No rows."""
        return cls.of(scheduled_at=())

    @classmethod
    def of(
        cls,
        *,
        scheduled_at: ArrayLike,
        sent_at: ArrayLike | None = None,
        first_token_at: ArrayLike | None = None,
        last_token_at: ArrayLike | None = None,
        ended_at: ArrayLike | None = None,
        max_gap_ms: ArrayLike | None = None,
        input_tokens: ArrayLike | None = None,
        output_tokens: ArrayLike | None = None,
        chunks: ArrayLike | None = None,
        cached_tokens: ArrayLike | None = None,
        status: ArrayLike | None = None,
        gap_ms: ArrayLike = (),
        gap_row: ArrayLike = (),
    ) -> Self:
        """Build from sequences; what is absent was sent on time, finished well, or is unknown."""
        rows = len(np.asarray(scheduled_at))

        def floats(values: ArrayLike | None) -> Floats:
            if values is None:
                return np.full(rows, np.nan)
            return np.asarray(values, dtype=np.float64)

        def ints(values: ArrayLike | None, default: int) -> Ints:
            if values is None:
                return np.full(rows, default, dtype=np.int64)
            return np.asarray(values, dtype=np.int64)

        return cls(
            scheduled_at=np.asarray(scheduled_at, dtype=np.float64),
            sent_at=floats(scheduled_at if sent_at is None else sent_at),
            first_token_at=floats(first_token_at),
            last_token_at=floats(last_token_at),
            ended_at=floats(last_token_at if ended_at is None else ended_at),
            max_gap_ms=floats(max_gap_ms),
            input_tokens=ints(input_tokens, 0),
            output_tokens=ints(output_tokens, 0),
            chunks=ints(output_tokens if chunks is None else chunks, 0),
            cached_tokens=ints(cached_tokens, -1),
            status=ints(status, RequestStatus.OK).astype(np.int8),
            gap_ms=np.asarray(gap_ms, dtype=np.float32),
            gap_row=np.asarray(gap_row, dtype=np.int32),
        )

    @property
    def ok(self) -> Mask:
        """Rows that finished well."""
        mask: Mask = self.status == RequestStatus.OK
        return mask

    @property
    def failed(self) -> Mask:
        """Rows that failed, whatever the reason."""
        mask: Mask = self.status >= RequestStatus.TIMEOUT
        return mask

    @property
    def ttft_ms(self) -> Floats:
        """Scheduled send to first content chunk; NaN where none came."""
        return (self.first_token_at - self.scheduled_at) * 1e3

    @property
    def tpot_ms(self) -> Floats:
        """(last - first chunk) / (output tokens - 1) of well-finished rows; NaN for one token."""
        steps = np.where(self.ok & (self.output_tokens > 1), self.output_tokens - 1, np.nan)
        return (self.last_token_at - self.first_token_at) * 1e3 / steps

    @property
    def e2e_ms(self) -> Floats:
        """Scheduled send to last content chunk of rows that finished well."""
        return np.where(self.ok, self.last_token_at - self.scheduled_at, np.nan) * 1e3

    @property
    def lateness_ms(self) -> Floats:
        """How long after its scheduled time each request left us."""
        return (self.sent_at - self.scheduled_at) * 1e3

    def window_mask(self, window: Window) -> Mask:
        """Rows scheduled inside ``window``."""
        return (self.scheduled_at >= window.start) & (self.scheduled_at < window.end)

    def select(self, mask: Mask) -> RequestSamples:
        """Take the rows under ``mask``, with their gaps."""
        rows = np.flatnonzero(mask)
        new_row = np.full(len(self), -1, dtype=np.int32)
        new_row[rows] = np.arange(len(rows), dtype=np.int32)
        gaps = new_row[self.gap_row] >= 0 if len(self.gap_row) else np.zeros(0, dtype=np.bool_)
        columns = {
            field.name: getattr(self, field.name)[rows]
            for field in fields(self)
            if not field.name.startswith("gap_")
        }
        return RequestSamples(
            **columns, gap_ms=self.gap_ms[gaps], gap_row=new_row[self.gap_row[gaps]]
        )
