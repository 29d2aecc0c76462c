"""One request and its response, from the moment it is due to the row it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from vllm_tuning.bench.load.connection import ERROR_BODY_BYTES, StreamConnection
from vllm_tuning.bench.load.events import CompletionStream
from vllm_tuning.bench.load.prompts import PlannedRequest
from vllm_tuning.bench.load.recorder import Recorder
from vllm_tuning.tuning.samples import RequestStatus

_OK = 200  # a plain number: an enum's member costs as much as finding the token does
_REFUSALS = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS})


class Exchange:
    """Reads one response into the recorder; ends exactly once, whatever comes.

    ``origin`` is the ``perf_counter`` time of the probe's zero.
    """

    __slots__ = (
        "_body",
        "_code",
        "_on_done",
        "_origin",
        "_recorder",
        "_stream",
        "connection",
        "ended",
        "planned",
        "retried",
        "row",
        "scheduled_at",
    )

    def __init__(
        self,
        planned: PlannedRequest,
        scheduled_at: float,
        *,
        recorder: Recorder,
        origin: float,
        on_done: Callable[[Exchange, bool, str], None],
    ) -> None:
        """``on_done(exchange, complete, detail)`` decides the status, by ``finish``."""
        self.planned = planned
        self.scheduled_at = scheduled_at
        self.row = recorder.open(
            scheduled_at,
            input_tokens=planned.input_tokens,
            shared_tokens=planned.shared_tokens,
        )
        self.connection: StreamConnection | None = None
        self.retried = False
        self.ended = False
        self._recorder = recorder
        self._origin = origin
        self._on_done = on_done
        self._code = 0
        self._body = b""
        self._stream = CompletionStream(recorder.token, self.row)

    def on_head(self, status: int) -> None:
        """Take the status."""
        self._code = status

    def on_body(self, data: bytes, now: float) -> None:
        """Take a piece of the body."""
        if self._code == _OK:
            self._stream.feed(data, now - self._origin)
        elif len(self._body) < ERROR_BODY_BYTES:
            self._body += data[:ERROR_BODY_BYTES]

    def on_end(self, *, complete: bool, detail: str) -> None:
        """Pass the end on to the driver, which may try again or finish."""
        if not self.ended:
            self._on_done(self, complete, detail)

    def finish(self, status: RequestStatus, at: float, detail: str = "") -> None:
        """Write the row's end."""
        self.ended = True
        self._recorder.close(
            self.row,
            at,
            status,
            output_tokens=self._stream.output_tokens,
            cached_tokens=self._stream.cached_tokens,
            detail=detail,
        )

    def outcome(self, *, complete: bool, detail: str) -> tuple[RequestStatus, str]:
        """Say how a response that is over has ended, and what it said if it failed."""
        if self._code == 0:
            return RequestStatus.BROKEN_STREAM, detail or "no response"
        if self._code != _OK:
            return self._refusal()
        return self._stream_outcome(complete=complete, detail=detail)

    def _stream_outcome(self, *, complete: bool, detail: str) -> tuple[RequestStatus, str]:
        stream, chunks = self._stream, self._recorder.chunks(self.row)
        if stream.error:
            return RequestStatus.SERVER_ERROR, stream.error
        if not stream.done:
            if complete:
                return RequestStatus.INCOMPLETE, "no [DONE] at the end of the stream"
            return RequestStatus.BROKEN_STREAM, detail
        got = chunks if stream.output_tokens is None else stream.output_tokens
        if got < self.planned.output_tokens or not chunks:
            said = f"{got} of {self.planned.output_tokens} tokens, finish_reason {stream.finish!r}"
            return RequestStatus.INCOMPLETE, said
        return RequestStatus.OK, ""

    def _refusal(self) -> tuple[RequestStatus, str]:
        said = f"HTTP {self._code} {self._body.decode('utf-8', 'replace').strip()}"
        if self._code in _REFUSALS:
            return RequestStatus.REJECTED, said
        if self._code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return RequestStatus.SERVER_ERROR, said
        return RequestStatus.CLIENT_ERROR, said
