"""What is known about one flag of one release."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Kind(StrEnum):
    """How the engine's parser reads the value of a flag."""

    SWITCH = "switch"
    """Present or absent; there is no ``--no-`` form (``store_true``)."""
    BOOL = "bool"
    """``--x`` and ``--no-x`` (``BooleanOptionalAction``)."""
    INT = "int"
    HUMAN_INT = "human_int"
    """An int that may be written ``8k`` (decimal) or ``8K`` (binary)."""
    HUMAN_INT_OR_AUTO = "human_int_or_auto"
    """As ``HUMAN_INT``, or ``auto`` / ``-1``."""
    FLOAT = "float"
    STRING = "string"
    JSON = "json"
    """JSON text, or dotted keys: ``--x.key value``."""

    @property
    def takes_value(self) -> bool:
        """Whether a value follows the flag."""
        return self not in (Kind.SWITCH, Kind.BOOL)


Arity: TypeAlias = int | str | None
"""argparse's ``nargs``: ``None`` = exactly one, ``"+"``, ``"*"``, ``"?"``, or a count."""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag as one release of the engine defines it."""

    name: str
    """Canonical: the first long option in snake_case, e.g. ``max_num_seqs``."""
    options: tuple[str, ...]
    """Every positive spelling, long and short, e.g. ``("--tensor-parallel-size", "-tp")``."""
    kind: Kind
    negatives: tuple[str, ...] = ()
    """Spellings that set a BOOL to false."""
    arity: Arity = None
    choices: tuple[str, ...] = ()
    """Accepted values; empty = any."""
    deprecated: bool = False

    @property
    def long(self) -> str:
        """The spelling to write, e.g. ``--max-num-seqs``."""
        return next((o for o in self.options if o.startswith("--")), self.options[0])

    @property
    def is_list(self) -> bool:
        """Whether several words may follow."""
        return self.arity in ("+", "*") or isinstance(self.arity, int)
