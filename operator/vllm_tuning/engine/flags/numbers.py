"""Numbers as vLLM's parser reads them.

Source: ``human_readable_int`` and ``human_readable_int_or_auto`` of vLLM (0.8.5 to 0.33): a
lower-case suffix is decimal, an upper-case one binary, and only the decimal ones take a fraction.
"""

from __future__ import annotations

import re
from typing import Final

from vllm_tuning.engine.flags.model import Kind

_HUMAN: Final = re.compile(r"(\d+(?:\.\d+)?)([kKmMgGtT])")
_DECIMAL: Final = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

AUTO: Final = -1
"""What ``--max-model-len auto`` means to the engine."""


def parse_int(text: str) -> int | None:
    """Read an int as Python's ``int`` does (``8_192`` and padding are fine); ``None`` = not one."""
    try:
        return int(text)
    except ValueError:
        return None


def parse_human_int(text: str) -> int | None:
    """Read ``8k`` as 8,000, ``8K`` as 8,192, ``1.5k`` as 1,500; ``None`` = refused."""
    match = _HUMAN.fullmatch(text.strip())
    if match is None:
        return parse_int(text)
    number, suffix = match.groups()
    if suffix in _DECIMAL:
        return int(float(number) * _DECIMAL[suffix])
    whole = parse_int(number)
    return None if whole is None else whole * _BINARY[suffix]


def parse_float(text: str) -> float | None:
    """Read a float as Python does; ``None`` = not one."""
    try:
        return float(text)
    except ValueError:
        return None


def normalize(text: str, kind: Kind) -> str | None:
    """The canonical text of a value (``8k`` becomes ``8000``); ``None`` = the engine refuses it."""
    number: int | float | None
    match kind:
        case Kind.INT:
            number = parse_int(text)
        case Kind.HUMAN_INT:
            number = parse_human_int(text)
        case Kind.HUMAN_INT_OR_AUTO:
            number = AUTO if text.strip().lower() == "auto" else parse_human_int(text)
        case Kind.FLOAT:
            number = parse_float(text)
        case _:
            return text
    return None if number is None else str(number)
