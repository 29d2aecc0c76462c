"""The published table of ``driver.json``: ratios with intervals, costs, and what is held."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import Any

from ratios import ratio

from vllm_tuning.api.markdown import table

METRICS = {
    "ttft_ms": "TTFT p50",
    "tpot_ms": "TPOT p50",
    "tokens_per_second": "tokens/s",
}
AGREES = (0.9, 1.1)
CHEAPER = 3.0
STREAMS, CHUNKS = 2000, 20_000
HEAD = """\
# The load driver against its peers

Made by `make bench-driver` (`benchmarks/driver`), on {cores} cores, Python {python}. All tools
drive the same server of pre-rendered bytes (`replay.py`: {server}):
{requests} requests at {rate:g}/s, 128 tokens in, 128 out, Poisson; every tool once a round, in
turn.
"""
AGREEMENT = """\
Ours divided by theirs: geometric mean and 90 % interval of the paired rounds. Goal: each interval
within 0.9 to 1.1.
"""
COST = """\
CPU-seconds (user + system, whole process tree) per 1,000 streamed tokens, between the first
request's arrival at the server and the last token: without any tool's start and report. Goal: ours
at least 3 times less than the best of the others.
"""
HOLDS = """\
One driver process (one core) against one replay server, closed loop, a token each 100 ms per
stream; VALID by the limits of every real run, and every chunk received. *Waited for a core*: the
share of the time in which the driver was ready to run and another process had its core.
"""


def cost(point: dict[str, Any]) -> float:
    """CPU seconds per 1,000 streamed tokens, without the tool's start."""
    cpu = point["cpu"]
    return float(cpu["streaming_seconds"] / cpu["streamed_tokens"] * 1e3)


def markdown(told: dict[str, Any]) -> str:
    """Render whatever has been measured."""
    parts = []
    if "rounds" in told:
        part = told["rounds"]
        parts += [
            HEAD.format(
                cores=told["cores"],
                python=told["python"],
                server=part["server"].removeprefix("replay: "),
                rate=part["rate_per_second"],
                requests=part["requests"],
            ),
            *_agreement(part["rounds"]),
            *_costs(part["rounds"]),
        ]
        if part["missing"]:
            parts.append(f"Not compared, not installed: {', '.join(part['missing'])}.")
        parts.append(_busy(part))
    if "capacity" in told:
        parts += [*_capacity(told["capacity"]["held"]), _busy(told["capacity"])]
    return "\n".join(parts).rstrip() + "\n"


def _agreement(rounds: list[Any]) -> list[str]:
    lines = []
    for name in _others(rounds):
        found = [
            ratio([r["ours"][key] for r in rounds], [r[name][key] for r in rounds])
            for key in METRICS
        ]
        met = all(AGREES[0] <= f["lower"] and f["upper"] <= AGREES[1] for f in found)
        lines.append((name, *map(_interval, found), _met(met, rounds)))
    late = [r["ours"]["lateness_p99_ms"] for r in rounds]
    return [
        f"## Agreement, {len(rounds)} rounds\n",
        AGREEMENT,
        table(("against", *METRICS.values(), ""), lines),
        f"Our send lateness p99: {min(late):.2f} to {max(late):.2f} ms over the rounds.\n",
    ]


def _costs(rounds: list[Any]) -> list[str]:
    if any(point["cpu"]["streaming_seconds"] is None for r in rounds for point in r.values()):
        return []
    mine = [cost(r["ours"]) for r in rounds]
    lines = [("ours", f"{mean(mine):.4f}", "")]
    best = None
    for name in _others(rounds):
        theirs = [cost(r[name]) for r in rounds]
        found = ratio(theirs, mine)
        best = min(filter(None, (best, found["lower"])))
        lines.append((name, f"{mean(theirs):.4f}", _interval(found)))
    head = ("tool", "CPU-s per 1,000 tokens", "theirs / ours, 90 % interval")
    goal = [f"Goal {_met(best >= CHEAPER, rounds)}.\n"] if best is not None else []
    return ["## Cost\n", COST, table(head, lines), *goal]


def _capacity(held: list[Any]) -> list[str]:
    lines = [
        (
            f"{row['streams']:,}",
            f"{row['chunks_per_second']:,.0f}",
            f"{row['cpu_fraction']:.0%}",
            f"{row['starved_fraction']:.0%}",
            f"{row['lateness_p99_ms']:.1f} ms",
            "VALID" if row["valid"] else f"{row['reason']}: {row['message']}",
        )
        for row in held
    ]
    head = ("streams", "chunks/s", "client CPU", "waited for a core", "send lateness p99", "")
    valid = [row for row in held if row["valid"]]
    top = max((row["streams"] for row in valid), default=0)
    chunks = max((row["chunks_per_second"] for row in valid), default=0)
    met = top >= STREAMS and chunks >= 0.97 * CHUNKS
    goal = (
        f"Held: {top:,} streams, {chunks:,.0f} chunks/s. Goal ({STREAMS:,} streams, "
        f"{CHUNKS:,} chunks/s on one core): {_met(met)}.\n"
    )
    return ["## The highest load held VALID\n", HOLDS, table(head, lines), goal]


def _others(rounds: list[Any]) -> list[str]:
    return [name for name in rounds[0] if name != "ours"] if rounds else []


def _interval(found: dict[str, float]) -> str:
    if found["rounds"] == 1:
        return f"{found['ratio']:.3f}"
    return f"{found['ratio']:.3f} ({found['lower']:.3f} to {found['upper']:.3f})"


def _met(met: bool, rounds: Sequence[Any] = ()) -> str:
    if len(rounds) == 1:
        return "not judged: one round has no interval"
    return "met" if met else "**missed**"


def _busy(part: dict[str, Any]) -> str:
    before, after = part["load_average"]
    return f"Made {part['made']}; load average of the machine before {before}, after {after}.\n"
