"""Text that remembers, character by character, where in the container it came from.

A word that vLLM sees may be cut from a list item, from a shell string, or pieced together from
variables. Every
character carries a `Mark` of its origin, so that an edit of a value becomes an edit of exactly the
bytes behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""Keys from the container down to a string, e.g. ``("args", 3)`` or ``("env", 0, "value")``."""

UNKNOWN: Final = "\ufffc"
"""Stands in a word for text that cannot be known from the manifest."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The origin of one character: ``[start, end)`` in the string at ``path``."""

    path: Path
    start: int
    end: int
    quote: str = ""
    """The shell quoting around it: nothing, ``'``, ``"`` or ``$'``."""
    region: tuple[int, int] | None = None
    """Bounds of the quoted string around it, delimiters included, in the string at ``path``."""
    reference: Mark | None = None
    """The ``$(VAR)`` or ``$VAR`` that brought the character here; ``None`` = it stands there
    itself."""
    in_script: bool = False
    """Whether a shell reads the string at ``path`` as its script."""
    variable: str | None = None
    """Name of the variable, for a reference."""

    @property
    def top(self) -> Mark:
        """The place in args or command that stands for this character."""
        return self.reference or self


@dataclass(frozen=True, slots=True)
class Traced:
    """A text and the mark of each of its characters. ``len(text) == len(marks)``."""

    text: str
    marks: tuple[Mark, ...]

    @classmethod
    def plain(cls, text: str, path: Path) -> Traced:
        """The whole string at ``path`` as it stands."""
        return cls(text, tuple(Mark(path, i, i + 1) for i in range(len(text))))

    @classmethod
    def join(cls, parts: Iterable[Traced]) -> Traced:
        """The parts one after the other."""
        texts: list[str] = []
        marks: list[Mark] = []
        for part in parts:
            texts.append(part.text)
            marks.extend(part.marks)
        return cls("".join(texts), tuple(marks))

    def __getitem__(self, key: slice) -> Traced:
        return Traced(self.text[key], self.marks[key])

    def __len__(self) -> int:
        return len(self.text)

    @property
    def known(self) -> bool:
        """Whether every character is known."""
        return UNKNOWN not in self.text

    def via(self, reference: Mark) -> Traced:
        """The same text, brought to where ``reference`` stands; of nested ones the outermost."""
        return Traced(self.text, tuple(replace(m, reference=reference) for m in self.marks))


@dataclass(frozen=True, slots=True)
class Word:
    """One element of the command line, as the process sees it."""

    body: Traced
    anchor: Mark
    """The whole word in its source, quotes included; ``start == end`` never holds for a real
    word."""
    many: bool = False
    """An unquoted unknown: it may become no word, one, or several."""

    @property
    def text(self) -> str:
        """What the process sees; `UNKNOWN` where that is not known."""
        return self.body.text

    @property
    def known(self) -> bool:
        """Whether the word is exactly as written here."""
        return not self.many and self.body.known
