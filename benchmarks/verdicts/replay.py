"""A recorded run read again as a probe would have measured it: the protocol of
``bench.measurement``, with the clock of the record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from batchqueue import Run

from vllm_tuning.bench.measurement import (
    LOOKS_PER_WINDOW,
    TICK_SECONDS,
    WARMUP_E2E,
    WARMUP_LEAST,
)
from vllm_tuning.bench.probe import TAIL_LEAST_SECONDS
from vllm_tuning.tuning.model import SLO, Probe, ProbeResult
from vllm_tuning.tuning.percentiles import summarize
from vllm_tuning.tuning.samples import RequestSamples, RequestStatus, Window
from vllm_tuning.tuning.verdict import Judgement, judge

IN_FLIGHT_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run as it was known at any time of it."""

    run: Run

    def warm_at(self, window_seconds: float) -> float:
        """When the warm-up ends, by the rule of the real probe."""
        run = self.run
        latency = run.last_token_at - run.scheduled_at
        order = np.argsort(run.last_token_at)
        ended, longest = run.last_token_at[order], np.maximum.accumulate(latency[order])
        at = min(WARMUP_LEAST[0] * window_seconds, WARMUP_LEAST[1])
        while at < window_seconds:
            seen = int(np.searchsorted(ended, at, side="right"))
            if seen and at >= WARMUP_E2E * longest[seen - 1]:
                return at
            at += TICK_SECONDS
        return window_seconds

    def known_at(self, now: float, *, since: float = 0.0) -> RequestSamples:
        """Columns of what was sent from ``since`` on, as the client knows them at ``now``."""
        run = self.run
        rows = slice(
            int(np.searchsorted(run.scheduled_at, since)),
            int(np.searchsorted(run.scheduled_at, now, side="right")),
        )
        first, last = run.first_token_at[rows], run.last_token_at[rows]
        ended = last <= now
        return RequestSamples.of(
            scheduled_at=run.scheduled_at[rows],
            first_token_at=np.where(first <= now, first, np.nan),
            last_token_at=np.where(ended, last, np.nan),
            output_tokens=np.where(ended, run.output_tokens[rows], 0),
            status=np.where(ended, RequestStatus.OK, RequestStatus.PENDING),
        )

    def sent_between(self, start: float, end: float, *, now: float = np.inf) -> RequestSamples:
        """Columns of what was sent from ``start`` to before ``end``, as known at ``now``."""
        rows = self.known_at(now, since=start)
        return rows.select(rows.scheduled_at < end)

    def settled_at(self, start: float, end: float, *, limit: float) -> float:
        """When the requests sent before ``end`` have ended, ``limit`` seconds later at most."""
        run = self.run
        mine = (run.scheduled_at >= start) & (run.scheduled_at < end)
        last = run.last_token_at[mine]
        if not len(last) or np.isnan(last).any():
            return end + limit
        return float(np.clip(last.max(), end, end + limit))

    def in_flight(self, now: float) -> list[tuple[float, int]]:
        times = np.arange(0.0, now, IN_FLIGHT_SECONDS)
        sent = np.searchsorted(self.run.scheduled_at, times, side="right")
        done = np.searchsorted(np.sort(self.run.last_token_at), times, side="right")
        return list(zip(times.tolist(), (sent - done).tolist(), strict=True))


def measure(recorded: Recorded, probe: Probe, slos: tuple[SLO, ...]) -> ProbeResult:
    """Judge the record as ``probe`` would have: looks and windows."""
    windows: list[Window] = []
    start = warm = probe.warmup_seconds or recorded.warm_at(probe.window_seconds)
    tail = max(probe.window_seconds, TAIL_LEAST_SECONDS)

    def look(now: float, *, final: bool) -> Judgement:
        return judge(
            recorded.known_at(now, since=warm),
            slos,
            probe,
            windows=windows,
            in_flight=recorded.in_flight(now),
            now=None if final else now,
        )

    for _ in range(probe.windows):
        windows.append(Window(start, start, complete=False))
        for number in range(1, LOOKS_PER_WINDOW + 1):
            now = start + probe.window_seconds * number / LOOKS_PER_WINDOW
            windows[-1] = Window(start, now, complete=number == LOOKS_PER_WINDOW)
            if probe.stop_on_fail:
                judgement = look(now, final=False)
                if judgement.ends_probe:
                    return _result(recorded, probe, judgement, warm, now)
        start += probe.window_seconds
    settled = recorded.settled_at(warm, start, limit=tail)
    return _result(recorded, probe, look(settled, final=True), warm, settled)


def _result(
    recorded: Recorded, probe: Probe, judgement: Judgement, warm: float, now: float
) -> ProbeResult:
    known = recorded.known_at(now)
    measured = known.select(known.scheduled_at >= warm)
    return ProbeResult(
        probe=probe,
        verdict=judgement.verdict,
        reason=judgement.reason,
        message=judgement.message,
        seconds=now,
        measured_seconds=now - warm,
        sent=len(known),
        completed=int(known.ok.sum()),
        slos=judgement.slos,
        ttft=summarize(measured.ttft_ms),
        tpot=summarize(measured.tpot_ms),
        e2e=summarize(measured.e2e_ms),
    )
