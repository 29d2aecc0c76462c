"""The launcher's HTTP interface, for one client on the same pod's loopback."""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from . import hookfiles
from .engine import BusyError, Engine, StartRequest
from .gpu import Sampler

_MAX_BODY_BYTES = 1 << 20
_MAX_LOG_BYTES = 1 << 18
_TIMEOUT_SECONDS = 60.0


class RefusedError(Exception):
    """Answer with ``status`` and this message."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Api:
    """What each route does.

    Every method takes the query and the body and returns the answer's body.
    """

    def __init__(self, engine: Engine, sampler: Sampler, info: dict[str, Any]) -> None:
        self._engine = engine
        self._sampler = sampler
        self._info = info
        self.routes: dict[tuple[str, str], Callable[[dict[str, str], dict[str, Any]], Any]] = {
            ("GET", "/v1/info"): lambda _query, _body: self._info,
            ("POST", "/v1/start"): self._start,
            ("GET", "/v1/engine"): lambda _query, _body: self._describe(),
            ("POST", "/v1/stop"): self._stop,
            ("GET", "/v1/log"): self._log,
            ("POST", "/v1/limits"): self._limits,
            ("GET", "/v1/record"): self._record,
            ("GET", "/v1/gpu"): self._gpu,
        }

    def _describe(self) -> dict[str, Any]:
        return {"instance": self._info["instance"], **self._engine.describe()}

    def _start(self, _query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        try:
            self._engine.start(StartRequest(body))
        except BusyError:
            raise RefusedError(
                HTTPStatus.CONFLICT, "an engine already runs: POST /v1/stop first"
            ) from None
        return self._describe()

    def _stop(self, _query: dict[str, str], _body: dict[str, Any]) -> dict[str, Any]:
        self._engine.stop()
        return self._describe()

    def _log(self, query: dict[str, str], _body: dict[str, Any]) -> dict[str, Any]:
        start, data = self._engine.read_log(max(0, int(query.get("from", "0"))), _MAX_LOG_BYTES)
        return {"from": start, "next": start + len(data), "text": data.decode("utf-8", "replace")}

    def _limits(self, _query: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
        directory = self._engine.hook_dir
        if directory is None:
            raise RefusedError(HTTPStatus.CONFLICT, "no engine with live limits runs")
        limits = hookfiles.checked_limits(body)
        hookfiles.write_limits(directory, limits)
        return limits

    def _record(self, _query: dict[str, str], _body: dict[str, Any]) -> dict[str, Any]:
        directory = self._engine.hook_dir
        return {"records": hookfiles.read_records(directory) if directory is not None else []}

    def _gpu(self, query: dict[str, str], _body: dict[str, Any]) -> dict[str, Any]:
        return {"samples": self._sampler.since(float(query.get("since", "0")))}


class Handler(BaseHTTPRequestHandler):
    """One request.

    The token, the route, the answer. ``api`` and ``token`` are set by ``make_server``.
    """

    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT_SECONDS
    api: Api
    token: str

    def do_GET(self) -> None:
        """Answer a GET."""
        self._answer("GET")

    def do_POST(self) -> None:
        """Answer a POST."""
        self._answer("POST")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Polls are not worth a line in the engine's log."""

    def setup(self) -> None:
        """Answers are small and awaited: no Nagle delay."""
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _answer(self, method: str) -> None:
        try:
            status, answer = HTTPStatus.OK, self._handle(method)
        except RefusedError as refusal:
            status, answer = refusal.status, {"error": str(refusal)}
        except (ValueError, KeyError) as error:
            status, answer = HTTPStatus.BAD_REQUEST, {"error": f"{type(error).__name__}: {error}"}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _handle(self, method: str) -> Any:
        body = self._body()
        given = self.headers.get("Authorization", "")
        if not hmac.compare_digest(given.encode(), f"Bearer {self.token}".encode()):
            raise RefusedError(HTTPStatus.UNAUTHORIZED, "wrong or missing token")
        address = urlsplit(self.path)
        route = self.api.routes.get((method, address.path))
        if route is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"no {method} {address.path}")
        return route({name: values[-1] for name, values in parse_qs(address.query).items()}, body)

    def _body(self) -> dict[str, Any]:
        length = int(self.headers.get("Content-Length") or 0)
        if not 0 <= length <= _MAX_BODY_BYTES:
            self.close_connection = True
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body too large")
        data = self.rfile.read(length)
        body = json.loads(data) if data else {}
        if not isinstance(body, dict):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "the body must be a JSON object")
        return body


class Server(ThreadingHTTPServer):
    """A thread for each connection; the bench keeps one or two open."""

    daemon_threads = True
    allow_reuse_address = True


def make_server(host: str, port: int, token: str, api: Api) -> Server:
    """A server that answers only requests that carry ``token``."""
    handler = type("BoundHandler", (Handler,), {"api": api, "token": token})
    return Server((host, port), handler)
