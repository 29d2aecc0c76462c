"""How a run reaches its launcher: in a benchmark pod, or as a child process on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from vllm_tuning.bench.launcher_client import LauncherClient, LauncherError
from vllm_tuning.bench.tools import write_token, write_tools

_START_SECONDS = 30.0
_STOP_SECONDS = 30.0
"""The launcher itself gives the engine 8 s, then kills."""


@dataclass(frozen=True, slots=True)
class LauncherAddress:
    """Where a launcher listens and what opens it; the two belong into a ``RunSpec``."""

    url: str
    token_file: Path


@asynccontextmanager
async def connect(address: LauncherAddress) -> AsyncIterator[LauncherClient]:
    """Open a client for a launcher that runs, or will soon.

    Raises ``LauncherError`` without a token.
    """
    try:
        token = address.token_file.read_text().strip()
    except OSError as error:
        raise LauncherError(f"cannot read the launcher's token: {error}") from error
    async with aiohttp.ClientSession() as http:
        yield LauncherClient(http, address.url, token)


@asynccontextmanager
async def local_launcher(
    command: Sequence[str],
    *,
    python: str = sys.executable,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> AsyncIterator[LauncherAddress]:
    """Run a launcher on this machine for ``command``; at the end nothing of it is left.

    The engine's output goes to ``log``, by default nowhere: the launcher keeps what a run needs of
    it.
    """
    with tempfile.TemporaryDirectory(prefix="vllm-tuning-") as name:
        directory = Path(name)
        token_file = directory / "run" / "token"
        write_token(token_file)
        port_file = directory / "run" / "port"
        options = ["--port", "0", "--port-file", str(port_file), "--token-file", str(token_file)]
        with (log or Path(os.devnull)).open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                python,
                str(write_tools(directory)),
                *options,
                "--",
                *command,
                env=dict(os.environ if env is None else env),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            port = await _wait_for_port(process, port_file)
            yield LauncherAddress(f"http://127.0.0.1:{port}", token_file)
        finally:
            await _end(process)


async def _wait_for_port(process: asyncio.subprocess.Process, port_file: Path) -> int:
    async with asyncio.timeout(_START_SECONDS):
        while (port := _read_port(port_file)) is None:
            if process.returncode is not None:
                raise LauncherError(f"the launcher ended with exit status {process.returncode}")
            await asyncio.sleep(0.02)
    return port


def _read_port(port_file: Path) -> int | None:
    return int(port_file.read_text()) if port_file.exists() else None


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
