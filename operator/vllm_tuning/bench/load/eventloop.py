"""The event loop that load is driven on."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run ``main`` to its end on libuv: half of asyncio's own cost per chunk (ADR 0004)."""
    return uvloop.run(main)
