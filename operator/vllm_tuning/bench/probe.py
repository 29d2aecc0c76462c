"""One probe from its first question to the server to its ``ProbeResult``."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import aiohttp

from vllm_tuning.bench.assemble import Observed, assemble
from vllm_tuning.bench.load.driver import LoadDriver
from vllm_tuning.bench.load.facts import ask_facts
from vllm_tuning.bench.load.selfwatch import LoopWatch
from vllm_tuning.bench.load.server import ServerAddress
from vllm_tuning.bench.measurement import Measurement, Moment, Phase
from vllm_tuning.bench.metrics.deltas import engine_deltas
from vllm_tuning.bench.metrics.scraper import MetricsScraper, Reading
from vllm_tuning.bench.progress import EngineProgress
from vllm_tuning.bench.rehearsal import rehearse
from vllm_tuning.bench.validity import AtStop, Invalid, ValidityLimits, finished_well
from vllm_tuning.bench.workload import ProbeWorkload
from vllm_tuning.tuning.model import GPUActivity, Metric, Probe, ProbeResult, Problem
from vllm_tuning.tuning.percentiles import summarize

IDLE_SECONDS = 1.0
"""How long the client is watched without load, to know what lateness this machine has by itself."""

TRANSIT_SECONDS = 3.0
"""How long a response may be under way after the engine has counted it, on a busy machine."""

TRANSIT_POLL_SECONDS = 0.02

QUIET_POLL_SECONDS = 0.2

PROGRESS_SECONDS = 5.0
"""How often progress is told."""

TAIL_LEAST_SECONDS = 10.0
"""The last requests of the windows have a window's time to end, at least so much."""

DEADLINE_SECONDS = (60.0, 1800.0)
"""Least and greatest deadline of a request."""

SCRAPES_PER_WINDOW = 20
SCRAPE_SECONDS = (0.25, 1.0)
"""Shortest and longest interval of metrics readings: rendering a page costs the engine's API
process milliseconds."""


@dataclass(frozen=True, slots=True)
class LiveProgress:
    """What can be told while a probe runs."""

    phase: Phase
    completed: int
    in_flight: int
    ttft_p95_ms: float | None
    tpot_p95_ms: float | None


HookRecord = Callable[[], Awaitable[list[dict[str, Any]] | None]]
"""Gives the live-limits hook's own record of every rank; ``None`` = no hook."""

GPUSamples = Callable[[float, float], Awaitable[GPUActivity | None]]
"""Gives the GPUs' activity between two Unix times in seconds; ``None`` = not measured."""


async def run_probe(
    probe: Probe,
    *,
    problem: Problem,
    server: ServerAddress,
    on_progress: Callable[[LiveProgress], None],
    hook_record: HookRecord,
    gpu_samples: GPUSamples,
    limits: ValidityLimits | None = None,
) -> ProbeResult:
    """Measure one load point on a running server whose limits are those of ``probe`` already.

    Raises ``TraceError`` for a workload whose trace cannot be read, ``ServerRefusedError`` if the
    server does not take a benchmark's requests at all; every other outcome, a dead or hung engine
    included, is a result (``INVALID`` with its reason).
    """
    workload = ProbeWorkload(problem.workload, probe)
    observed = Observed(
        probe,
        problem.slos,
        limits or ValidityLimits(),
        predictable_prefix=workload.predictable_prefix,
    )
    async with _session(server) as session, _loop_watch() as watch:
        rehearse(probe, problem.slos)
        facts = await ask_facts(session, server)
        source = workload.source(model=server.model, facts=facts)
        driver = LoadDriver(server, source, deadline_seconds=deadline_seconds(problem))
        observed.recorder = driver.recorder
        scraper = MetricsScraper(
            session, server, clock=driver.clock, interval_seconds=_scrape_interval(probe)
        )
        measurement = Measurement(
            probe,
            problem.slos,
            workload,
            driver,
            EngineProgress(scraper, hang_seconds=observed.limits.hang_seconds),
            tail_seconds=max(probe.window_seconds, TAIL_LEAST_SECONDS),
            on_tick=_Teller(driver, on_progress),
            on_edge=scraper.read,
            preemptions=lambda start, end: engine_deltas(scraper.readings, start, end).preemptions,
        )
        try:
            observed.before, observed.invalid = await _quiet(
                scraper, "before the load", observed.limits.quiet_seconds
            )
            idle_since = perf_counter()
            await asyncio.sleep(IDLE_SECONDS)
            observed.idle = watch.health(idle_since, perf_counter())
            observed.hook_before = await hook_record()
            if observed.invalid is None:
                with _frozen_heap():
                    await _load(observed, measurement, driver=driver, scraper=scraper, watch=watch)
                observed.hook_after = await hook_record()
                begin, end = _unix(observed.span, driver)
                observed.measured_from = begin if observed.windows else None
                observed.gpu = await gpu_samples(begin, end)
        finally:
            await scraper.stop()
            await driver.close()
    return assemble(observed)


