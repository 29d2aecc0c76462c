"""``make bench-driver``: what our driver holds, whether it agrees with others, what it costs.

Writes ``build/bench/driver.json``, a part at a time: ``capacity`` (the highest load that is held
VALID) and ``rounds`` (every tool once a round against the same server, interleaved). ``--more``
adds rounds to those of the file, so that a busy machine can be used in short pieces; no round is
begun that would not end within ``--minutes``. ``vllm bench serve`` and ``guidellm`` are compared
where their executables are given; one that is missing is said to be. ``--publish`` writes the
table. ``--short`` shows in three minutes that all of it works; its numbers are worth little.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from contenders import HERE, Point, Task, guidellm, ours, vllm_bench
from table import markdown
from tokenizer import write_tokenizer

PARTS = ("capacity", "rounds")


@dataclass(frozen=True)
class Form:
    """How much is measured."""

    requests: int
    """Of each tool in each round."""
    rounds: int
    streams: tuple[int, ...]
    """Loads of the capacity."""
    window_seconds: float
    """Of the capacity."""


FULL = Form(400, 5, (500, 1000, 2000, 3000, 4000), 12.0)
SHORT = Form(60, 1, (100, 200), 8.0)
FIRST_SECONDS, GAP_SECONDS = 0.2, 0.02
"""The compared load: the first token after 0.2 s, then one each 20 ms."""


@contextmanager
def replay_server(first: float, gap: float) -> Iterator[str]:
    command = [sys.executable, str(HERE / "replay.py"), "--first", str(first), "--gap", str(gap)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def capacity(form: Form) -> dict[str, Any]:
    with replay_server(0.2, 0.1) as url:
        output = subprocess.run(
            [sys.executable, str(HERE / "capacity.py"), url, str(form.window_seconds),
             *map(str, form.streams)],
            check=True, stdout=subprocess.PIPE, text=True,
        ).stdout  # fmt: skip
    return {"window_seconds": form.window_seconds, "held": json.loads(output.splitlines()[-1])}


Round = dict[str, dict[str, Any]]
"""Tool to its point."""


def one_round(tools: dict[str, Callable[[Task], Point]], task: Task, number: int) -> Round:
    """Measure every tool, in an order that turns from round to round."""
    names = list(tools)
    turn = number % len(names)
    found: Round = {}
    for name in names[turn:] + names[:turn]:
        found[name] = asdict(tools[name](replace(task, seed=number + 1)))
        print(f"round {number + 1} {name}: {found[name]}", file=sys.stderr, flush=True)
    return found


def in_time(count: int, ends_at: float, one: Callable[[int], Round]) -> list[Round]:
    """Do ``count`` rounds, fewer where the next, as long as the longest, would end too late."""
    found: list[Round] = []
    longest = 0.0
    for number in range(count):
        began = time.monotonic()
        if found and began + longest > ends_at:
            print(f"{len(found)} of {count} rounds: the time is up", file=sys.stderr)
            break
        found.append(one(number))
        longest = max(longest, time.monotonic() - began)
    return found


def rounds(
    arguments: argparse.Namespace, form: Form, before: list[Round], ends_at: float
) -> dict[str, Any]:
    tools: dict[str, Callable[[Task], Point]] = {"ours": ours}
    if arguments.vllm:
        tools["vllm bench serve"] = vllm_bench(arguments.vllm)
    if arguments.guidellm:
        tools["guidellm"] = guidellm(arguments.guidellm)
    with replay_server(FIRST_SECONDS, GAP_SECONDS) as url:
        task = Task(
            url=arguments.url or url,
            model=arguments.model,
            tokenizer=arguments.tokenizer.absolute(),
            requests=form.requests,
            rate=arguments.rate,
            input_tokens=128,
            output_tokens=128,
            seed=1,
        )
        found = in_time(
            arguments.rounds or form.rounds,
            ends_at,
            lambda number: one_round(tools, task, len(before) + number),
        )
    return {
        "server": "given" if arguments.url else "replay: 0.2 s, then a token each 20 ms",
        "rate_per_second": arguments.rate,
        "requests": form.requests,
        "missing": [n for n in ("vllm bench serve", "guidellm") if n not in tools],
        "rounds": [*before, *found],
    }


def measure(arguments: argparse.Namespace, told: dict[str, Any]) -> None:
    """Measure the wanted parts into ``told``; the others stay as they were."""
    form = SHORT if arguments.short else FULL
    ends_at = time.monotonic() + 60 * arguments.minutes
    for part in arguments.only or PARTS:
        busy = os.getloadavg()[0]
        if part == "capacity":
            told[part] = capacity(form)
        else:
            before = told.get(part, {}).get("rounds", []) if arguments.more else []
            told[part] = rounds(arguments, form, before, ends_at)
        told[part] |= {
            "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "load_average": [round(busy, 1), round(os.getloadavg()[0], 1)],
        }
    told["python"] = platform.python_version()
    told["cores"] = os.cpu_count()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench/driver.json"))
    parser.add_argument("--only", action="append", choices=PARTS, help="a part (repeatable)")
    parser.add_argument("--more", action="store_true", help="add to the rounds of --out")
    parser.add_argument("--publish", type=Path, help="write the table of --out here; with no part")
    parser.add_argument("--vllm", help="the vllm executable to compare with")
    parser.add_argument("--guidellm", help="the guidellm executable to compare with")
    parser.add_argument("--tokenizer", type=Path, default=Path("build/bench/tokenizer"))
    parser.add_argument("--url", help="measure this server instead of the replay server")
    parser.add_argument("--model", default="replay")
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--short", action="store_true", help="show that it works, no more")
    parser.add_argument("--rounds", type=int, help=f"default {FULL.rounds}")
    parser.add_argument("--minutes", type=float, default=14.0, help="begin no round beyond this")
    arguments = parser.parse_args()
    told = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    if not arguments.publish or arguments.only:
        write_tokenizer(arguments.tokenizer)
        measure(arguments, told)
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(told, indent=1) + "\n")
    text = markdown(told)
    if arguments.publish:
        arguments.publish.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
