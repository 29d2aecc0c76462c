"""Server-sent events of a streamed completion, cut and read with as little work as possible.

Nearly every event is a token and nothing else, and is recognized by two byte patterns; only the
others (first of its kind, usage, errors, ``[DONE]``) are parsed as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

_CHOICE = b'"choices":[{'
_UNFINISHED = b'"finish_reason":null'
_ERROR = b'"error"'


class CompletionStream:
    """Reads the body of one streamed ``/v1/completions`` response.

    ``on_token(row, now)`` is called once per content event, with the time that ``feed`` was given.
    """

    __slots__ = (
        "_on_token",
        "_rest",
        "_row",
        "cached_tokens",
        "done",
        "error",
        "finish",
        "output_tokens",
    )

    def __init__(self, on_token: Callable[[int, float], None], row: int) -> None:
        self._on_token = on_token
        self._row = row
        self._rest = b""
        self.done = False
        """The terminal event ``[DONE]`` has come."""
        self.error = ""
        """What an ``error`` event said, or why an event could not be read."""
        self.finish = ""
        """The last ``finish_reason``."""
        self.output_tokens: int | None = None
        """``usage.completion_tokens``."""
        self.cached_tokens: int | None = None
        """``usage.prompt_tokens_details.cached_tokens``."""

    def feed(self, data: bytes, now: float) -> None:
        """Take the next piece of the body, which may end anywhere."""
        if not self._rest and data.find(b"\n\n") == len(data) - 2:
            # Nearly every call: one whole event, and that a token. No further call on this path.
            if _CHOICE in data and _UNFINISHED in data and _ERROR not in data:
                self._on_token(self._row, now)
            else:
                self._event(data, now)
            return
        data = self._rest + data
        if b"\r" in data:
            # A lone CR at the end may be half of a CRLF: it waits for the rest.
            held = b"\r" if data.endswith(b"\r") else b""
            data = data.removesuffix(b"\r").replace(b"\r\n", b"\n") + held
        *events, self._rest = data.split(b"\n\n")
        for event in events:
            self._event(event, now)

    def _event(self, event: bytes, now: float) -> None:
        if _CHOICE in event and _UNFINISHED in event and _ERROR not in event:
            self._on_token(self._row, now)
            return
        payload = b"\n".join(
            line[5:].lstrip() for line in event.split(b"\n") if line.startswith(b"data:")
        )
        if not payload:  # a comment, which proxies send to keep a connection open
            return
        if payload.strip() == b"[DONE]":
            self.done = True
            return
        try:
            self._document(json.loads(payload), now)
        except (ValueError, AttributeError, TypeError, KeyError) as error:
            self.error = self.error or f"event is not a completion: {error}"

    def _document(self, document: dict[str, Any], now: float) -> None:
        if document.get("error"):
            error = document["error"]
            self.error = str(error.get("message", error) if isinstance(error, dict) else error)
            return
        if choices := document["choices"]:
            self._on_token(self._row, now)
            self.finish = choices[0].get("finish_reason") or self.finish
        if usage := document.get("usage"):
            self.output_tokens = int(usage["completion_tokens"])
            details = usage.get("prompt_tokens_details") or {}
            if "cached_tokens" in details:
                self.cached_tokens = int(details["cached_tokens"] or 0)
