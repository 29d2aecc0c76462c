"""Where the measured server is and how one speaks to it."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """An OpenAI-compatible server.

    ``base_url`` is what stands before ``/v1``: scheme, host, port and base path if any (a trailing
    ``/v1`` is accepted and dropped). ``model`` is the served name that requests carry.
    """

    base_url: str
    model: str
    api_key: str | None = None
    ca_file: str | None = None
    """CA bundle to trust instead of the system's."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            msg = f"base_url must be http(s)://host[:port][/path], not {self.base_url!r}"
            raise ValueError(msg)

    @property
    def host(self) -> str:
        """Host name or address, without brackets."""
        return urlsplit(self.base_url).hostname or ""

    @property
    def port(self) -> int:
        """Port, by default that of the scheme."""
        return urlsplit(self.base_url).port or (443 if self.tls else 80)

    @property
    def tls(self) -> bool:
        """Whether to speak TLS."""
        return urlsplit(self.base_url).scheme == "https"

    @property
    def base_path(self) -> str:
        """What every path begins with, without a trailing slash."""
        return urlsplit(self.base_url).path.rstrip("/").removesuffix("/v1")

    def url(self, path: str) -> str:
        """Return the full URL of ``path`` (which begins with a slash)."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}{self.base_path}{path}"

    def headers(self) -> dict[str, str]:
        """Return the headers that authorize a request."""
        return {} if self.api_key is None else {"authorization": f"Bearer {self.api_key}"}

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the context to connect with, ``None`` for plain HTTP."""
        return ssl.create_default_context(cafile=self.ca_file) if self.tls else None

    def post_head(self, path: str) -> bytes:
        """Return the head of a JSON POST up to the value of ``content-length``, which is last."""
        authority = f"[{self.host}]" if ":" in self.host else self.host
        lines = [
            f"POST {self.base_path}{path} HTTP/1.1",
            f"host: {authority}:{self.port}",
            *(f"{name}: {value}" for name, value in self.headers().items()),
            "accept: text/event-stream",
            "content-type: application/json",
            "content-length: ",
        ]
        return "\r\n".join(lines).encode("latin-1")
