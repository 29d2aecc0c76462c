"""What a bench says, from the start of a run to its answer."""

from __future__ import annotations

from typing import Any

from tests.unit.reconcile.builders import NOW
from vllm_tuning.tuning.model import (
    SLO,
    Ending,
    Limits,
    Metric,
    OpenLoad,
    ParameterChoice,
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
from vllm_tuning.tuning.run import Event, ProbeBegan, ProbeEnded, RunEnded, RunStarted, StartEnded

CURRENT = Limits(max_num_seqs=4, max_num_batched_tokens=2048)
BETTER = Limits(max_num_seqs=64, max_num_batched_tokens=4096)


def a_start(id_: str = "s1", limits: Limits = BETTER, **fields: Any) -> Start:
    return Start(id=id_, purpose=fields.pop("purpose", Purpose.CALIBRATE), limits=limits, hook=True)


def start_ended(seq: int, start: Start | None = None, **result: Any) -> StartEnded:
    return StartEnded(
        seq=seq,
        time=NOW.timestamp() + seq,
        result=StartResult(start=start or a_start(), seconds=30.0, **result),
        engine_seconds=30.0,
    )


def a_probe(id_: str, limits: Limits, purpose: Purpose = Purpose.SEARCH, rate: float = 8) -> Probe:
    return Probe(
        id=id_,
        purpose=purpose,
        limits=limits,
        load=OpenLoad(rate_per_second=rate),
        seed=1,
        window_seconds=10,
    )


def probe_began(seq: int, probe: Probe) -> ProbeBegan:
    return ProbeBegan(seq=seq, time=NOW.timestamp() + seq, probe=probe)


def probe_result(probe: Probe, verdict: Verdict = Verdict.PASS, ttft: float = 200) -> ProbeResult:
    slo = SLO(metric=Metric.TTFT, percentile=95, max_milliseconds=300)
    return ProbeResult(
        probe=probe,
        verdict=verdict,
        reason="WithinSLO" if verdict is Verdict.PASS else "SLOViolated",
        message=f"p95 TTFT {ttft:g} ms",
        seconds=20.0,
        sent=160,
        completed=160,
        ttft=Percentiles(count=160, p50=ttft / 2, p95=ttft),
        request_rate=8.0,
        slos=(SLOResult(slo=slo, attainment=0.97, observed_milliseconds=ttft, verdict=verdict),),
    )


def probe_ended(
    seq: int, probe: Probe, verdict: Verdict = Verdict.PASS, ttft: float = 200
) -> ProbeEnded:
    return ProbeEnded(
        seq=seq,
        time=NOW.timestamp() + seq,
        result=probe_result(probe, verdict, ttft),
        engine_seconds=30.0 + 20 * seq,
    )


def run_started(seq: int = 0) -> RunStarted:
    return RunStarted(
        seq=seq, time=NOW.timestamp(), run_id="r", attempt=1, original_argv=(), replayed=0
    )


def run_ended(seq: int, ending: Ending = Ending.RECOMMENDED, **fields: Any) -> RunEnded:
    good = ending is Ending.RECOMMENDED
    confirmed = a_probe("p9", BETTER, Purpose.CONFIRM)
    values: dict[str, Any] = {
        "limits": BETTER if good else None,
        "parameters": (
            (ParameterChoice(name="max_num_seqs", current="4", recommended="64"),) if good else ()
        ),
        "load": OpenLoad(rate_per_second=8) if good else None,
        "result": probe_result(confirmed) if good else None,
        "gain_percent": 120.0 if good else None,
        "engine_starts": 2,
        "probes": 3,
        "engine_seconds": 200.0,
        **fields,
    }
    return RunEnded(
        seq=seq,
        time=NOW.timestamp() + seq,
        recommendation=Recommendation(ending=ending, message=f"the run says {ending}", **values),
        engine_seconds=200.0,
    )


def a_whole_run() -> tuple[Event, ...]:
    """Start, baseline, a search, a confirmation on a fresh start, the answer."""
    confirm = a_start("s2", BETTER, purpose=Purpose.CONFIRM)
    return (
        run_started(),
        start_ended(1),
        probe_ended(2, a_probe("p1", CURRENT, Purpose.BASELINE), Verdict.FAIL, 900),
        probe_ended(3, a_probe("p2", BETTER)),
        start_ended(4, confirm),
        probe_ended(5, a_probe("p3", BETTER, Purpose.CONFIRM)),
        run_ended(6),
    )
