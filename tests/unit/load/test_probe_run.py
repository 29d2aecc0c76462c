"""Whole probes against the tiny engine: what they say, when they end, what they leave behind."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from vllm_tuning.bench.load.facts import ServerRefusedError
from vllm_tuning.tuning.model import (
    SLO,
    ClosedLoad,
    Lengths,
    Metric,
    OpenLoad,
    Purpose,
    Verdict,
    Workload,
)

from .conftest import TinyEngine, answer, stream_all, until
from .probing import measure, probe, problem


def quiet(engine: TinyEngine) -> bool:
    return engine.running == engine.waiting == 0


async def test_an_open_loop_is_measured(tiny_engine):
    engine = await tiny_engine()
    result, told = await measure(engine, probe(OpenLoad(40.0), window_seconds=2.0))
    assert result.verdict is Verdict.UNDECIDED, result.message
    assert result.reason == "LooksWithinSLO"
    assert result.sent == result.completed + result.failed + result.cancelled
    assert result.failed == 0
    assert result.measured_seconds == pytest.approx(2.0)
    assert result.ttft.count > 40
    assert result.itl.count == 7 * result.ttft.count
    assert result.goodput_fraction == 1.0
    # 32 prompt and 8 output tokens a request.
    rate = result.output_tokens_per_second
    assert result.input_tokens_per_second == pytest.approx(4 * rate, rel=0.2)
    assert result.request_rate == pytest.approx(rate / 8, rel=0.2)
    assert result.engine.steps > 100
    assert result.engine.preemptions == 0
    assert told[0].phase == "warmup"
    assert quiet(engine)


async def test_a_closed_loop_is_measured(tiny_engine):
    engine = await tiny_engine()
    result, _ = await measure(engine, probe(ClosedLoad(4)))
    assert result.verdict is Verdict.UNDECIDED, result.message
    assert result.engine.running_max == 4
    assert 2 <= result.engine.running_mean <= 4
    assert quiet(engine)


async def test_the_same_seed_sends_the_same_load_but_never_the_same_prompts(tiny_engine):
    engine = await tiny_engine()
    workload = Workload(Lengths(32, cv_percent=50, maximum=64), Lengths(4, cv_percent=50))
    asked = probe(OpenLoad(40.0), window_seconds=0.5)
    await measure(engine, asked, of=problem(workload=workload))
    first = Counter((len(item.prompt), item.max_tokens) for item in engine.served[:20])
    prompts = {tuple(item.prompt) for item in engine.served}
    engine.served.clear()
    await measure(engine, asked, of=problem(workload=workload))
    second = Counter((len(item.prompt), item.max_tokens) for item in engine.served[:20])
    # Two requests that are due at nearly the same time may arrive in either order.
    assert (first & second).total() >= 18
    assert len(first) > 10
    assert not prompts & {tuple(item.prompt) for item in engine.served if len(item.prompt) > 4}


async def test_a_hopeless_load_fails_early(tiny_engine):
    engine = await tiny_engine(first_seconds=2.0)
    asked = probe(OpenLoad(60.0), window_seconds=5.0, windows=3)
    slow = problem(slos=(SLO(Metric.TTFT, 95, 1000),))
    result, _ = await measure(engine, asked, of=slow)
    assert (result.verdict, result.reason) == (Verdict.FAIL, "SLOViolated"), result.message
    assert result.measured_seconds < 5.0
    assert result.slos[0].attainment < 0.5
    assert quiet(engine)


async def test_a_queue_that_grows_is_a_fail(tiny_engine):
    engine = await tiny_engine(first_seconds=0.1, slots=3)
    asked = probe(OpenLoad(60.0), window_seconds=2.0)
    result, _ = await measure(engine, asked, of=problem(slos=(SLO(Metric.TTFT, 90, 60_000),)))
    assert (result.verdict, result.reason) == (Verdict.FAIL, "QueueGrowing"), result.message
    assert result.engine.waiting_max > 20
    assert quiet(engine)


@pytest.mark.parametrize(("purpose", "windows"), [(Purpose.CONFIRM, 1), (Purpose.BASELINE, 2)])
async def test_a_confirmation_that_is_hopeless_after_a_window_ends_there(
    tiny_engine, purpose, windows
):
    """A tenth of the requests miss a p95: no FAIL yet in so few, and no PASS to come either."""

    async def slowly(engine, item, reader, writer):
        await asyncio.sleep(0.4)
        await stream_all(engine, item, reader, writer)

    engine = await tiny_engine(behave=lambda item: slowly if item.number % 10 == 9 else stream_all)
    asked = probe(OpenLoad(60.0), decide=True, windows=2, purpose=purpose, alpha=0.01)
    result, _ = await measure(engine, asked, of=problem(slos=(SLO(Metric.TTFT, 95, 390),)))
    assert result.verdict is not Verdict.PASS
    assert result.measured_seconds == pytest.approx(1.0 * windows, abs=0.3)


async def test_failures_are_misses_and_said(tiny_engine):
    async def refuse(engine, item, reader, writer):
        await answer(writer, 503, "queue is full")

    engine = await tiny_engine(behave=lambda _: refuse)
    result, _ = await measure(engine, probe(OpenLoad(60.0)))
    assert result.verdict is Verdict.FAIL
    assert "queue is full" in result.message
    assert result.completed == 0
    assert result.failed + result.cancelled == result.sent
    assert result.ttft.count == 0


@pytest.mark.parametrize(("allowed", "verdict"), [(10, Verdict.FAIL), (60, Verdict.UNDECIDED)])
async def test_preemptions_are_counted_by_the_engine(tiny_engine, allowed, verdict):
    async def preempt(engine, item, reader, writer):
        engine.preemptions += item.number % 3 == 0
        await stream_all(engine, item, reader, writer)

    engine = await tiny_engine(behave=lambda _: preempt)
    slos = (SLO(Metric.PREEMPTION_RATE, max_percent=allowed),)
    result, _ = await measure(
        engine, probe(OpenLoad(60.0), window_seconds=2.0), of=problem(slos=slos)
    )
    assert result.verdict is verdict, result.message
    assert result.engine.preemptions == pytest.approx(result.completed / 3, rel=0.5)


async def test_a_server_that_takes_no_requests_is_refused(tiny_engine):
    engine = await tiny_engine(api_key="key")
    engine.api_key = "another"
    address = engine.address
    engine.api_key = "key"
    with pytest.raises(ServerRefusedError, match="401"):
        await measure(type("Elsewhere", (), {"address": address}), probe(OpenLoad(5.0)))


async def test_prompts_use_only_tokens_that_the_model_has(tiny_engine):
    engine = await tiny_engine(vocabulary=300)
    result, _ = await measure(engine, probe(OpenLoad(30.0), window_seconds=0.5))
    assert result.failed == 0
    tokens = {token for item in engine.served for token in item.prompt}
    assert max(tokens) < 300
    assert len(tokens) > 100


async def test_cancelling_a_probe_leaves_nothing_running(tiny_engine):
    engine = await tiny_engine(first_seconds=0.5)
    task = asyncio.create_task(measure(engine, probe(OpenLoad(60.0), window_seconds=30.0)))
    await until(lambda: engine.running)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: quiet(engine))
