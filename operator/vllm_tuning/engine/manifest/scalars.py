"""YAML scalars, character by character: which bytes stand for which character of the value.

The mapping follows YAML 1.2 chapters 7.3 and 8.1 and is checked against the value that the YAML
library read; where they differ, there is no mapping and the caller refuses the edit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

Piece: TypeAlias = tuple[str, int, int]
"""A character of the value (or none) and the range of the file that stands for it."""

_ODD: Final = re.compile(
    r"[^\w./=@+-]|^[-.+\d]|^(?:true|false|null|yes|no|on|off|y|n)$", re.IGNORECASE
)
"""What makes a plain scalar's reading less than obvious."""
_NUMBER: Final = re.compile(r"[-+.\d][-+.\d_:a-fA-FxX]*")
_WRITTEN: Final = {
    "\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r",
    "\x85": "\\N", "\u2028": "\\L", "\u2029": "\\P",
}  # fmt: skip
"""Characters that double quotes can't hold as they are."""
_BREAKS: Final = "\n\r\t\x85\u2028\u2029"
_PROPERTIES: Final = re.compile(r"(?:[&!]\S*\s+)*")
_FOLD: Final = re.compile(r"[ \t]*\r?\n(?:[ \t]*\r?\n)*[ \t]*")
_ESCAPED_BREAK: Final = re.compile(r"\\\r?\n[ \t]*")
_HEX: Final = {"x": 2, "u": 4, "U": 8}
_ESCAPES: Final = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v",
    "f": "\f", "r": "\r", "e": "\x1b",
    " ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0", "L": "\u2028",
    "P": "\u2029",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar in a file, with the range of the file behind each character of its value."""

    style: str
    """Nothing (plain), ``'``, ``"``, ``|`` or ``>``."""
    start: int
    """Where the scalar begins, behind its anchor and tag."""
    end: int
    spans: tuple[tuple[int, int], ...]
    indent: int
    """Indentation of a block scalar's lines."""
    in_flow: bool = False
    """Whether it stands in ``[...]`` or ``{...}``."""

    def range(self, start: int, end: int) -> tuple[int, int]:
        """The file's range for the value's characters ``[start, end)``."""
        if start < end:
            # From the end of the character before: an escaped line break between them goes too,
            # or it would swallow a blank that comes to stand behind it.
            begin = (
                self.spans[start - 1][1] if start and self.style == '"' else self.spans[start][0]
            )
            return begin, self.spans[end - 1][1]
        if start > 0:
            at = self.spans[start - 1][1]
        elif self.spans:
            at = self.spans[0][0]
        else:
            at = self.start + (1 if self.style in ("'", '"') else 0)
        return at, at


def map_scalar(text: str, start: int, end: int, style: str | None, value: str) -> Scalar | None:
    """Map a scalar token ``text[start:end]``; ``None`` = it can't be traced with certainty."""
    match = _PROPERTIES.match(text, start, end)
    begin = match.end() if match else start
    style = style or ""
    if style in ("|", ">"):
        return _block(text, begin, end, style, value)
    inner = (begin + 1, end - 1) if style else (begin, end)
    pieces = list(_flow(text, *inner, style))
    if "".join(char for char, _, _ in pieces) != value:
        return None
    return Scalar(style, begin, end, tuple((s, e) for char, s, e in pieces if char), 0)


def _flow(text: str, start: int, end: int, style: str) -> Iterator[Piece]:
    """Plain and quoted scalars: line breaks fold, quotes escape."""
    at = start
    while at < end:
        if (fold := _FOLD.match(text, at, end)) is not None:
            breaks = fold[0].count("\n")
            yield from ((c, at, fold.end()) for c in (" " if breaks == 1 else "\n" * (breaks - 1)))
            at = fold.end()
        elif style == "'" and text.startswith("''", at):
            yield "'", at, at + 2
            at += 2
        elif style == '"' and text[at] == "\\":
            char, width = _escape(text, at, end)
            yield char, at, at + width
            at += width
        else:
            yield text[at], at, at + 1
            at += 1


