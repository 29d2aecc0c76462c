"""Asks whether the server that answers on the port is the one that was started."""

from __future__ import annotations

import http.client
import json

_TIMEOUT_SECONDS = 5.0


def served_models(port: int) -> list[str] | None:
    """Names in ``/v1/models`` when ``/health`` is 200 as well, else ``None``: not there yet."""
    if _get(port, "/health") is None:
        return None
    body = _get(port, "/v1/models")
    if body is None:
        return None
    try:
        return [str(model["id"]) for model in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError):
        return None


def _get(port: int, path: str) -> bytes | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_SECONDS)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException):
        return None
    else:
        return body if response.status == http.client.OK else None
    finally:
        connection.close()
