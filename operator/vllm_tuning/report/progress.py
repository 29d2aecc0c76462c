"""One line per event that a person wants to see while a run goes on."""

from __future__ import annotations

from vllm_tuning.report.model import limits_text
from vllm_tuning.report.terminal import number
from vllm_tuning.tuning.run import (
    Event,
    ProbeEnded,
    Progress,
    RunEnded,
    RunFailed,
    RunStarted,
    StartBegan,
    StartEnded,
)
from vllm_tuning.tuning.text import load_text


def progress_line(event: Event) -> str | None:
    """Say the event in a line of rich markup; ``None`` = nothing to say."""
    line: str | None = None
    match event:
        case RunStarted(replayed=replayed) if replayed:
            line = f"resumed: {replayed} answers of earlier attempts are kept"
        case StartBegan(start=start):
            kind = "live limits" if start.hook else "exact args, no hook"
            limits = limits_text(start.limits)
            line = f"server start {start.id} ({kind}): {limits} [dim]{start.why}[/]"
        case StartEnded(result=done):
            how = f"{done.failure.reason}: {done.failure.message}" if done.failure else "ready"
            line = f"server start {done.start.id}: {how} after {done.seconds:.0f} s"
        case Progress():
            line = (
                f"  [dim]{event.probe_id} {event.phase}: {event.completed} done, "
                f"{event.in_flight} in flight, TTFT p95 {number(event.ttft_p95_ms)} ms, "
                f"TPOT p95 {number(event.tpot_p95_ms)} ms[/]"
            )
        case ProbeEnded(result=r):
            tried = r.probe.limits
            line = (
                f"{r.probe.id:>5} {r.probe.purpose.value:9} {tried.max_num_seqs:>4} seqs "
                f"{tried.max_num_batched_tokens:>5} tokens {load_text(r.probe.load):>11}  "
                f"TTFT p95 {number(r.ttft.p95):>5}  TPOT p95 {number(r.tpot.p95):>5}  "
                f"{number(r.output_tokens_per_second):>5} tok/s  [bold]{r.verdict.value}[/]  "
                f"[dim]{event.engine_seconds:.0f} engine-seconds[/]"
            )
        case RunEnded(recommendation=found):
            line = f"[bold]{found.ending.value}[/]: {found.message}"
        case RunFailed():
            line = f"[red]{event.reason}[/]: {event.message}"
        case _:
            pass
    return line
