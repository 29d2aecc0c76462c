"""Read a command line as vLLM's parser does: abbreviations, ``_`` for ``-``, dotted JSON, ``-O``.

Source: ``FlexibleArgumentParser`` of vLLM 0.8.5 to 0.33 and ``argparse`` of Python 3.12.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from vllm_tuning.engine.flags.model import Flag
from vllm_tuning.engine.flags.table import Ambiguous, FlagTable, Spelling, in_any_release


class Fault(StrEnum):
    """Why the engine's parser would refuse a part of the command line (exit code 2)."""

    UNKNOWN_FLAG = "UnknownFlag"
    AMBIGUOUS_FLAG = "AmbiguousFlag"
    MISSING_VALUE = "MissingValue"
    UNEXPECTED_VALUE = "UnexpectedValue"
    """``--enable-x=False``."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One flag on the command line."""

    index: int
    """Word that holds the option."""
    option: str
    """As written, up to ``=``."""
    flag: Flag | None
    negative: bool = False
    values: tuple[int, ...] = ()
    """Words that hold the value; empty for inline values and switches."""
    inline_at: int | None = None
    """Offset of an inline value in the option's word: behind ``=``, or behind ``-O``."""
    dotted: str | None = None
    """Path of a JSON key, e.g. ``pass_config.fuse`` of
    ``--compilation-config.pass_config.fuse``."""
    fault: Fault | None = None
    candidates: tuple[str, ...] = ()
    """For an ambiguous abbreviation: what it might mean."""

    @property
    def name(self) -> str:
        """Canonical name, or the option in snake_case if the release does not know it."""
        return self.flag.name if self.flag else self.option.lstrip("-").replace("-", "_")


@dataclass(frozen=True, slots=True)
class Scan:
    """A whole command line."""

    occurrences: tuple[Occurrence, ...]
    positionals: tuple[int, ...]
    sentinel: int | None = None
    """Index of a bare ``--``."""


_NEGATIVE_NUMBER: Final = re.compile(r"-\d+|-\d*\.\d+")
_OPTIMIZATION: Final = ("optimization_level", "compilation_config")
"""What ``-O3`` sets: a level since 0.12, the compilation config before."""


def dashed(option: str) -> str:
    """Underscores become dashes in a long option's name, up to the first dot."""
    if not option.startswith("--"):
        return option
    head, dot, tail = option.partition(".")
    return head.replace("_", "-") + dot + tail


