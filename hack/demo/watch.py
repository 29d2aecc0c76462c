"""Live progress: stages from the status, probes from the benchmark pod's own log."""

from __future__ import annotations

import subprocess
import threading
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from hack.demo.kube import Kube
from vllm_tuning.report.model import read_events
from vllm_tuning.report.progress import progress_line
from vllm_tuning.tuning.run import Event, Progress

HEARTBEAT_SECONDS = 10.0


class Watch:
    """Follows one tuning until it has been applied, or can't be."""

    def __init__(self, kube: Kube, name: str, log: Path, console: Console) -> None:
        self._kube = kube
        self._name = name
        self._log = log
        self._console = console
        self._followed: set[str] = set()
        self._said = ""
        self._beat = 0.0
        log.write_text("")

    def events(self) -> tuple[Event, ...]:
        return read_events(self._log.read_text().splitlines())

    def until_done(self, seconds: int) -> dict[str, Any]:
        end = time.time() + seconds
        while time.time() < end:
            tuning = self._kube.get("vt", self._name)
            if tuning is None:
                raise SystemExit(f"vt/{self._name} is gone")
            self._tell_stage(tuning)
            self._follow_pods()
            if _done(tuning):
                return tuning
            time.sleep(2)
        self._kube.explain(self._name, self._console, "vllm-tuning")
        raise SystemExit(f"vt/{self._name} was not done within {seconds} s")

    def _tell_stage(self, tuning: dict[str, Any]) -> None:
        conditions = {c["type"]: c for c in tuning.get("status", {}).get("conditions", [])}
        told = [
            f"{kind}={conditions[kind]['status']}/{conditions[kind]['reason']}"
            for kind in ("Accepted", "Progressing", "RecommendationProvided", "Applied")
            if kind in conditions
        ]
        if " ".join(told) != self._said:
            self._said = " ".join(told)
            message = next((c["message"] for k, c in conditions.items() if k == "Progressing"), "")
            self._print(f"[bold]{self._said}[/]  {message}")

    def _follow_pods(self) -> None:
        for pod in self._kube.items("pods", "-l", f"vllmtuning.io/tuning={self._name}"):
            name = pod["metadata"]["name"]
            states = pod.get("status", {}).get("containerStatuses", [])
            running = any(s["name"] == "bench" and "waiting" not in s["state"] for s in states)
            if running and name not in self._followed:
                self._followed.add(name)
                threading.Thread(target=self._follow, args=(name,), daemon=True).start()

    def _follow(self, pod: str) -> None:
        command = self._kube.command("logs", "-f", pod, "-c", "bench")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            for line in process.stdout:
                with self._log.open("a") as log:
                    log.write(line)
                for event in read_events([line]):
                    self._tell(event)

    def _tell(self, event: Event) -> None:
        if isinstance(event, Progress):
            if time.time() - self._beat < HEARTBEAT_SECONDS:
                return
            self._beat = time.time()
        if line := progress_line(event):
            self._print(line)

    def _print(self, text: str) -> None:
        self._console.print(f"{time.strftime('%H:%M:%S')} {text}", highlight=False)


def _done(tuning: dict[str, Any]) -> bool:
    """True once nothing more will happen by itself."""
    conditions = {c["type"]: c for c in tuning.get("status", {}).get("conditions", [])}
    if conditions.get("Stalled", {}).get("status") == "True":
        return True
    return conditions.get("Succeeded", {}).get("status") in {"True", "False"}
