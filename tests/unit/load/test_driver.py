"""The driver against a real socket: what was sent is what is recorded, and failures have names."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from contextlib import asynccontextmanager

import numpy as np
import pytest

from vllm_tuning.bench.load.driver import LoadDriver
from vllm_tuning.bench.load.lengths import RequestShape
from vllm_tuning.bench.load.prompts import RequestSource, Vocabulary
from vllm_tuning.bench.load.server import ServerAddress
from vllm_tuning.tuning.samples import RequestStatus

from .conftest import (
    HEAD,
    Served,
    TinyEngine,
    answer,
    event,
    frame,
    send_end,
    send_token,
    stream_all,
    token_event,
    until,
)

OK = RequestStatus.OK


def source(*, inputs=16, outputs=4, shared=0) -> RequestSource:
    return RequestSource(
        itertools.repeat(RequestShape(inputs, outputs)),
        model="tiny",
        vocabulary=Vocabulary(64, 512),
        shared_prefix_tokens=shared,
    )


@asynccontextmanager
async def driving(address: ServerAddress, *, deadline=10.0, **lengths):
    driver = LoadDriver(address, source(**lengths), deadline_seconds=deadline)
    try:
        yield driver
    finally:
        await driver.close()


async def send(driver: LoadDriver, count: int, every: float = 0.01) -> None:
    """Send exactly ``count`` requests and wait for their ends."""
    times = [(number + 1) * every for number in range(count)]
    driver.start_open(itertools.chain(times, itertools.repeat(1e9)))
    await until(lambda: len(driver.recorder) >= count)
    await driver.drained()
    driver.stop()


async def one(engine: TinyEngine, *, deadline=10.0, **lengths):
    async with driving(engine.address, deadline=deadline, **lengths) as driver:
        await send(driver, 1)
        return driver.recorder.snapshot(), driver.recorder


async def test_what_arrives_is_what_was_sent(tiny_engine):
    engine = await tiny_engine(first_seconds=0.03, gap_seconds=0.01)
    async with driving(engine.address, outputs=6) as driver:
        origin = driver._origin
        driver.start_closed(1)  # one after the other, so that rows and served requests pair up
        await until(lambda: driver.recorder.completed >= 20)
        driver.cancel()
        samples = driver.recorder.snapshot()
        samples = samples.select(samples.ok)
    assert samples.output_tokens.tolist() == [6] * 20
    assert samples.input_tokens.tolist() == [16] * 20
    for row, item in enumerate(engine.served[:20]):
        assert len(item.prompt) == 16
        sent = np.array(item.sent_at) - origin
        # A token is seen after it was sent, and before the next one was (unless the loop was late).
        assert samples.first_token_at[row] >= sent[0] - 1e-4
        assert samples.last_token_at[row] >= sent[-1] - 1e-4
        gaps = samples.gap_ms[samples.gap_row == row]
        assert len(gaps) == 5
        assert gaps.sum() == pytest.approx(
            (samples.last_token_at[row] - samples.first_token_at[row]) * 1e3, abs=0.01
        )
        assert gaps.max() == pytest.approx(samples.max_gap_ms[row], abs=1e-3)
        assert item.arrived_at - origin >= samples.sent_at[row] - 1e-4


async def test_latency_counts_from_the_scheduled_time_when_the_loop_is_late(tiny_engine):
    import time

    engine = await tiny_engine()
    async with driving(engine.address) as driver:
        asyncio.get_running_loop().call_later(0.02, time.sleep, 0.3)
        await send(driver, 5, every=0.03)
        samples = driver.recorder.snapshot()
    # Five were due at 0.03 ... 0.15 s, while the loop slept until 0.32 s.
    assert (samples.lateness_ms[:5] > 100).all()
    assert (samples.ttft_ms >= samples.lateness_ms).all()
    assert np.diff(samples.scheduled_at) == pytest.approx([0.03] * 4)


async def test_an_open_loop_does_not_wait_for_answers(tiny_engine):
    engine = await tiny_engine(first_seconds=0.5)
    async with driving(engine.address) as driver:
        await send(driver, 10, every=0.01)
        samples = driver.recorder.snapshot()
    assert samples.sent_at.max() < samples.first_token_at.min()


async def test_a_closed_loop_keeps_its_clients_busy_and_no_more(tiny_engine):
    engine = await tiny_engine(gap_seconds=0.002)
    async with driving(engine.address) as driver:
        driver.start_closed(3)
        most = 0
        while driver.recorder.completed < 30:
            await asyncio.sleep(0.005)
            most = max(most, engine.running)
        driver.stop()
        await driver.drained()
    assert most == 3
    assert engine.connections <= 4


async def test_connections_are_kept(tiny_engine):
    engine = await tiny_engine()
    async with driving(engine.address) as driver:
        driver.start_closed(1)
        await until(lambda: driver.recorder.completed >= 10)
    assert engine.connections == 1


# Every way to fail, by its name.


async def unavailable(engine, item, reader, writer):
    await answer(writer, 503, '{"error": {"message": "queue is full"}}')


async def too_many(engine, item, reader, writer):
    await answer(writer, 429, "slow down")


async def bad_request(engine, item, reader, writer):
    await answer(writer, 400, '{"error": {"message": "prompt is too long"}}')


async def server_error(engine, item, reader, writer):
    await answer(writer, 500, "boom")


async def bad_gateway(engine, item, reader, writer):
    await answer(writer, 502, "<html>Bad Gateway</html>")


async def error_event(engine, item, reader, writer):
    await send_token(engine, item, reader, writer)
    failed = event({"error": {"message": "EngineCore died", "code": 500}})
    writer.write(frame(failed) + frame(b"data: [DONE]\n\n") + b"0\r\n\r\n")


async def half_closed(engine, item, reader, writer):
    await send_token(engine, item, reader, writer)
    writer.write_eof()
    await reader.read()


async def reset(engine, item, reader, writer):
    await send_token(engine, item, reader, writer)
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def truncated_chunk(engine, item, reader, writer):
    writer.write(HEAD + b"fff\r\n" + token_event()[:10])
    writer.close()


async def garbage(engine, item, reader, writer):
    writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
    writer.close()


async def closed_without_a_word(engine, item, reader, writer):
    writer.close()


async def no_done(engine, item, reader, writer):
    await send_token(engine, item, reader, writer)
    writer.write(b"0\r\n\r\n")


async def too_short(engine, item, reader, writer):
    await send_token(engine, item, reader, writer, "stop")
    await send_end(item, writer)


async def no_token(engine, item, reader, writer):
    writer.write(HEAD)
    await send_end(item, writer)


async def not_json(engine, item, reader, writer):
    writer.write(HEAD + frame(b"data: {broken\n\n") + frame(b"data: [DONE]\n\n") + b"0\r\n\r\n")


async def never(engine, item, reader, writer):
    await reader.read()
    raise ConnectionResetError


async def stuck_after_one(engine, item, reader, writer):
    await send_token(engine, item, reader, writer)
    await reader.read()
    raise ConnectionResetError


@pytest.mark.parametrize(
    ("behaviour", "status", "said"),
    [
        (unavailable, RequestStatus.REJECTED, "queue is full"),
        (too_many, RequestStatus.REJECTED, "HTTP 429 slow down"),
        (bad_request, RequestStatus.CLIENT_ERROR, "prompt is too long"),
        (server_error, RequestStatus.SERVER_ERROR, "HTTP 500 boom"),
        (bad_gateway, RequestStatus.SERVER_ERROR, "HTTP 502"),
        (error_event, RequestStatus.SERVER_ERROR, "EngineCore died"),
        (half_closed, RequestStatus.BROKEN_STREAM, "closed by the server"),
        (reset, RequestStatus.BROKEN_STREAM, "connection lost"),
        (truncated_chunk, RequestStatus.BROKEN_STREAM, "closed by the server"),
        (garbage, RequestStatus.BROKEN_STREAM, "not HTTP"),
        (closed_without_a_word, RequestStatus.BROKEN_STREAM, "closed by the server"),
        (no_done, RequestStatus.INCOMPLETE, "no [DONE]"),
        (too_short, RequestStatus.INCOMPLETE, "1 of 4 tokens, finish_reason 'stop'"),
        (no_token, RequestStatus.INCOMPLETE, "0 of 4 tokens"),
        (not_json, RequestStatus.SERVER_ERROR, "not a completion"),
        (never, RequestStatus.TIMEOUT, "not done after"),
        (stuck_after_one, RequestStatus.TIMEOUT, "not done after"),
    ],
)
async def test_each_failure_is_counted_as_what_it_is(tiny_engine, behaviour, status, said):
    engine = await tiny_engine(behave=lambda _: behaviour)
    samples, recorder = await one(engine, deadline=0.5)
    assert RequestStatus(samples.status[0]) is status
    assert recorder.counts == {status: 1}
    [detail] = recorder.details
    assert said in detail


async def test_no_server(unused_tcp_port):
    address = ServerAddress(f"http://127.0.0.1:{unused_tcp_port}", "tiny")
    async with driving(address) as driver:
        await send(driver, 3)
        assert driver.recorder.counts == {RequestStatus.CONNECT_FAILED: 3}


async def test_a_failure_does_not_spin_a_closed_loop(tiny_engine):
    engine = await tiny_engine(behave=lambda _: server_error)
    async with driving(engine.address) as driver:
        driver.start_closed(1)
        await until(lambda: len(driver.recorder) >= 4)
        driver.stop()
        await driver.drained()
        samples = driver.recorder.snapshot()
    assert np.diff(samples.sent_at).min() >= 0.09


async def test_an_idle_connection_closed_by_the_server_costs_no_request(tiny_engine):
    used = set()

    async def once_per_connection(engine: TinyEngine, item: Served, reader, writer):
        # As when a keep-alive timeout strikes while the next request is on its way.
        if writer in used:
            writer.transport.abort()
            return
        used.add(writer)
        await stream_all(engine, item, reader, writer)

    engine = await tiny_engine(behave=lambda _: once_per_connection)
    async with driving(engine.address) as driver:
        driver.start_closed(1)
        await until(lambda: driver.recorder.completed >= 8)
        driver.stop()
        await driver.drained()
        assert driver.recorder.counts == {OK: len(driver.recorder)}
    assert len(engine.served) > len(driver.recorder)


async def test_cancelled_requests_are_neither_done_nor_failed(tiny_engine):
    engine = await tiny_engine(first_seconds=0.05, gap_seconds=0.05)
    async with driving(engine.address, outputs=100) as driver:
        driver.start_closed(3)
        await until(lambda: driver.recorder.chunks_seen >= 6)
        pending = driver.recorder.snapshot()
        driver.stop()
        driver.cancel()
        await driver.drained()
        samples = driver.recorder.snapshot()
        await until(lambda: not engine.running)
    assert (pending.status == RequestStatus.PENDING).all()
    assert (pending.output_tokens == pending.chunks).all()
    assert (samples.status == RequestStatus.CANCELLED).all()
    assert not samples.failed.any()
    assert engine.finished["abort"] == 3


async def test_a_response_without_length_ends_with_its_connection(tiny_engine):
    async def old_http(engine, item, reader, writer):
        writer.write(b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for _ in range(item.max_tokens):
            writer.write(token_event())
        writer.write(b"data: [DONE]\n\n")
        writer.close()

    engine = await tiny_engine(behave=lambda _: old_http)
    samples, _ = await one(engine)
    assert samples.ok.all()
    assert samples.output_tokens[0] == 4  # chunks, as there is no usage


async def test_usage_outvotes_chunks(tiny_engine):
    async def two_tokens_a_chunk(engine, item, reader, writer):
        writer.write(HEAD + frame(token_event()) + frame(token_event("length")))
        end = {"choices": [], "usage": {"completion_tokens": 4, "prompt_tokens": 16}}
        end["usage"]["prompt_tokens_details"] = {"cached_tokens": 7}
        writer.write(frame(event(end)) + frame(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    engine = await tiny_engine(behave=lambda _: two_tokens_a_chunk)
    samples, _ = await one(engine)
    assert (samples.status[0], samples.output_tokens[0], samples.chunks[0]) == (OK, 4, 2)
    assert samples.cached_tokens[0] == 7


async def test_key_and_base_path_are_sent(tiny_engine):
    engine = await tiny_engine(api_key="s3cret", base_path="/team/a")
    samples, _ = await one(engine)
    assert samples.ok.all()
    wrong = ServerAddress(engine.address.base_url, "tiny", api_key="other")
    async with driving(wrong) as driver:
        await send(driver, 1)
        assert driver.recorder.counts == {RequestStatus.CLIENT_ERROR: 1}
        assert "401" in next(iter(driver.recorder.details))
