"""From the twin's requests to the columns that the verdict reads."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from vllm_tuning.bench.sim.scheduler import Request
from vllm_tuning.tuning.samples import Floats, Ints, Mask, RequestSamples, RequestStatus


def columns(
    requests: Sequence[Request],
    *,
    scheduled: Sequence[float],
    finished: Sequence[float],
    seen: Sequence[float],
    first_step: int,
    now: float,
    cancelled_at: float | None,
) -> RequestSamples:
    """Build the columns of ``requests`` as their clients know them at ``now``.

    ``seen`` holds the time at which the tokens of each step reached the clients, from step number
    ``first_step`` on; ``finished`` the time of each request's last token, NaN before it.
    """
    rows = len(requests)
    seen_at = np.asarray(seen, dtype=np.float64)
    last = np.asarray(finished, dtype=np.float64)
    ok = last <= now if cancelled_at is None else last <= cancelled_at
    rest = RequestStatus.PENDING if cancelled_at is None else RequestStatus.CANCELLED
    first = np.full(rows, np.nan)
    known = first_step + len(seen_at)
    began = [
        (row, request.spans[0][0] - first_step)
        for row, request in enumerate(requests)
        if request.spans and request.spans[0][0] < known
    ]
    if began:
        index = np.array(began, dtype=np.int64)
        first[index[:, 0]] = seen_at[index[:, 1]]
    until = now if cancelled_at is None else cancelled_at
    first[first > until] = np.nan
    gap_ms, gap_row = _gaps(seen_at, _spans(requests, ok, first_step))
    sent = np.array(scheduled, dtype=np.float64)
    outputs = np.where(ok, _column(requests, "output_tokens"), 0)
    return RequestSamples(
        scheduled_at=sent,
        sent_at=sent,
        first_token_at=first,
        last_token_at=np.where(ok, last, np.nan),
        ended_at=np.where(ok, last, np.nan if cancelled_at is None else cancelled_at),
        max_gap_ms=_longest(gap_ms, gap_row, rows),
        input_tokens=_column(requests, "prompt_tokens"),
        output_tokens=outputs,
        chunks=outputs,
        cached_tokens=_column(requests, "cached_tokens"),
        status=np.where(ok, RequestStatus.OK, rest).astype(np.int8),
        gap_ms=gap_ms.astype(np.float32),
        gap_row=gap_row.astype(np.int32),
    )


def _column(requests: Sequence[Request], name: str) -> Ints:
    return np.fromiter(map(attrgetter(name), requests), np.int64, count=len(requests))


def _spans(requests: Sequence[Request], ok: Mask, first_step: int) -> Ints:
    """Runs of steps of the finished requests: row, first step, last step, step before the run.

    The last is -1 for a request's first run; it differs from ``first - 1`` after a preemption.
    """
    table: list[tuple[int, int, int, int]] = []
    for row in np.flatnonzero(ok).tolist():
        previous = -1
        for begin, end in requests[row].spans:
            table.append((row, begin - first_step, end - first_step, previous))
            previous = end - first_step
    return np.array(table, dtype=np.int64).reshape(-1, 4)


def _gaps(ends: Floats, spans: Ints) -> tuple[Floats, Ints]:
    """Times between the tokens of each request, milliseconds, flat and in the order of rows."""
    row, begin, end, before = spans.T
    resumed = before >= 0
    # A run's gaps are those between its steps, and after a preemption the one that leads to it.
    counts = end - begin + resumed
    total = int(counts.sum())
    starts = np.cumsum(counts) - counts
    index = np.repeat(begin + 1 - resumed, counts) + np.arange(total) - np.repeat(starts, counts)
    gaps = (ends[index] - ends[index - 1]) * 1e3
    gaps[starts[resumed]] = (ends[begin[resumed]] - ends[before[resumed]]) * 1e3
    return gaps, np.repeat(row, counts)


def _longest(gap_ms: Floats, gap_row: Ints, rows: int) -> Floats:
    longest = np.full(rows, np.nan)
    if len(gap_row):
        edges = np.flatnonzero(np.diff(gap_row, prepend=-1))
        longest[gap_row[edges]] = np.maximum.reduceat(gap_ms, edges)
    return longest
