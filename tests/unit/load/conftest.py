"""A tiny engine on a real socket: it does what it is told, and stamps what it really sent."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter

import pytest

from vllm_tuning.bench.load.server import ServerAddress

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait until another object's state is as wanted."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the state is not ours to put an event into
            await asyncio.sleep(0.005)


def frame(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(document: object) -> bytes:
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def token_event(finish: str | None = None) -> bytes:
    choice = {"index": 0, "text": " tok", "logprobs": None, "finish_reason": finish}
    return event({"id": "cmpl-1", "object": "text_completion", "choices": [choice]})


@dataclass
class Served:
    """What the engine knows of one request."""

    number: int
    prompt: list[int]
    max_tokens: int
    arrived_at: float
    sent_at: list[float] = field(default_factory=list)
    finished: bool = False


Behaviour = Callable[["TinyEngine", Served, asyncio.StreamReader, asyncio.StreamWriter], Awaitable]


@dataclass
class TinyEngine:
    """Streams ``max_tokens`` tokens: the first after ``first_seconds``, then every ``gap``."""

    first_seconds: float = 0.01
    gap_seconds: float = 0.005
    vocabulary: int = 512
    slots: int = 10_000
    base_path: str = ""
    api_key: str | None = None
    tls: ssl.SSLContext | None = None
    ca_file: str | None = None
    behave: Callable[[Served], Behaviour] = lambda _: stream_all
    served: list[Served] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    running: int = 0
    waiting: int = 0
    steps: int = 0
    tokens: int = 0
    finished: Counter[str] = field(default_factory=Counter)
    preemptions: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    started_at: float = field(default_factory=time.time)
    metrics_down: bool = False
    hung: asyncio.Event = field(default_factory=asyncio.Event)
    connections: int = 0

    async def start(self) -> None:
        self._free = asyncio.Semaphore(self.slots)
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()

    @property
    def address(self) -> ServerAddress:
        scheme, host = ("https", "localhost") if self.tls else ("http", "127.0.0.1")
        url = f"{scheme}://{host}:{self.port}{self.base_path}"
        return ServerAddress(url, "tiny", api_key=self.api_key, ca_file=self.ca_file)

    def restart(self) -> None:
        """Forget everything, as a new process would."""
        self.started_at = time.time() + 5
        self.steps = self.tokens = self.prefix_queries = self.prefix_hits = 0
        self.finished.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        # Cancelled = the test is over.
        over = (ConnectionError, asyncio.IncompleteReadError, TimeoutError, asyncio.CancelledError)
        with suppress(*over):
            while not writer.is_closing() and await self._one(reader, writer):
                pass
        self._writers.discard(writer)
        writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.heads.append(head)
        lines = head.split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:] if line)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        path = lines[0].split(" ")[1]
        if self.api_key and headers.get("authorization") != f"bearer {self.api_key}".lower():
            await answer(writer, 401, '{"error": "Unauthorized"}')
        elif path == f"{self.base_path}/metrics" and not self.metrics_down:
            await answer(writer, 200, self.page())
        elif path == f"{self.base_path}/health":
            await answer(writer, 200, "")
        elif path == f"{self.base_path}/v1/completions":
            return await self._complete(json.loads(body), reader, writer)
        else:
            await answer(writer, 404, "not found")
        return True

    async def _complete(self, request, reader, writer) -> bool:
        if max(request["prompt"]) >= self.vocabulary:
            await answer(writer, 400, '{"error": {"message": "Token id is out of vocabulary"}}')
            return True
        if not request.get("stream"):
            await answer(writer, 200, "{}")
            return True
        item = Served(len(self.served), request["prompt"], request["max_tokens"], perf_counter())
        self.served.append(item)
        self.prefix_queries += len(item.prompt)
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            if reader.at_eof():
                raise ConnectionResetError
            await self.behave(item)(self, item, reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            # A client may go between its last token and the end of its stream: that is no abort.
            if not item.finished:
                self.finished["abort"] += 1
            raise
        finally:
            self.running -= 1
            self._free.release()
        return True

    def finish(self, item: Served) -> None:
        """Count a request that has all its tokens, whether or not its client is still there."""
        item.finished = True
        self.finished["length"] += 1

    async def step(self, item: Served, reader: asyncio.StreamReader) -> None:
        """Wait for the next token as an engine does: not at all while hung, not for the gone."""
        await asyncio.sleep(self.gap_seconds if item.sent_at else self.first_seconds)
        await until(lambda: not self.hung.is_set() or reader.at_eof(), seconds=300)
        if reader.at_eof():
            raise ConnectionResetError
        self.steps += 1
        self.tokens += 1

    def page(self) -> str:
        label = '{engine="0",model_name="tiny"}'
        finished = "".join(
            f'vllm:request_success_total{{engine="0",finished_reason="{reason}",'
            f'model_name="tiny"}} {count}\n'
            for reason, count in self.finished.items()
        )
        return (
            f"process_start_time_seconds {self.started_at}\n"
            f"vllm:num_requests_running{label} {self.running}\n"
            f"vllm:num_requests_waiting{label} {self.waiting}\n"
            f"vllm:kv_cache_usage_perc{label} {self.running / 100}\n"
            f"vllm:num_preemptions_total{label} {self.preemptions}\n"
            f"vllm:generation_tokens_total{label} {self.tokens}\n"
            f"vllm:iteration_tokens_total_count{label} {self.steps}\n"
            f"vllm:iteration_tokens_total_sum{label} {self.tokens}\n"
            f"vllm:prefix_cache_queries_total{label} {self.prefix_queries}\n"
            f"vllm:prefix_cache_hits_total{label} {self.prefix_hits}\n"
            f'vllm:cache_config_info{{block_size="16",engine="0"}} 1\n'
        ) + finished


async def answer(writer: asyncio.StreamWriter, status: int, body: str) -> None:
    data = body.encode()
    writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n%s" % (status, len(data), data))
    await writer.drain()


async def send_token(engine: TinyEngine, item: Served, reader, writer, finish=None) -> None:
    await engine.step(item, reader)
    writer.write((b"" if item.sent_at else HEAD) + frame(token_event(finish)))
    item.sent_at.append(perf_counter())
    await writer.drain()


async def send_end(
    item: Served, writer: asyncio.StreamWriter, *, cached: int | None = None
) -> None:
    usage = {"prompt_tokens": len(item.prompt), "completion_tokens": len(item.sent_at)}
    if cached is not None:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    end = event({"choices": [], "usage": usage})
    writer.write(frame(end) + frame(b"data: [DONE]\n\n") + b"0\r\n\r\n")
    await writer.drain()


async def stream_all(engine: TinyEngine, item: Served, reader, writer) -> None:
    for number in range(item.max_tokens):
        last = number == item.max_tokens - 1
        await send_token(engine, item, reader, writer, "length" if last else None)
    engine.finish(item)
    await send_end(item, writer)


@pytest.fixture
async def tiny_engine() -> AsyncIterator[Callable[..., Awaitable[TinyEngine]]]:
    """Start tiny engines: ``await tiny_engine(first_seconds=0.1, ...)``."""
    started: list[TinyEngine] = []

    async def start(**settings: object) -> TinyEngine:
        engine = TinyEngine(**settings)  # type: ignore[arg-type] # the settings are its fields
        await engine.start()
        started.append(engine)
        return engine

    yield start
    for engine in started:
        await engine.stop()
