"""One probe in virtual time, by the protocol of the real one.

The client here is perfect: never late, never the bottleneck. Columns, verdict and rates are those
of the real probe.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from vllm_tuning.bench import rates
from vllm_tuning.bench.load.lengths import draw_lengths
from vllm_tuning.bench.measurement import (
    LOOKS_PER_WINDOW,
    TICK_SECONDS,
    WARMUP_E2E,
    WARMUP_LEAST,
    ramp_seconds,
)
from vllm_tuning.bench.probe import TAIL_LEAST_SECONDS
from vllm_tuning.bench.sim.engine import EngineCore
from vllm_tuning.bench.sim.frontend import FrontendCost
from vllm_tuning.bench.sim.virtual import VirtualLoad
from vllm_tuning.bench.workload import ProbeWorkload
from vllm_tuning.tuning.model import (
    EngineDeltas,
    OpenLoad,
    Probe,
    ProbeResult,
    Problem,
    Workload,
)
from vllm_tuning.tuning.percentiles import summarize
from vllm_tuning.tuning.samples import Window
from vllm_tuning.tuning.verdict import Judgement, judge


class VirtualProbe:
    """Measures one load point on a core whose limits are those of the probe already."""

    def __init__(
        self,
        probe: Probe,
        problem: Problem,
        core: EngineCore,
        *,
        frontend: FrontendCost,
        origin: float,
        first_id: int,
    ) -> None:
        """``origin`` is the core's time at which the probe begins; ids count from ``first_id``.

        Raises:
            ValueError: the workload is a trace; the twin knows only declared lengths.
        """
        self.load = load_of(
            core,
            problem.workload,
            seed=probe.seed,
            frontend=frontend,
            origin=origin,
            first_id=first_id,
        )
        self._probe = probe
        self._problem = problem
        self._core = core
        self._windows: list[Window] = []
        scheduler = core.scheduler
        self._cache_before = (scheduler.prefix_queries, scheduler.prefix_hits)

    def run(self) -> ProbeResult:
        """Warm up, measure, judge."""
        probe, load = self._probe, self.load
        ramp = ramp_seconds(probe)
        if isinstance(probe.load, OpenLoad):
            workload = ProbeWorkload(self._problem.workload, probe)
            load.start_open(workload.arrivals(probe.load, ramp_seconds=ramp))
        else:
            load.start_closed(probe.load.concurrency, ramp_seconds=ramp)
        load.run_until(self._warm_up())
        ended_by = self._measure()
        load.cancel_rest()
        return self._result(ended_by or self._judge(final=True))

    def _warm_up(self) -> float:
        """When the warm-up ends, by the rule of the real probe."""
        probe = self._probe
        if probe.warmup_seconds is not None:
            return probe.warmup_seconds
        at = min(WARMUP_LEAST[0] * probe.window_seconds, WARMUP_LEAST[1])
        enough = 1 if isinstance(probe.load, OpenLoad) else probe.load.concurrency
        while at < probe.window_seconds:
            self.load.run_until(at)
            longest = self.load.longest_seconds
            if self.load.answered >= enough and at >= WARMUP_E2E * longest:
                return at
            at += TICK_SECONDS
        return probe.window_seconds

    def _measure(self) -> Judgement | None:
        """Run the windows; returned is the look that ended the probe early, if one did."""
        probe, load = self._probe, self.load
        for number in range(probe.windows):
            if number:
                self._core.clock.new_window()
            if (ended_by := self._window(load.now)) is not None:
                return ended_by
        load.run_until_answered(load.now, limit=max(probe.window_seconds, TAIL_LEAST_SECONDS))
        return None

    def _window(self, start: float) -> Judgement | None:
        probe, load = self._probe, self.load
        looks = LOOKS_PER_WINDOW if probe.stop_on_fail else 1
        self._windows.append(Window(start, start, complete=False))
        for look in range(1, looks + 1):
            load.run_until(start + probe.window_seconds * look / looks)
            self._windows[-1] = Window(start, load.now, complete=look == looks)
            if probe.stop_on_fail:
                judgement = self._judge(final=False)
                if judgement.ends_probe:
                    return judgement
        return None

    def _judge(self, *, final: bool) -> Judgement:
        return judge(
            self.load.samples(),
            self._problem.slos,
            self._probe,
            windows=self._windows,
            in_flight=self.load.in_flight_series(),
            now=None if final else self.load.now,
            preemptions=self._deltas().preemptions,
        )

    def _deltas(self) -> EngineDeltas:
        """What the engine did within the windows."""
        log = self.load.log
        ends = np.asarray(log.ended_at)
        begin = int(np.searchsorted(ends, self._windows[0].start))
        stop = int(np.searchsorted(ends, self._windows[-1].end))
        if stop <= begin:
            return EngineDeltas(preemptions=0, steps=0)
        inside = slice(begin, stop)
        seconds = np.diff(ends[inside], prepend=self._windows[0].start)
        running = np.asarray(log.running[inside])
        waiting = np.asarray(log.waiting[inside])
        tokens = log.tokens[inside]
        pool = self._core.scheduler.pool
        return EngineDeltas(
            preemptions=sum(log.preempted[inside]),
            running_mean=float(np.average(running, weights=seconds)),
            running_max=int(running.max()),
            waiting_mean=float(np.average(waiting, weights=seconds)),
            waiting_max=int(waiting.max()),
            kv_usage_peak_fraction=(max(log.kv_blocks[inside]) + pool.held) / pool.total,
            steps=stop - begin,
            tokens_per_step=sum(tokens) / (stop - begin),
            hook_running_max=int(running.max()),
            hook_scheduled_tokens_max=max(tokens),
        )

    def _prefix_hits(self) -> float | None:
        scheduler = self._core.scheduler
        queries = scheduler.prefix_queries - self._cache_before[0]
        return (scheduler.prefix_hits - self._cache_before[1]) / queries if queries else None

    def _result(self, judgement: Judgement) -> ProbeResult:
        load = self.load
        samples = load.samples()
        measured = rates.rows_in(samples, self._windows)
        begin, end = self._windows[0].start, self._windows[-1].end
        completed = int(samples.ok.sum())
        return ProbeResult(
            probe=self._probe,
            verdict=judgement.verdict,
            reason=judgement.reason,
            message=judgement.message,
            seconds=load.now,
            measured_seconds=end - begin,
            sent=load.sent,
            completed=completed,
            cancelled=load.sent - completed,
            request_rate=rates.completion_rate(samples, begin, end),
            output_tokens_per_second=rates.output_token_rate(samples, begin, end),
            input_tokens_per_second=rates.input_token_rate(samples, begin, end),
            goodput_fraction=rates.goodput_fraction(self._problem.slos, measured),
            slos=judgement.slos,
            engine=replace(self._deltas(), prefix_hit_fraction=self._prefix_hits()),
            send_lateness_p99_ms=0.0,
            client_cpu_fraction=0.0,
            ttft=summarize(measured.ttft_ms),
            tpot=summarize(measured.tpot_ms),
            itl=summarize(measured.gap_ms),
            max_gap=summarize(measured.max_gap_ms),
            e2e=summarize(measured.e2e_ms),
        )


def load_of(
    core: EngineCore,
    workload: Workload,
    *,
    seed: int,
    frontend: FrontendCost,
    origin: float,
    first_id: int,
) -> VirtualLoad:
    """Return a load of the workload's requests that has not begun.

    Raises:
        ValueError: the workload is a trace; the twin knows only declared lengths.
    """
    return VirtualLoad(
        core,
        _lengths(workload, seed),
        frontend=frontend,
        origin=origin,
        shared_prefix_tokens=workload.input_tokens.mean * workload.shared_prefix_percent // 100,
        first_id=first_id,
    )


def _lengths(workload: Workload, seed: int) -> Iterator[tuple[int, int]]:
    if workload.trace_path is not None:
        msg = "the simulated server replays no traces: declare the lengths"
        raise ValueError(msg)
    inputs = draw_lengths(workload.input_tokens, seed=seed, stream=1)
    outputs = draw_lengths(workload.output_tokens, seed=seed, stream=2)
    return zip(inputs, outputs, strict=True)
