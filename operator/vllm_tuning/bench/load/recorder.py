"""Collects what happens to requests and gives it out as ``RequestSamples`` at any moment."""

from __future__ import annotations

from array import array
from collections import Counter

import numpy as np

from vllm_tuning.tuning.samples import RequestSamples, RequestStatus

NAN = float("nan")


class Recorder:
    """Append-only columns; a row is opened when its request is due and closed when it ended.

    All times are seconds on the probe's clock. The token path (``token``) is the hot one: it is
    called for every chunk of every stream.
    """

    def __init__(self) -> None:
        self._scheduled_at = array("d")
        self._sent_at = array("d")
        self._first_at = array("d")
        self._last_at = array("d")
        self._ended_at = array("d")
        self._max_gap_ms = array("d")
        self._input_tokens = array("q")
        self._output_tokens = array("q")
        self._chunks = array("q")
        self._cached_tokens = array("q")
        self._status = array("b")
        self._gap_ms = array("f")
        self._gap_row = array("i")
        self.shared_tokens = array("q")
        """Leading prompt tokens of each row that all requests of the probe have in common."""
        self._firsts = 0
        self.longest_seconds = 0.0
        """The longest request that finished well, from its scheduled time."""
        self.counts: Counter[RequestStatus] = Counter()
        """How many requests ended in each status."""
        self.details: Counter[str] = Counter()
        """What failures said, the first words of each: for the message of a probe."""

    def __len__(self) -> int:
        return len(self._scheduled_at)

    @property
    def in_flight(self) -> int:
        """Requests that were opened and have not ended."""
        return len(self) - self.counts.total()

    @property
    def completed(self) -> int:
        """Requests that finished well."""
        return self.counts[RequestStatus.OK]

    @property
    def answered(self) -> int:
        """Requests whose response came to its own end, well or not."""
        ended = (RequestStatus.OK, RequestStatus.INCOMPLETE, RequestStatus.SERVER_ERROR)
        return sum(self.counts[status] for status in ended)

    @property
    def chunks_seen(self) -> int:
        """Content chunks of all requests."""
        return self._firsts + len(self._gap_ms)

    def open(self, scheduled_at: float, *, input_tokens: int, shared_tokens: int = 0) -> int:
        """Begin a row for a request that is due; return its number."""
        for column in (
            self._sent_at,
            self._first_at,
            self._last_at,
            self._ended_at,
            self._max_gap_ms,
        ):
            column.append(NAN)
        for counts in (self._output_tokens, self._chunks, self._status):
            counts.append(0)
        self._cached_tokens.append(-1)
        self._input_tokens.append(input_tokens)
        self.shared_tokens.append(shared_tokens)
        self._scheduled_at.append(scheduled_at)
        return len(self._scheduled_at) - 1

    def sent(self, row: int, at: float) -> None:
        """Note when we began to send."""
        self._sent_at[row] = at

    def token(self, row: int, at: float) -> None:
        """Note a content chunk."""
        if self._chunks[row]:
            gap = (at - self._last_at[row]) * 1e3
            self._gap_ms.append(gap)
            self._gap_row.append(row)
            if not gap <= self._max_gap_ms[row]:  # also where it is still NaN
                self._max_gap_ms[row] = gap
        else:
            self._first_at[row] = at
            self._firsts += 1
        self._chunks[row] += 1
        self._last_at[row] = at

    def close(
        self,
        row: int,
        at: float,
        status: RequestStatus,
        *,
        output_tokens: int | None = None,
        cached_tokens: int | None = None,
        detail: str = "",
    ) -> None:
        """End a row. ``output_tokens`` is what the server says; its chunks count without it."""
        self._ended_at[row] = at
        self._status[row] = status
        self._output_tokens[row] = self._chunks[row] if output_tokens is None else output_tokens
        if cached_tokens is not None:
            self._cached_tokens[row] = cached_tokens
        self.counts[status] += 1
        if status is RequestStatus.OK:
            self.longest_seconds = max(self.longest_seconds, at - self._scheduled_at[row])
        if detail:
            self.details[f"{status.name}: {detail[:120]}"] += 1

    def chunks(self, row: int) -> int:
        """Return how many content chunks the row has seen."""
        return self._chunks[row]

    def snapshot(self) -> RequestSamples:
        """Copy everything known so far."""
        output_tokens = np.array(self._output_tokens, dtype=np.int64)
        chunks = np.array(self._chunks, dtype=np.int64)
        status = np.array(self._status, dtype=np.int8)
        pending = status == RequestStatus.PENDING
        output_tokens[pending] = chunks[pending]
        return RequestSamples(
            scheduled_at=np.array(self._scheduled_at),
            sent_at=np.array(self._sent_at),
            first_token_at=np.array(self._first_at),
            last_token_at=np.array(self._last_at),
            ended_at=np.array(self._ended_at),
            max_gap_ms=np.array(self._max_gap_ms),
            input_tokens=np.array(self._input_tokens, dtype=np.int64),
            output_tokens=output_tokens,
            chunks=chunks,
            cached_tokens=np.array(self._cached_tokens, dtype=np.int64),
            status=status,
            gap_ms=np.array(self._gap_ms, dtype=np.float32),
            gap_row=np.array(self._gap_row, dtype=np.int32),
        )
