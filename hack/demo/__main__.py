"""The demo once the cluster stands: the main job. Exit 0 only if it was really done."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

from rich.console import Console

from hack.demo.kube import Kube
from hack.demo.outcome import failures, result, show
from hack.demo.watch import Watch

NAMESPACE = "demo"
SYSTEM = "vllm-tuning"
CHART = "charts/vllm-tuning-operator"
TUNING = Path("hack/demo/tuning.yaml")
RUN_DEADLINE_SECONDS = 1500


class Stages:
    """Prints each stage as it begins and keeps what each took."""

    def __init__(self, console: Console, began: float) -> None:
        self._console = console
        self._mark = time.time()
        self.seconds = {"prepare": round(self._mark - began, 1)}

    def begin(self, text: str) -> None:
        self._console.rule(f"[bold]{text}", align="left")

    def end(self, name: str) -> None:
        now = time.time()
        self.seconds[name] = round(now - self._mark, 1)
        self._mark = now


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--via", default="", help="prefix of kubectl and helm")
    options.add_argument("--target", type=Path, required=True)
    options.add_argument("--helm", default="", help="more arguments for helm install")
    options.add_argument("--out", type=Path, required=True)
    given = options.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    stages = Stages(console, float(os.environ.get("DEMO_STARTED", time.time())))
    kube = Kube(given.via.split(), NAMESPACE)

    stages.begin("Install the operator by its chart")
    kube.helm(
        "upgrade",
        "--install",
        "vllm-tuning",
        CHART,
        "--namespace",
        SYSTEM,
        "--create-namespace",
        "--wait",
        "--timeout",
        "3m",
        *given.helm.split(),
    )
    stages.end("install")

    stages.begin("Deploy a vLLM whose limits nobody chose on purpose")
    kube.run("create", "namespace", NAMESPACE, check=False)
    kube.apply(given.target)
    kube.wait_rolled_out("llama", 600, console)
    before = kube.args("llama")
    console.print("args:", " ".join(before))
    stages.end("target")

    stages.begin(f"Apply {TUNING}")
    console.print(TUNING.read_text().strip())
    kube.apply(TUNING)
    watch = Watch(kube, "llama", given.out / "run.jsonl", console)
    tuning = watch.until_done(RUN_DEADLINE_SECONDS)
    stages.end("tune")

    outcome = result(kube, tuning, watch.events(), before, stages.seconds)
    (given.out / "result.json").write_text(json.dumps(outcome, indent=2) + "\n")
    show(kube, outcome, watch.events(), given.out, console)
    problems = failures(outcome)
    for problem in problems:
        console.print(f"[red]not done:[/] {problem}")
    if problems:
        kube.explain("llama", console, SYSTEM)
    return 1 if problems else 0


sys.exit(main())
