"""Chromium without a window, by its own protocol: pages as people see them, wide, narrow, dark.

https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
"""The browser of this machine, if there is one."""


class Page:
    """One tab."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._asked = 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Ask the browser something; returns its answer."""
        self._asked += 1
        await self._socket.send_json({"id": self._asked, "method": method, "params": parameters})
        while True:
            message = json.loads(await self._socket.receive_str())
            if message.get("id") == self._asked:
                assert "error" not in message, message
                found: dict[str, Any] = message["result"]
                return found

    async def show(self, file: Path, *, width: int, scheme: str) -> None:
        """Open a file in a window of this width, for somebody who prefers light or dark."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)
        await self.call("Page.enable")
        await self.call("Page.navigate", url=file.as_uri())
        loaded = "new Promise(done => document.readyState == 'complete' ? done() : onload = done)"
        await self.evaluate(loaded)

    async def evaluate(self, expression: str) -> Any:
        """Value of a JavaScript expression in the page; a promise is waited for."""
        answer = await self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def picture(self) -> bytes:
        """The whole page as PNG."""
        answer = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(answer["data"])


@asynccontextmanager
async def browser() -> AsyncIterator[Page]:
    """Start the browser with a profile that is thrown away, and open a tab."""
    assert CHROMIUM is not None
    with TemporaryDirectory() as profile:
        process = await asyncio.create_subprocess_exec(
            CHROMIUM,
            "--headless=new",
            "--no-sandbox",  # root may not have one; the pages are ours
            "--disable-gpu",
            "--hide-scrollbars",
            "--remote-debugging-port=0",
            f"--user-data-dir={profile}",
            "about:blank",
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stderr is not None
        try:
            # it says "DevTools listening on ws://127.0.0.1:PORT/devtools/browser/ID"
            said = ""
            while "listening on ws://" not in said:
                said = (await process.stderr.readline()).decode()
                assert said, "Chromium ended before it listened"
            port = said.split("ws://127.0.0.1:")[1].split("/")[0]
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    tabs = await answer.json()
                tab = next(tab for tab in tabs if tab["type"] == "page")
                # a picture of a long page is one message
                async with session.ws_connect(
                    tab["webSocketDebuggerUrl"], max_msg_size=64 << 20
                ) as socket:
                    yield Page(socket)
        finally:
            process.kill()
            await process.communicate()
