"""Published request traces, read as they are published: arrivals, lengths, shared blocks.

- Azure LLM inference (2023, 2024), CSV: ``TIMESTAMP,ContextTokens,GeneratedTokens``; time of day
  with seven decimals, in 2024 with a zone.
- BurstGPT, CSV: ``Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type``; seconds.
- Mooncake, JSONL: ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids`` (one per
  block of 512 prompt tokens; equal ids mean equal prefixes).

Rows that cannot be used are left out, counted and named; a trace is never silently shorter. (Not to
be confused with ``tuning.trace``, which writes down a search.)
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean, pstdev

from vllm_tuning.tuning.model import Lengths

MOONCAKE_BLOCK_TOKENS = 512
MAX_TOKENS = 10_000_000
"""Of a request; more is a mistake in the file."""
NAMED_BAD_ROWS = 5
"""So many bad rows are quoted; all are counted."""


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One recorded request."""

    at_seconds: float
    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    """Ids of the prompt's blocks; equal ids at equal places mean equal text."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded stream of requests in the order of arrival."""

    kind: str
    rows: tuple[TraceRow, ...]
    bad_rows: int = 0
    bad_examples: tuple[str, ...] = ()
    """``line N: why``, the first few."""

    @property
    def span_seconds(self) -> float:
        """From the first arrival to the last."""
        return self.rows[-1].at_seconds - self.rows[0].at_seconds

    @property
    def has_blocks(self) -> bool:
        """Whether it says which prompts begin alike."""
        return any(row.blocks for row in self.rows)

    @property
    def input_tokens(self) -> Lengths:
        """How long its prompts are."""
        return _lengths([row.input_tokens for row in self.rows])

    @property
    def output_tokens(self) -> Lengths:
        """How long its answers are."""
        return _lengths([row.output_tokens for row in self.rows])

    def describe(self) -> str:
        """Say what it is and what was left out, in one sentence for people."""
        told = (
            f"{len(self.rows):,} requests over {self.span_seconds:,.0f} s in {self.kind}'s format"
        )
        if not self.bad_rows:
            return told
        rows = "row" if self.bad_rows == 1 else "rows"
        return f"{told}; {self.bad_rows:,} {rows} left out ({'; '.join(self.bad_examples)})"


class TraceError(Exception):
    """The file is not a trace of a known kind, or holds no usable row."""


def parse_trace(text: str, *, name: str = "trace") -> Trace:
    """Parse a trace's text; its kind is told by its content, not its name.

    Raises ``TraceError``.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    first = next((line for line in lines if line.strip()), "")
    if first.lstrip().startswith("{"):
        return _collect("Mooncake", _json_rows(lines), _mooncake, name)
    header = {column.strip().lower() for column in first.split(",")}
    for kind, wanted, convert in (
        ("Azure", {"timestamp", "contexttokens", "generatedtokens"}, _azure),
        ("BurstGPT", {"timestamp", "request tokens", "response tokens"}, _burstgpt),
    ):
        if wanted <= header:
            return _collect(kind, _csv_rows(lines), convert, name)
    raise TraceError(
        f"{name}: neither Azure's nor BurstGPT's CSV header, nor Mooncake's JSON lines, but "
        f"{first[:80]!r}"
    )


Fields = Mapping[str, object]


def _collect(
    kind: str,
    found: Iterable[tuple[int, Fields | str]],
    convert: Callable[[Fields], TraceRow],
    name: str,
) -> Trace:
    rows: list[TraceRow] = []
    bad: list[str] = []
    for line, fields in found:
        if isinstance(fields, str):
            bad.append(f"line {line}: {fields}")
            continue
        try:
            rows.append(_checked(convert(fields)))
        except (ValueError, KeyError, TypeError) as error:
            why = f"no column {error}" if isinstance(error, KeyError) else str(error)
            bad.append(f"line {line}: {why}")
    if not rows:
        raise TraceError(
            f"{name}: no usable row: {'; '.join(bad[:NAMED_BAD_ROWS]) or 'it is empty'}"
        )
    rows.sort(key=lambda row: row.at_seconds)
    return Trace(kind, tuple(rows), len(bad), tuple(bad[:NAMED_BAD_ROWS]))


def _lengths(tokens: list[int]) -> Lengths:
    mean = fmean(tokens)
    return Lengths(
        mean=max(1, round(mean)), cv_percent=round(100 * pstdev(tokens) / mean), maximum=max(tokens)
    )


def _checked(row: TraceRow) -> TraceRow:
    if not math.isfinite(row.at_seconds):
        raise ValueError(f"timestamp {row.at_seconds}")
    if row.input_tokens < 1 or row.output_tokens < 1:
        # BurstGPT's failed requests have no response tokens; an engine cannot replay them.
        raise ValueError(f"{row.input_tokens} input and {row.output_tokens} output tokens")
    if max(row.input_tokens, row.output_tokens) > MAX_TOKENS:
        raise ValueError(f"more than {MAX_TOKENS} tokens")
    return row


def _csv_rows(lines: list[str]) -> Iterator[tuple[int, Fields | str]]:
    reader = csv.reader(lines)
    header: list[str] | None = None
    for cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        if header is None:
            header = [cell.strip().lower() for cell in cells]
        elif len(cells) < len(header):
            yield reader.line_num, f"{len(cells)} of {len(header)} columns"
        else:
            yield reader.line_num, dict(zip(header, cells, strict=False))


def _json_rows(lines: list[str]) -> Iterator[tuple[int, Fields | str]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            document = json.loads(line)
        except ValueError as error:
            yield number, str(error)
            continue
        yield number, document if isinstance(document, dict) else "not an object"


def _azure(fields: Fields) -> TraceRow:
    return TraceRow(
        _azure_seconds(str(fields["timestamp"])),
        int(str(fields["contexttokens"])),
        int(str(fields["generatedtokens"])),
    )


def _azure_seconds(text: str) -> float:
    # Seven decimals are more than ``fromisoformat`` takes; the last one is 100 ns.
    short = re.sub(r"(\.\d{6})\d+", r"\1", text.strip())
    moment = datetime.fromisoformat(short)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _burstgpt(fields: Fields) -> TraceRow:
    return TraceRow(
        float(str(fields["timestamp"])),
        int(str(fields["request tokens"])),
        int(str(fields["response tokens"])),
    )


def _mooncake(fields: Fields) -> TraceRow:
    blocks = fields.get("hash_ids", [])
    if not isinstance(blocks, list):
        raise ValueError("hash_ids is not a list")  # noqa: TRY004 - a row's fault
    return TraceRow(
        float(str(fields["timestamp"])) / 1e3,
        int(str(fields["input_length"])),
        int(str(fields["output_length"])),
        tuple(int(block) for block in blocks),
    )