async def _load(
    observed: Observed,
    measurement: Measurement,
    *,
    driver: LoadDriver,
    scraper: MetricsScraper,
    watch: LoopWatch,
) -> None:
    began = driver.clock()
    scraper.start()
    await measurement.run()
    observed.windows = measurement.windows
    observed.readings = list(scraper.readings)
    offset = perf_counter() - driver.clock()
    observed.busy = watch.health(*(offset + at for at in observed.span))
    observed.at_stop = await _at_stop(observed, scraper, driver)
    await measurement.drain()
    observed.seconds = driver.clock() - began
    await scraper.stop()
    observed.after, unquiet = await _quiet(
        scraper, "after the drain", observed.limits.quiet_seconds
    )
    observed.invalid = measurement.invalid or unquiet
    observed.judgement = await measurement.judgement()


async def _at_stop(
    observed: Observed, scraper: MetricsScraper, driver: LoadDriver
) -> AtStop | None:
    """Compare counts before anything is cancelled; no request is sent any more.

    What the engine has finished is given ``TRANSIT_SECONDS`` to arrive.
    """
    driver.stop()
    reading = await scraper.read() or await scraper.read()
    if reading is None or observed.before is None:
        return None
    finished = finished_well(observed.before.page, reading.page) or 0.0
    end = perf_counter() + TRANSIT_SECONDS
    while perf_counter() < end:
        if driver.recorder.answered >= finished:
            break
        await asyncio.sleep(TRANSIT_POLL_SECONDS)
    return AtStop(reading.page, driver.recorder.answered)


class _Teller:
    """Tells progress every ``PROGRESS_SECONDS``, by what the recorder knows."""

    def __init__(self, driver: LoadDriver, tell: Callable[[LiveProgress], None]) -> None:
        self._driver = driver
        self._tell = tell
        self._told_at = -PROGRESS_SECONDS

    def __call__(self, moment: Moment) -> None:
        if moment.at - self._told_at < PROGRESS_SECONDS:
            return
        self._told_at = moment.at
        samples = self._driver.recorder.snapshot()
        self._tell(
            LiveProgress(
                phase=moment.phase,
                completed=self._driver.recorder.completed,
                in_flight=len(self._driver.active),
                ttft_p95_ms=summarize(samples.ttft_ms).p95,
                tpot_p95_ms=summarize(samples.tpot_ms).p95,
            )
        )


async def _quiet(
    scraper: MetricsScraper, when: str, seconds: float
) -> tuple[Reading | None, Invalid | None]:
    """Wait until the engine runs nothing; return its page then, and what is wrong if it does not.

    An engine without a metrics page cannot be asked: it is given the benefit of the doubt before
    the load, and is ``EngineUnreachable`` if the page was there once.
    """
    end = perf_counter() + seconds
    while True:
        reading = await scraper.read()
        page = reading.page if reading else None
        if page is not None and not (page.running or page.waiting):
            return reading, None
        if reading is None and not scraper.readings:
            return None, None
        if perf_counter() >= end:
            break
        await asyncio.sleep(QUIET_POLL_SECONDS)
    if page is None:
        return None, Invalid("EngineUnreachable", f"the metrics page cannot be read {when}")
    return reading, Invalid(
        "OtherLoad",
        f"{when} the engine still has {page.running or 0:.0f} requests running and "
        f"{page.waiting or 0:.0f} waiting, none of them ours",
    )


def deadline_seconds(problem: Problem) -> float:
    """Return how long a request may take: four times what the SLOs allow it at its longest."""
    workload = problem.workload.output_tokens
    tokens = workload.maximum or workload.mean * (1 + 4 * workload.cv_percent / 100)
    allowed = 0.0
    for slo in problem.slos:
        per_token = slo.metric in {Metric.TPOT, Metric.ITL}
        allowed += (slo.max_milliseconds or 0) / 1e3 * (tokens if per_token else 1)
    least, greatest = DEADLINE_SECONDS
    return min(max(least, 4 * allowed), greatest)


def _scrape_interval(probe: Probe) -> float:
    least, greatest = SCRAPE_SECONDS
    return min(max(least, probe.window_seconds / SCRAPES_PER_WINDOW), greatest)


def _unix(span: tuple[float, float], driver: LoadDriver) -> tuple[float, float]:
    offset = time.time() - driver.clock()
    return span[0] + offset, span[1] + offset


@asynccontextmanager
async def _session(server: ServerAddress) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=server.ssl_context() or True)
    async with aiohttp.ClientSession(connector=connector, headers=server.headers()) as session:
        yield session


@asynccontextmanager
async def _loop_watch() -> AsyncIterator[LoopWatch]:
    watch = LoopWatch()
    watch.start()
    try:
        yield watch
    finally:
        await watch.stop()


@contextmanager
def _frozen_heap() -> Iterator[None]:
    """Keep what exists out of garbage collections, which would stop the loop for its size."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
