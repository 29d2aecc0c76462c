"""The Prometheus text format, read line by line and only as far as asked.

A page of vLLM has a thousand lines of histogram buckets of which some thirty are wanted, several
times a second beside a running load; so names are compared before anything is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
_ESCAPE = re.compile(r"\\[\\\"n]")


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a page."""

    name: str
    labels: Mapping[str, str]
    value: float
    timestamp_ms: int | None = None
    """When the exporter measured it, where it says so."""


def parse_samples(text: str, names: Collection[str] | None = None) -> Iterator[Sample]:
    """Yield the samples of a page, of ``names`` only if given; lines that are none are skipped."""
    wanted = None if names is None else frozenset(names)
    for line in text.splitlines():
        if not line or line[0] in "# {" or line.isspace():
            continue
        brace = line.find("{")
        name = line[:brace] if brace >= 0 else line.split(None, 1)[0]
        if wanted is not None and name not in wanted:
            continue
        if (sample := _parse_line(line, name, brace)) is not None:
            yield sample


def _parse_line(line: str, name: str, brace: int) -> Sample | None:
    labels: dict[str, str] = {}
    rest = line[len(name) :]
    if brace >= 0:
        # Label values may hold braces and spaces, so the end is where the labels stop matching.
        at = brace + 1
        while match := _LABEL.match(line, at):
            labels[match[1]] = _ESCAPE.sub(lambda found: _ESCAPES[found[0]], match[2])
            at = match.end()
            while at < len(line) and line[at] in ", ":
                at += 1
        if line[at : at + 1] != "}":
            return None
        rest = line[at + 1 :]
    fields = rest.split()
    try:
        value = float(fields[0])
        timestamp = int(fields[1]) if len(fields) > 1 else None
    except (IndexError, ValueError):
        return None
    return Sample(name, labels, value, timestamp)
