"""The load tools that are compared, each as a command, with what it reports in one form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from cpu import TreeCPU

HERE = Path(__file__).parent
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    # One process that sends, as the others have; its default is ten.
    "GUIDELLM__MAX_WORKER_PROCESSES": "1",
}


@dataclass(frozen=True)
class Task:
    """What every tool is asked to do."""

    url: str
    model: str
    tokenizer: Path
    """For the tools that need one; ours sends token ids."""
    requests: int
    rate: float
    input_tokens: int
    output_tokens: int
    seed: int


@dataclass(frozen=True)
class Spent:
    """User and system time of a tool and its children."""

    whole_seconds: float
    """Its start and its report included."""
    streaming_seconds: float | None = None
    """While the server streamed to it; ``None`` = the server does not tell when that was."""
    streamed_tokens: int | None = None


@dataclass(frozen=True)
class Point:
    """What a tool says it saw, and what it took."""

    completed: int
    tokens: int
    ttft_ms: float
    """Median."""
    tpot_ms: float
    """Median."""
    tokens_per_second: float
    cpu: Spent
    lateness_p99_ms: float | None = None


def run_measured(command: list[str], folder: Path, url: str) -> tuple[str, Spent]:
    """Run a command against the server at ``url``; return its output and what it spent."""
    served(url)
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **QUIET},
        )  # fmt: skip
        tree = TreeCPU(process.pid)
        try:
            # wait4 counts the children that the tool itself has waited for.
            _, status, usage = os.wait4(process.pid, 0)
        except KeyboardInterrupt:
            process.kill()
            raise
        finally:
            tree.stop()
        process.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        output = log.read()
    if process.returncode:
        raise RuntimeError(f"{command[0]} exited {process.returncode}:\n{output[-2000:]}")
    whole = usage.ru_utime + usage.ru_stime
    span = served(url)
    if span is None or span["begin"] is None or span["end"] is None:
        return output, Spent(whole)
    return output, Spent(whole, tree.between(span["begin"], span["end"]), span["tokens"])


def served(url: str) -> dict[str, Any] | None:
    """What the replay server has streamed since this was last asked; ``None`` = another server."""
    try:
        with urlopen(f"{url}/span", timeout=10) as answer:
            return dict(json.load(answer))
    except HTTPError:
        return None


def ours(task: Task) -> Point:
    command = [
        sys.executable, str(HERE / "ours.py"), "--url", task.url, "--model", task.model,
        "--requests", str(task.requests), "--rate", str(task.rate),
        "--input", str(task.input_tokens), "--output", str(task.output_tokens),
        "--seed", str(task.seed),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        output, cpu = run_measured(command, Path(folder), task.url)
    return Point(**json.loads(output.splitlines()[-1]), cpu=cpu)


def vllm_bench(executable: str) -> Callable[[Task], Point]:
    def measure(task: Task) -> Point:
        command = [
            executable, "bench", "serve", "--backend", "openai", "--base-url", task.url,
            "--model", task.model, "--tokenizer", str(task.tokenizer),
            "--dataset-name", "random", "--random-input-len", str(task.input_tokens),
            "--random-output-len", str(task.output_tokens), "--ignore-eos",
            "--num-prompts", str(task.requests), "--request-rate", str(task.rate),
            "--seed", str(task.seed), "--disable-tqdm",
            "--percentile-metrics", "ttft,tpot", "--metric-percentiles", "50",
            "--save-result", "--result-dir", ".", "--result-filename", "result.json",
        ]  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            _, cpu = run_measured(command, Path(folder), task.url)
            found = json.loads((Path(folder) / "result.json").read_text())
        return Point(
            completed=found["completed"],
            tokens=found["total_output_tokens"],
            ttft_ms=found["median_ttft_ms"],
            tpot_ms=found["median_tpot_ms"],
            tokens_per_second=found["output_throughput"],
            cpu=cpu,
        )

    return measure


def guidellm(executable: str) -> Callable[[Task], Point]:
    def measure(task: Task) -> Point:
        backend = (
            f"kind=openai_http,target={task.url},model={task.model},request_format=/v1/completions"
        )
        lengths = f"prompt_tokens={task.input_tokens},output_tokens={task.output_tokens}"
        command = [
            executable, "run", "--disable-console",
            "--backend", backend,
            "--tokenizer", f"kind=huggingface_auto,model={task.tokenizer}",
            "--data", f"kind=synthetic_text,{lengths}",
            "--profile", f"kind=poisson,rate={task.rate}",
            "--constraint", f"kind=max_requests,count={task.requests}",
            "--seed", f"kind=static,value={task.seed}",
            "--output", "kind=json,path=result.json",
        ]  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            _, cpu = run_measured(command, Path(folder), task.url)
            found = json.loads((Path(folder) / "result.json").read_text())
        return _guidellm_point(found["benchmarks"][0], cpu)

    return measure


def _guidellm_point(benchmark: dict[str, Any], cpu: Spent) -> Point:
    metrics = benchmark["metrics"]

    def median(name: str) -> float:
        return float(metrics[name]["successful"]["percentiles"]["p50"])

    return Point(
        completed=metrics["request_totals"]["successful"],
        tokens=round(metrics["output_token_count"]["successful"]["total_sum"]),
        ttft_ms=median("time_to_first_token_ms"),
        # Its "tpot" counts the first token too; its inter-token latency is everybody's TPOT.
        tpot_ms=median("inter_token_latency_ms"),
        tokens_per_second=float(metrics["output_tokens_per_second"]["successful"]["mean"]),
        cpu=cpu,
    )