@dataclass(slots=True)
class _Scanner:
    texts: Sequence[str]
    barriers: AbstractSet[int]
    table: FlagTable
    occurrences: list[Occurrence] = field(default_factory=list)
    positionals: list[int] = field(default_factory=list)
    sentinel: int | None = None

    def run(self) -> Scan:
        index = 0
        while index < len(self.texts):
            if index in self.barriers:
                index += 1
            elif self.texts[index] == "--":
                self.sentinel = index
                self.positionals += range(index + 1, len(self.texts))
                break
            elif self.is_argument(index):
                self.positionals.append(index)
                index += 1
            else:
                occurrence = self.option(index)
                self.occurrences.append(occurrence)
                index = max((index, *occurrence.values)) + 1
        return Scan(tuple(self.occurrences), tuple(self.positionals), self.sentinel)

    def is_argument(self, index: int) -> bool:
        """Argparse's ``_parse_optional``: whether a word is a value rather than an option."""
        text = self.texts[index]
        if not text.startswith("-") or text == "-":
            return True
        head, equals, _ = text.partition("=")
        option = dashed(head)
        if option.startswith("-O") or ("." in option and option.startswith("--")):
            return False
        if self.table.match(option) is not None:
            return False
        if equals == "" and (_NEGATIVE_NUMBER.fullmatch(text) or " " in text):
            return True
        return " " in text

    def option(self, index: int) -> Occurrence:
        text = self.texts[index]
        if text.startswith("-O") and not text.startswith("--"):
            return self.optimization(index)
        head, equals, _ = text.partition("=")
        inline_at = len(head) + 1 if equals else None
        name, dot, path = dashed(head).partition(".")
        found = self.table.match(name)
        if found is None and not head.startswith("--"):
            found, inline_at = self.short(head, inline_at)
        if isinstance(found, Ambiguous):
            return self.occurrence(
                index, head, None, inline_at, fault=Fault.AMBIGUOUS_FLAG, candidates=found.options
            )
        if found is None:
            return self.occurrence(index, head, None, inline_at, fault=Fault.UNKNOWN_FLAG)
        return self.occurrence(index, head, found, inline_at, dotted=path if dot else None)

    def short(self, head: str, inline_at: int | None) -> tuple[Spelling | None, int | None]:
        """``-qawq``: a one-letter option with its value glued on."""
        spelling = self.table.spellings.get(head[:2])
        return (spelling, 2) if spelling is not None else (None, inline_at)

    def optimization(self, index: int) -> Occurrence:
        text = self.texts[index]
        flag = next((f for name in _OPTIMIZATION if (f := self.table.get(name))), None)
        spelling = Spelling("-O", flag) if flag else None
        fault = None if flag else Fault.UNKNOWN_FLAG
        if text.startswith("-O."):
            head, equals, _ = text.partition("=")
            at = len(head) + 1 if equals else None
            flag = self.table.get("compilation_config")
            spelling = Spelling("-O", flag) if flag else None
            return self.occurrence(index, head, spelling, at, dotted=head[3:], fault=fault)
        if text == "-O":
            return self.occurrence(index, text, spelling, None, fault=fault)
        at = 3 if text[2] == "=" else 2
        return self.occurrence(index, "-O", spelling, at, fault=fault)

    def occurrence(
        self,
        index: int,
        option: str,
        spelling: Spelling | None,
        inline_at: int | None,
        *,
        dotted: str | None = None,
        fault: Fault | None = None,
        candidates: tuple[str, ...] = (),
    ) -> Occurrence:
        flag = spelling.flag if spelling else None
        values: tuple[int, ...] = ()
        # A flag of another release still tells whether the next word is its value.
        foreign = in_any_release(dashed(option)) if flag is None else None
        shape = flag or (foreign.flag if foreign else None)
        takes_value = shape is None or shape.kind.takes_value or dotted is not None
        if inline_at is not None and not takes_value:
            fault = fault or Fault.UNEXPECTED_VALUE
        elif inline_at is None and takes_value:
            values = self.values(index, None if dotted or shape is None else shape.arity)
            if not values and flag is not None and flag.arity not in ("*", "?"):
                fault = fault or Fault.MISSING_VALUE
        elif not takes_value and (stray := self.stray_boolean(index)) is not None:
            values, fault = (stray,), Fault.UNEXPECTED_VALUE
        return Occurrence(
            index=index,
            option=option,
            flag=flag,
            negative=spelling.negative if spelling else False,
            values=values,
            inline_at=inline_at,
            dotted=dotted,
            fault=fault,
            candidates=candidates,
        )

    def values(self, index: int, arity: int | str | None) -> tuple[int, ...]:
        many = len(self.texts) if arity in ("+", "*") else 1
        limit = arity if isinstance(arity, int) else many
        taken: list[int] = []
        for at in range(index + 1, len(self.texts)):
            # An unknown right behind the option is its value; further on it may be anything.
            unknown = at in self.barriers and at > index + 1
            if len(taken) == limit or unknown or self.texts[at] == "--":
                break
            if at not in self.barriers and not self.is_argument(at):
                break
            taken.append(at)
        return tuple(taken)

    def stray_boolean(self, index: int) -> int | None:
        """``--enable-x False``: the word that the engine does not expect."""
        at = index + 1
        if at < len(self.texts) and self.texts[at].lower() in ("true", "false"):
            return at
        return None


def scan(texts: Sequence[str], table: FlagTable, barriers: AbstractSet[int] = frozenset()) -> Scan:
    """Read the engine's own arguments.

    ``barriers`` are words that stand for an unknown number of words.
    """
    return _Scanner(texts, barriers, table).run()


def boolean_value(occurrence: Occurrence, text: str | None) -> str:
    """The value of a BOOL or SWITCH occurrence, also of the refused ``--enable-x=False``."""
    if text is not None and text.strip().lower() in ("false", "0", "no"):
        return "true" if occurrence.negative else "false"
    return "false" if occurrence.negative else "true"
