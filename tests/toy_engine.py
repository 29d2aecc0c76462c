"""A toy engine: a formula for the capacity of each pair of limits, and noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import exp, log, log2
from zlib import crc32

import numpy as np

from vllm_tuning.tuning.model import (
    SLO,
    Answer,
    Budget,
    ClosedLoad,
    Done,
    EngineDeltas,
    EngineFacts,
    FailureKind,
    Lengths,
    Limits,
    Metric,
    Objective,
    Percentiles,
    Probe,
    ProbeResult,
    Problem,
    Recommendation,
    SLOResult,
    Space,
    Start,
    StartFailure,
    StartResult,
    Verdict,
    Workload,
)
from vllm_tuning.tuning.search import Search

TTFT = SLO(Metric.TTFT, percentile=95, max_milliseconds=300)


def make_problem(**changes: object) -> Problem:
    values: dict[str, object] = {
        "slos": (TTFT,),
        "objective": Objective.MAX_RATE,
        "workload": Workload(Lengths(512), Lengths(128)),
        "current": Limits(16, 512),
        "space": Space(),
        "budget": Budget(gpu_seconds=7200.0, deadline_seconds=7200.0),
    }
    return Problem(**{**values, **changes})  # type: ignore[arg-type] # a table of keyword arguments


@dataclass
class ToyEngine:
    """Capacity peaks at ``best_tokens`` and needs ``need_seqs``; a start takes 100 s."""

    peak: float = 40.0
    best_tokens: int = 2048
    need_seqs: int = 60
    width: float = 4.0
    """Octaves of the budget within which the capacity falls to 1/e."""
    guard: float = 0.0
    """Extra capacity of a cap just above the need (share of the peak)."""
    noise: float = 0.03
    kv_tokens: int = 900_000
    graph_cap: int = 0
    """Largest CUDA graph, as vLLM captures them; 0 = an engine without."""
    live_limits: str | None = None
    largest: Limits | None = None
    """Starts that ask for more do not fit."""
    failures: tuple[FailureKind | None, ...] = ()
    """What the first starts end with."""
    invalid_from: int | None = None
    """Probes from this number on are INVALID: something else loads the server."""
    client_rate: float | None = None
    """Open loads above it are INVALID: the client does not keep up."""
    alone_ms: float = 20.0
    slow_fresh: float = 1.0
    """Capacity of servers without the hook, relative to live ones."""
    slo: SLO = TTFT
    kv_gain: float = 0.0
    """Extra capacity of a memory share of 95 %; without it, overloads preempt."""
    whole_prompt_gain: float = 0.0
    """Extra capacity without chunked prefill."""
    running: Start | None = None
    asked: list[Start | Probe] = field(default_factory=list)

    def capacity(self, limits: Limits) -> float:
        octaves = log2(limits.max_num_batched_tokens / self.best_tokens)
        by_tokens = exp(-((octaves / self.width) ** 2))
        by_seqs = min(1.0, limits.max_num_seqs / self.need_seqs)
        guarded = self.need_seqs <= limits.max_num_seqs <= 1.4 * self.need_seqs
        extra = 1.0 + (self.guard if guarded else 0.0)
        if self.kv_gain and limits.gpu_memory_utilization_percent == 95:
            extra += self.kv_gain
        if limits.enable_chunked_prefill is False:
            extra += self.whole_prompt_gain
        return self.peak * by_tokens * by_seqs * extra

    def answer(self, question: Start | Probe) -> Answer:
        self.asked.append(question)
        if isinstance(question, Start):
            return self._start(question)
        return self._probe(question)

    def _start(self, start: Start) -> StartResult:
        starts = sum(isinstance(asked, Start) for asked in self.asked)
        kind = self.failures[starts - 1] if starts <= len(self.failures) else None
        fits = self.largest is None or (
            start.limits.max_num_seqs <= self.largest.max_num_seqs
            and start.limits.max_num_batched_tokens <= self.largest.max_num_batched_tokens
        )
        if kind is None and not fits:
            kind = FailureKind.INFEASIBLE
        if kind is not None:
            self.running = None
            return StartResult(start, 30.0, failure=StartFailure(kind, "Toy", "does not fit"))
        self.running = start
        facts = EngineFacts(
            kv_cache_tokens=self.kv_tokens, live_limits=self.live_limits, max_model_len=1024,
            graph_tokens=min(
                2 * start.limits.max_num_seqs, start.limits.max_num_batched_tokens, self.graph_cap
            ) or None,
        )  # fmt: skip
        return StartResult(start, 100.0, facts=facts)

    def _probe(self, probe: Probe) -> ProbeResult:
        self._check_server(probe)
        rng = np.random.default_rng(crc32(f"{probe.seed}/{probe.limits}".encode()))
        if self.invalid_from is not None and self._probes() >= self.invalid_from:
            return ProbeResult(probe, Verdict.INVALID, "OtherLoad", "not ours", seconds=5.0)
        offered = 0.0 if isinstance(probe.load, ClosedLoad) else probe.load.rate_per_second
        if self.client_rate is not None and offered > self.client_rate:
            return ProbeResult(probe, Verdict.INVALID, "ClientLag", "the client lags", seconds=5.0)
        capacity = self.capacity(probe.limits)
        if self.running is not None and not self.running.hook:
            capacity *= self.slow_fresh
        if isinstance(probe.load, ClosedLoad):
            clients = probe.load.concurrency
            rate = min(capacity, clients / (self.alone_ms / 1e3 * 33))
            tightness = 0.2 if clients == 1 else 0.6
            if clients == 1:
                tightness = self.alone_ms / 300.0
        else:
            rate = min(probe.load.rate_per_second, capacity)
            tightness = probe.load.rate_per_second / capacity * exp(rng.normal(0.0, self.noise))
        return self._result(probe, rate, tightness)

    def _result(self, probe: Probe, rate: float, tightness: float) -> ProbeResult:
        within = 1.0 / (1.0 + exp(min((tightness - 1.0) * 25.0 - log(19.0), 50.0)))
        verdict, reason = Verdict.UNDECIDED, "LooksWithinSLO" if within >= 0.95 else "NearLimit"
        seconds = probe.windows * probe.window_seconds + 2.0
        if within < 0.90:
            verdict, reason = Verdict.FAIL, "SLOViolated"
            seconds = seconds / 2 if probe.stop_on_fail else seconds
        elif probe.decide and within >= 0.97:
            verdict, reason = Verdict.PASS, "WithinSLO"
        observed = 300.0 * tightness**2
        running = min(self.need_seqs * min(tightness, 1.5) * 0.9, probe.limits.max_num_seqs)
        e2e = 20.0 * self.alone_ms * (1.0 + tightness)
        return ProbeResult(
            probe, verdict, reason,
            f"p95 {self.slo.metric} {observed:.0f} ms ({within:.1%} within)",
            seconds=seconds, measured_seconds=seconds - 2.0, sent=1000, completed=1000,
            ttft=Percentiles(1000, mean=observed / 2, p50=observed / 2, p95=observed),
            tpot=Percentiles(1000, mean=5.0 * (1 + tightness), p50=5.0 * (1 + tightness)),
            e2e=Percentiles(1000, mean=e2e, p50=e2e, p95=1.2 * e2e),
            request_rate=rate, output_tokens_per_second=128 * rate,
            slos=(SLOResult(self.slo, within, verdict=verdict, observed_milliseconds=observed,
                            effective_count=250.0,
                            quarter_milliseconds=(observed,) * 8 if probe.decide else ()),),
            engine=EngineDeltas(running_mean=running, running_max=round(1.2 * running),
                                preemptions=9 if self.kv_gain else 0, kv_usage_peak_fraction=0.4),
        )  # fmt: skip

    def _probes(self) -> int:
        return sum(isinstance(asked, Probe) for asked in self.asked)

    def _check_server(self, probe: Probe) -> None:
        """The rules that a real bench enforces."""
        assert self.running is not None, "a probe without a server"
        running, limits = self.running.limits, probe.limits
        if self.running.hook and self.live_limits is None:
            assert limits.max_num_seqs <= running.max_num_seqs
            assert limits.max_num_batched_tokens <= running.max_num_batched_tokens
        else:
            assert limits == running, "these limits need a restart"


MakeProblem = Callable[..., Problem]
Toy = type[ToyEngine]
Run = Callable[[Problem, ToyEngine], tuple[Recommendation, list[Answer]]]


def run_search(
    problem: Problem, engine: ToyEngine, *, rounds: int = 300
) -> tuple[Recommendation, list[Answer]]:
    """Search to the end, which must come within so many questions."""
    search, answers = Search(problem), []
    for _ in range(rounds):
        question = search.ask()
        if isinstance(question, Done):
            return question.recommendation, answers
        answers.append(engine.answer(question))
        search.tell(answers[-1])
    raise AssertionError("the search does not end")


def starts(answers: list[Answer]) -> list[Start]:
    """The starts that a search asked for, in order."""
    return [answer.start for answer in answers if isinstance(answer, StartResult)]
