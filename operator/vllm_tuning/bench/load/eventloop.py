"""The event loop that load is driven on."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

Result = TypeVar("Result")


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run ``main`` to its end on libuv: half of asyncio's own cost per chunk (ADR 0004).

    SIGTERM and SIGINT cancel it, so that it ends what it has started.
    """

    async def stoppable() -> Result:
        task = asyncio.ensure_future(main)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        return await task

    return uvloop.run(stoppable())
