"""kubectl and helm, as a user would call them."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from rich.console import Console


class Kube:
    """Runs kubectl in one namespace, through a prefix that enters the cluster's network."""

    def __init__(self, prefix: list[str], namespace: str) -> None:
        self._prefix = prefix
        self._namespace = namespace

    def command(self, *args: str) -> list[str]:
        return [*self._prefix, "kubectl", "--namespace", self._namespace, *args]

    def run(self, *args: str, check: bool = True) -> str:
        done = subprocess.run(self.command(*args), capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise SystemExit(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def helm(self, *args: str) -> None:
        done = subprocess.run([*self._prefix, "helm", *args], text=True, check=False)
        if done.returncode:
            self.explain("", Console(), "vllm-tuning")
            raise SystemExit("helm could not install the chart: see above")

    def apply(self, file: Path) -> None:
        print(self.run("apply", "-f", str(file)).strip())

    def get(self, *args: str) -> dict[str, Any] | None:
        text = self.run("get", *args, "-o", "json", check=False)
        return json.loads(text) if text else None

    def items(self, *args: str) -> list[dict[str, Any]]:
        found = self.get(*args)
        return list(found["items"]) if found else []

    def args(self, deployment: str) -> list[str]:
        found = self.get("deployment", deployment)
        if not found:
            raise SystemExit(f"deployment {deployment} is gone")
        return list(found["spec"]["template"]["spec"]["containers"][0]["args"])

    def wait_rolled_out(self, deployment: str, seconds: int, console: Console) -> None:
        began = time.time()
        with console.status("") as status:
            while time.time() - began < seconds:
                status.update(f"waiting for {deployment} to serve, {time.time() - began:.0f} s")
                if (
                    self.run(
                        "rollout", "status", f"deployment/{deployment}", "--timeout=5s", check=False
                    )
                    .rstrip()
                    .endswith("successfully rolled out")
                ):
                    return
        self.explain(deployment, console)
        raise SystemExit(f"{deployment} did not serve within {seconds} s")

    def serving_log(self, deployment: str) -> str:
        return self.run("logs", f"deployment/{deployment}", "--tail=400", check=False)

    def explain(self, deployment: str, console: Console, system: str = "") -> None:
        """Print what one looks at when something went wrong."""
        for args in (
            ("get", "pods,jobs,vt,vtrial", "-o", "wide"),
            *(
                [("describe", "vt", deployment), ("logs", f"deployment/{deployment}", "--tail=30")]
                if deployment
                else []
            ),
            *(
                [
                    (
                        "logs",
                        "--namespace",
                        system,
                        "-l",
                        "app.kubernetes.io/name=vllm-tuning-operator",
                        "--tail=60",
                    ),
                    ("describe", "pods", "--namespace", system),
                ]
                if system
                else []
            ),
        ):
            console.rule("kubectl " + " ".join(args), align="left")
            console.print(self.run(*args, check=False), markup=False, highlight=False)
