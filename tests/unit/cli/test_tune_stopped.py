"""``vllm-tuning tune`` that is told to stop: the engine goes with it, what is known is shown."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from tests.unit.reconcile.builders import a_deployment, a_tuning

PATIENCE_SECONDS = 90.0
TOOL = Path(sys.executable).with_name("vllm-tuning")


def engine_in(folder: Path) -> Path:
    """Put a ``vllm`` there that is the simulated engine; returns the file of its process id."""
    noted = folder / "engine.pid"
    script = folder / "vllm"
    script.write_text(f'#!/bin/sh\necho $$ > {noted}\nshift\nexec {TOOL} simulate "$@"\n')
    script.chmod(0o755)
    return noted


def wait_for(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.1)


def alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_sigterm_ends_the_engine_too(tmp_path: Path) -> None:
    noted = engine_in(tmp_path)
    environment = [
        {"name": "PATH", "value": f"{tmp_path}:/usr/bin:/bin"},
        {"name": "SIMULATE_PRESET", "value": "tiny"},
    ]
    manifests = tmp_path / "manifests.yaml"
    manifests.write_text(yaml.safe_dump_all([a_tuning(), a_deployment(env=environment)]))
    out = tmp_path / "out"
    command = [TOOL, "tune", "-f", manifests, "--out", out, "--quick", "--engine-port", "8917"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as tune:
        try:
            wait_for(
                lambda: '"probe' in (out / "events.jsonl").read_text() if out.exists() else False
            )
            engine = int(noted.read_text())
            assert alive(engine)
            tune.send_signal(signal.SIGTERM)
            said, _ = tune.communicate(timeout=PATIENCE_SECONDS)
        finally:
            tune.kill()
    assert tune.returncode == 1, said
    assert "stopped from outside" in said
    wait_for(lambda: not alive(engine))
