"""Builders of probe results and event logs for the tests of the report."""

from vllm_tuning.tuning.model import (
    SLO,
    ClosedLoad,
    Ending,
    EngineDeltas,
    EngineFacts,
    Limits,
    Load,
    Metric,
    OpenLoad,
    Percentiles,
    Probe,
    ProbeResult,
    Purpose,
    Recommendation,
    SLOResult,
    Start,
    StartResult,
    Verdict,
)
from vllm_tuning.tuning.run import (
    ProbeBegan,
    ProbeEnded,
    RunEnded,
    RunStarted,
    StartBegan,
    StartEnded,
)

TTFT = SLO(Metric.TTFT, 95, 300)
CLIENTS = ClosedLoad(256)


def a_result(
    seqs: int = 64,
    tokens: int = 8192,
    *,
    load: Load = CLIENTS,
    verdict: Verdict = Verdict.PASS,
    completed: int = 512,
    tpot: float | None = 10.0,
    ttft: float | None = 100.0,
    throughput: float | None = 7000.0,
    preemptions: int | None = 0,
    kv: float | None = None,
    name: str = "p",
) -> ProbeResult:
    probe = Probe(
        id=f"{name}-{seqs}-{tokens}",
        purpose=Purpose.SEARCH,
        limits=Limits(seqs, tokens),
        load=load,
        seed=1,
        window_seconds=10,
    )
    return ProbeResult(
        probe=probe,
        verdict=verdict,
        reason="WithinSLO" if verdict is Verdict.PASS else "SLOViolated",
        message=f"p95 TTFT {ttft} ms",
        seconds=12.0,
        measured_seconds=10.0,
        sent=completed,
        completed=completed,
        ttft=Percentiles(completed, mean=ttft, p50=ttft, p95=ttft),
        tpot=Percentiles(completed, mean=tpot, p50=tpot, p95=tpot),
        output_tokens_per_second=throughput,
        slos=(SLOResult(TTFT, attainment=0.97, verdict=verdict, observed_milliseconds=ttft),),
        engine=EngineDeltas(preemptions=preemptions, running_max=seqs, kv_usage_peak_fraction=kv),
    )


def a_run(*results: ProbeResult, recommendation: Recommendation | None = None) -> list:
    """The events of a run with one good start and these probes."""
    start = Start("s1", Purpose.CALIBRATE, Limits(256, 8192), hook=True)
    facts = EngineFacts(version="0.32.0", kv_cache_tokens=97488)
    events: list = [
        RunStarted(1, 100.0, "run", 1, ("vllm", "serve", "m"), 0),
        StartBegan(2, 100.0, start, ("vllm", "serve", "m")),
        StartEnded(3, 130.0, StartResult(start, 30.0, facts=facts), 30.0),
    ]
    for i, result in enumerate(results):
        at = 130.0 + 15 * i
        events += [
            ProbeBegan(4 + 2 * i, at, result.probe),
            ProbeEnded(5 + 2 * i, at + 12, result, 42.0 + 15 * i),
        ]
    if recommendation:
        events.append(RunEnded(1000, 500.0, recommendation, 400.0))
    return events


def a_recommendation(result: ProbeResult) -> Recommendation:
    return Recommendation(
        ending=Ending.RECOMMENDED,
        message="confirmed on a fresh start",
        limits=result.probe.limits,
        load=OpenLoad(12.5),
        result=result,
        gain_percent=31.0,
        binding_limit="p95 TTFT ≤ 300 ms",
    )
