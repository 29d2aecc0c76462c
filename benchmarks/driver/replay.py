"""A server that streams pre-rendered bytes on a clock: nothing in it can be the bottleneck early.

It answers as vLLM does (one HTTP chunk per token, usage at the end, ``[DONE]``) and knows nothing
of models. Every stream gets its first token after ``--first`` seconds and one each ``--gap``.
Run it as a process of its own; it prints its port. ``GET /span`` tells what it served since the
last time that it was asked.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import time
from dataclasses import asdict, dataclass

import uvloop

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
CREATED = 1_764_000_000
MAX_TOKENS = re.compile(rb'"max_(?:completion_)?tokens": ?(\d+)')
CONTENT_LENGTH = re.compile(rb"content-length: ?(\d+)", re.IGNORECASE)


def frame(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(document: dict[str, object]) -> bytes:
    return frame(b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n")


def completion(choices: list[object], usage: dict[str, int] | None) -> dict[str, object]:
    return {
        "id": "cmpl-5e1f3a52c8e94b6d9a1d0c7b2f4e6a80",
        "object": "text_completion",
        "created": CREATED,
        "model": "replay",
        "choices": choices,
        "usage": usage,
    }


def choice(finish: str | None) -> dict[str, object]:
    return {
        "index": 0,
        "text": " w42",
        "logprobs": None,
        "finish_reason": finish,
        "stop_reason": None,
        "token_ids": None,
    }


TOKEN = event(completion([choice(None)], None))
LAST_TOKEN = event(completion([choice("length")], None))


def ending(tokens: int) -> bytes:
    usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1}
    return event(completion([], usage)) + frame(b"data: [DONE]\n\n") + b"0\r\n\r\n"


@dataclass
class Span:
    """From the first stream's arrival to the last one's end, as ``time.monotonic`` has it."""

    begin: float | None = None
    end: float | None = None
    tokens: int = 0

    def read(self) -> dict[str, object]:
        """Tell and begin anew."""
        told = asdict(self)
        self.begin, self.end, self.tokens = None, None, 0
        return told


class Replay(asyncio.Protocol):
    """One connection."""

    def __init__(self, first: float, gap: float, span: Span) -> None:
        self.first, self.gap, self.span = first, gap, span
        self.buffer = bytearray()
        self.left = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        found = CONTENT_LENGTH.search(self.buffer, 0, end)
        body = int(found[1]) if found else 0
        if len(self.buffer) < end + 4 + body:
            return
        request = bytes(self.buffer)
        self.buffer.clear()
        self.answer(request)

    def answer(self, request: bytes) -> None:
        if request.startswith(b"GET /v1/models"):
            model = {"id": "replay", "object": "model", "created": CREATED, "owned_by": "vllm"}
            self.send_json({"object": "list", "data": [{**model, "root": "replay"}]})
        elif request.startswith(b"GET /health"):
            self.send_json({})
        elif request.startswith(b"GET /span"):
            self.send_json(self.span.read())
        elif request.startswith(b"GET"):
            self.transport.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
        elif b'"stream":true' in request or b'"stream": true' in request:
            found = MAX_TOKENS.search(request)
            self.tokens = self.left = int(found[1]) if found else 16
            self.span.begin = self.span.begin or time.monotonic()
            self.due = self.loop.time() + self.first
            self.loop.call_at(self.due, self.tick)
        else:
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            self.send_json(completion([choice("length")], usage))

    def send_json(self, document: dict[str, object]) -> None:
        data = json.dumps(document).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        self.transport.write(head % len(data) + data)

    def tick(self) -> None:
        if self.transport.is_closing():
            return
        head = HEAD if self.left == self.tokens else b""
        self.left -= 1
        if self.left:
            self.transport.write(head + TOKEN)
            self.due += self.gap
            self.loop.call_at(self.due, self.tick)
        else:
            self.transport.write(head + LAST_TOKEN + ending(self.tokens))
            self.span.end = time.monotonic()
            self.span.tokens += self.tokens


async def serve(first: float, gap: float) -> None:
    loop, span = asyncio.get_running_loop(), Span()
    server = await loop.create_server(
        lambda: Replay(first, gap, span), "127.0.0.1", 0, backlog=4096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=float, default=0.05)
    parser.add_argument("--gap", type=float, default=0.1)
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.first, arguments.gap))
