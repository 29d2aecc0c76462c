"""A proxy before the real API server that lets a test do something at the very moment of a write.

The API server is the real one; only the moment is ours: ``after_write`` is called when a write has
been done and its answer has not been sent yet. Killing the client there is the worst crash.
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from pathlib import Path
from typing import Any, Self

import aiohttp
import yaml
from aiohttp import web

WRITES = ("POST", "PUT", "PATCH", "DELETE")
_HOP = {"connection", "content-length", "host", "transfer-encoding"}
_STAMP = re.compile(rb'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?Z"')
"""A time in JSON as Kubernetes writes it."""


class APIProxy:
    """Runs in a thread of its own; ``url`` is where clients connect."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
        self._server: str = config["server"]
        authority = base64.b64decode(config["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        self.before: Callable[[str, str, bytes], web.Response | None] = lambda *_: None
        """Called with method, path with query and body of each request; its answer is sent instead
        of the API server's."""
        self.after_write: Callable[[str, str, bytes], None] = lambda *_: None
        """Called with method, path and body of each write that the API server accepted."""
        self.logs: Callable[[str, str], bytes | None] | None = None
        """Answers for the kubelet, by pod and container, where a test plays it."""
        self.skew = timedelta()
        """The clock of the control plane, as clients see it, goes so much ahead of theirs."""
        self.requests: list[tuple[str, str]] = []
        """Method and path of everything that was answered, in order."""
        self.accepted: list[tuple[str, str]] = []
        """The writes among them that the API server accepted."""
        self.url = ""
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = self._loop.run_until_complete(self._start())
        self._ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._close(runner))

    async def _start(self) -> web.AppRunner:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
        )
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._forward)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return runner

    async def _close(self, runner: web.AppRunner) -> None:
        await runner.cleanup()
        await self._session.close()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        body = _shifted(await request.read(), -self.skew)
        if self.logs is not None and request.path.endswith("/log"):
            return await self._play_log(request, self.logs)
        instead = await asyncio.to_thread(self.before, request.method, request.path_qs, body)
        if instead is not None:
            return instead
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP}
        async with self._session.request(
            request.method, self._server + request.path_qs, headers=headers, data=body or None
        ) as upstream:
            self.requests.append((request.method, request.path))
            if request.method in WRITES and upstream.status < 300:
                self.accepted.append((request.method, request.path))
                self.after_write(request.method, request.path, body)
            response = web.StreamResponse(status=upstream.status)
            for key, value in upstream.headers.items():
                if key.lower() not in _HOP:
                    response.headers[key] = value
            if self.skew and "Date" in upstream.headers:
                told = parsedate_to_datetime(upstream.headers["Date"])
                response.headers["Date"] = format_datetime(told + self.skew, usegmt=True)
            return await self._relay(request, upstream, response)

    async def _play_log(
        self, request: web.Request, logs: Callable[[str, str], bytes | None]
    ) -> web.Response:
        pod, container = request.path.split("/")[-2], request.query["container"]
        text = await asyncio.to_thread(logs, pod, container)
        return web.Response(status=404 if text is None else 200, body=text or b"")

    async def _relay(
        self,
        request: web.Request,
        upstream: aiohttp.ClientResponse,
        response: web.StreamResponse,
    ) -> web.StreamResponse:
        try:
            await response.prepare(request)
            async for chunk in self._chunks(upstream):
                await response.write(chunk)
            await response.write_eof()
        except (aiohttp.ClientError, ConnectionError):
            pass  # the client is gone, which may be what the test is about
        return response

    async def _chunks(self, upstream: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """Line by line where times are shifted: an object, also of a watch, is a line."""
        if not self.skew:
            async for chunk in upstream.content.iter_any():
                yield chunk
            return
        rest = b""
        async for chunk in upstream.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield _shifted(line, self.skew) + b"\n"
        yield _shifted(rest, self.skew)


def _shifted(text: bytes, skew: timedelta) -> bytes:
    """Move every time in a JSON text."""

    def move(found: re.Match[bytes]) -> bytes:
        moment = datetime.fromisoformat(found[1].decode()).replace(tzinfo=UTC) + skew
        return b'"%s%sZ"' % (moment.strftime("%Y-%m-%dT%H:%M:%S").encode(), found[2] or b"")

    return _STAMP.sub(move, text) if skew else text


def kubeconfig_for(server: str, token: str, authority: str | None = None) -> dict[str, Any]:
    """Return a kubeconfig for one user by token; without an authority the server speaks HTTP."""
    cluster = {"server": server}
    if authority is not None:
        cluster["certificate-authority-data"] = authority
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