def _escape(text: str, at: int, end: int) -> tuple[str, int]:
    if (joined := _ESCAPED_BREAK.match(text, at, end)) is not None:
        return "", joined.end() - at
    code = text[at + 1]
    if (digits := _HEX.get(code)) is not None:
        return chr(int(text[at + 2 : at + 2 + digits], 16)), 2 + digits
    return _ESCAPES.get(code, code), 2


def _block(text: str, start: int, end: int, style: str, value: str) -> Scalar | None:
    header_end = text.find("\n", start, end)
    if header_end == -1:
        return None
    lines = list(_lines(text, header_end + 1, end))
    first = next((text[s:e] for s, e in lines if text[s:e].strip(" ")), "")
    detected = len(first) - len(first.lstrip(" "))
    read = _literal if style == "|" else _folded
    # An indentation indicator makes the first line no guide: then the value itself is.
    for indent in (detected, *range(1, detected)):
        pieces = list(read(text, lines, indent))[: len(value)]
        if "".join(char for char, _, _ in pieces) == value:
            return Scalar(style, start, end, tuple((s, e) for _, s, e in pieces), indent)
    return None


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Ranges of the lines, without their line breaks."""
    while start < end:
        stop = text.find("\n", start, end)
        stop = end if stop == -1 else stop
        yield start, stop - 1 if text[stop - 1 : stop] == "\r" else stop
        start = stop + 1


def _literal(text: str, lines: list[tuple[int, int]], indent: int) -> Iterator[Piece]:
    for start, end in lines:
        for at in range(min(start + indent, end), end):
            yield text[at], at, at + 1
        yield "\n", end, end + (2 if text.startswith("\r\n", end) else 1)


def _folded(text: str, lines: list[tuple[int, int]], indent: int) -> Iterator[Piece]:
    """Lines join with a blank, except around blank and more-indented lines."""
    previous_end, previous_more, blanks = None, False, 0
    for start, end in lines:
        begin = min(start + indent, end)
        if begin == end:
            blanks += 1
            continue
        more = text[begin] in " \t"
        if previous_end is None:
            yield from (("\n", start, begin) for _ in range(blanks))
        elif more or previous_more:
            yield from (("\n", previous_end, begin) for _ in range(blanks + 1))
        else:
            yield from ((char, previous_end, begin) for char in ("\n" * blanks or " "))
        for at in range(begin, end):
            yield text[at], at, at + 1
        previous_end, previous_more, blanks = end, more, 0
    if previous_end is None:  # nothing but line breaks
        yield from (("\n", end, end + 1) for _, end in lines)
    else:
        yield from (("\n", previous_end, previous_end + 1) for _ in range(blanks + 1))


def encode(text: str, scalar: Scalar, newline: str) -> str | None:
    """Characters as they must be written in the scalar; ``None`` = its style can't hold them."""
    if scalar.style == "|":
        return text.replace("\n", newline + " " * scalar.indent)
    if scalar.style == '"':
        return _double(text)
    if "\n" in text:
        return None
    return text.replace("'", "''") if scalar.style == "'" else text


def _double(text: str) -> str:
    return "".join(_WRITTEN.get(char, char) for char in text)


def quoted(text: str, quote: str = '"') -> str:
    """A whole scalar in quotes."""
    if quote == "'" and not any(char in _BREAKS for char in text):
        return "'" + text.replace("'", "''") + "'"
    return f'"{_double(text)}"'


def is_plain_safe(text: str, *, flow: bool = True) -> bool:
    """Whether an unquoted scalar of this text reads as this very string, by YAML 1.1 and 1.2."""
    if text == "" or text != text.strip() or any(char in _BREAKS for char in text):
        return False
    # Reserved (YAML 1.2.2, 5.3), or types of YAML 1.1 that no string has; ruamel reads them all.
    if text[0] in "@`" or text in {"=", "<<"}:
        return False
    if not _ODD.search(text):
        return True
    if _NUMBER.fullmatch(text) or (flow and any(char in text for char in "[]{},?:#")):
        return False
    try:
        return all(_load(text, version) == [text] for version in ((1, 1), (1, 2)))
    except YAMLError:
        return False


def _load(text: str, version: tuple[int, int]) -> object:
    yaml = YAML(typ="safe", pure=True)
    yaml.version = version
    return yaml.load(f"- {text}\n")
