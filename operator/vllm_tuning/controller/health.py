"""The endpoint of the pod's probes: answers as long as the event loop turns.

A standby that waits for the lease is healthy; a process whose loop hangs answers nobody and is
restarted.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok\n")


@asynccontextmanager
async def serve_health(port: int) -> AsyncIterator[None]:
    """Serve ``/healthz`` on a port; 0 = nowhere."""
    if not port:
        yield
        return
    app = web.Application()
    app.router.add_get("/healthz", _healthy)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        yield
    finally:
        await runner.cleanup()
