"""Changes of a text by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Splice:
    """Characters ``[start, end)`` become ``text``."""

    start: int
    end: int
    text: str


def splice(text: str, splices: Sequence[Splice]) -> str | None:
    """Apply splices, whose positions are those of the unchanged text; ``None`` = they overlap."""
    parts: list[str] = []
    at = 0
    for change in sorted(splices):
        if change.start < at:
            return None
        parts += [text[at : change.start], change.text]
        at = change.end
    return "".join([*parts, text[at:]])
