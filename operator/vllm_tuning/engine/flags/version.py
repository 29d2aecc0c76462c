"""Versions of vLLM, as tuples that compare."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

Version: TypeAlias = tuple[int, ...]
"""Release numbers, e.g. ``(0, 11, 1)``; local and pre-release tails are dropped."""

_VERSION: Final = re.compile(r"v?(\d+(?:\.\d+)+)")


def parse_version(text: str | None) -> Version | None:
    """Read ``0.11.1``, ``v0.11.1rc2+cu128``; ``None`` = not a version."""
    match = _VERSION.match(text.strip()) if text else None
    return tuple(int(part) for part in match[1].split(".")) if match else None


def at_least(text: str | None, minimum: str) -> bool | None:
    """Whether a version is ``minimum`` or newer; ``None`` = the version is not known."""
    version, bound = parse_version(text), parse_version(minimum)
    assert bound is not None
    return None if version is None else version >= bound
