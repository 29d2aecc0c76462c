"""Reading the metrics pages of serving pods, without ever being a burden to them.

One page per pod and look, a few at a time, with a short deadline and a cap on its length; nothing
is retried. Whatever goes wrong is a gap in the counters and nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import aiohttp

CONCURRENCY: Final = 16
CONNECT_SECONDS: Final = 1.0
PAGE_SECONDS: Final = 3.0
"""Longest time for one page; an engine renders it in milliseconds."""
MAX_PAGE_BYTES: Final = 4 * 1024 * 1024
"""vLLM's page has some 100 KiB."""


@dataclass(frozen=True, slots=True)
class PageAddress:
    """The metrics page of one pod."""

    key: str
    """The pod's uid."""
    host: str
    """Its IP address."""
    port: int
    tls: bool = False

    @property
    def url(self) -> str:
        """``http://10.0.0.7:8000/metrics``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}/metrics"


@dataclass(frozen=True, slots=True)
class NoPage:
    """Why there is none, in words for people."""

    message: str


class Scraper:
    """Reads pages; one of them serves the whole process."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self._http = http

    async def read(self, addresses: Iterable[PageAddress]) -> Mapping[str, str | NoPage]:
        """Read all of them, ``CONCURRENCY`` at a time. Returns the pages by key."""
        gate = asyncio.Semaphore(CONCURRENCY)

        async def one(address: PageAddress) -> tuple[str, str | NoPage]:
            async with gate:
                return address.key, await self.page(address)

        return dict(await asyncio.gather(*(one(address) for address in addresses)))

    async def page(self, address: PageAddress) -> str | NoPage:
        """Read one page.

        The certificate is not checked: it names a Service, and counters are no secret.
        """
        try:
            async with self._http.get(
                address.url, allow_redirects=False, ssl=not address.tls
            ) as response:
                if response.status != 200:
                    return NoPage(f"{address.url} answers with status {response.status}")
                data = bytearray()
                async for chunk in response.content.iter_any():
                    data += chunk
                    if len(data) > MAX_PAGE_BYTES:
                        return NoPage(f"{address.url} is longer than {MAX_PAGE_BYTES} bytes")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return NoPage(f"{address.url}: {str(error) or type(error).__name__}")
        return data.decode(errors="replace")


@asynccontextmanager
async def open_scraper() -> AsyncIterator[Scraper]:
    """Open a scraper with its own connections."""
    timeout = aiohttp.ClientTimeout(total=PAGE_SECONDS, sock_connect=CONNECT_SECONDS)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        yield Scraper(http)
