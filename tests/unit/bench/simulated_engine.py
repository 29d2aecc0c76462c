"""A ``vllm`` command that is the simulated engine, to be started under the real launcher."""

from __future__ import annotations

import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.unit.bench.launcher.ports import free_port
from vllm_tuning.bench.session import connect, local_launcher
from vllm_tuning.bench.starts import Starter
from vllm_tuning.tuning.model import Limits, Purpose, Start


def vllm_command(directory: Path, *, drop: str = "") -> str:
    """Write the command; ``drop`` is a flag (with its value) that this wrapper loses on the way."""
    path = directory / "vllm"
    path.write_text(
        f"#!{sys.executable}\n"
        "import os, sys\n"
        "args = sys.argv[2:]\n"
        f"if {drop!r} in args:\n"
        f"    at = args.index({drop!r}); del args[at:at + 2]\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'vllm_tuning', 'simulate', *args])\n"
    )
    path.chmod(0o755)
    return str(path)


@asynccontextmanager
async def starter(command: list[str], *, timeout_seconds: float = 120.0, **env: str):
    """A starter for ``command`` under a launcher of its own, and the client of that launcher."""
    environment = {**os.environ, "SIMULATE_PRESET": "tiny", **env}
    async with (
        local_launcher(command, env=environment) as address,
        connect(address) as launcher,
        aiohttp.ClientSession() as http,
    ):
        info = await launcher.info()
        port = free_port()
        yield Starter(launcher, info, http, port=port, timeout_seconds=timeout_seconds), launcher


def start_of(limits: Limits, *, hook: bool, number: int = 1) -> Start:
    """Ask for a start."""
    purpose = Purpose.CALIBRATE if hook else Purpose.CONFIRM
    return Start(f"s{number}", purpose, limits, hook)
