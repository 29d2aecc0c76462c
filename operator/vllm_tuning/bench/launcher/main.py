"""``launcher.pyz [options] -- COMMAND...``.

Wait for the bench's requests; COMMAND is what the target would run.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import secrets
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import PROTOCOL
from .children import Reaper
from .engine import Engine
from .gpu import Sampler, open_devices
from .server import Api, make_server

DEFAULT_PORT = 8901
DEFAULT_TOKEN_FILE = "/run/vllm-tuning/token"  # noqa: S105 - a path, not a secret


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; exit status 0 then, 2 when it could not begin."""
    options = _parse(sys.argv[1:] if argv is None else argv)
    try:
        token = Path(options.token_file).read_text().strip()
    except OSError as error:
        print(f"launcher: cannot read the token: {error}", file=sys.stderr)
        return 2
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    devices, missing = open_devices(os.environ)
    sampler = Sampler(devices)
    hook_package = _hook_package()
    engine = Engine(Reaper(), hook_package)
    info: dict[str, Any] = {
        "protocol": PROTOCOL,
        "instance": secrets.token_hex(8),
        "pid": os.getpid(),
        "argv": options.command,
        "env": _named_variables(options.command, os.environ),
        "python": platform.python_version(),
        "hook": hook_package,
        "nvml": {"devices": [device.describe() for device in devices], "missing": missing},
    }
    server = make_server(options.host, options.port, token, Api(engine, sampler, info))
    threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True
    ).start()
    sampler.begin()
    if options.port_file:
        _announce(Path(options.port_file), server.server_address[1])
    stop.wait()
    server.shutdown()
    engine.close()
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="launcher.pyz", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument(
        "--port", type=int, default=DEFAULT_PORT, help="0 = any free port; see --port-file"
    )
    parser.add_argument("--port-file", help="written with the port once the launcher listens")
    parser.add_argument(
        "--token-file", default=os.environ.get("TUNING_TOKEN_FILE", DEFAULT_TOKEN_FILE)
    )
    parser.add_argument(
        "command", nargs="+", metavar="COMMAND", help="behind --: the target's command and args"
    )
    return parser.parse_args(argv)


def _hook_package() -> str | None:
    """The hook lies beside the zipapp, where ``vllm-tuning tools`` put it."""
    directory = Path(sys.argv[0]).resolve().parent / "hook"
    return str(directory) if directory.is_dir() else None


def _named_variables(command: list[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that a shell string in the command names, and no others.

    The bench reads flags from such strings; secrets that only the engine reads stay here.
    """
    named = {name for item in command for name in re.findall(r"\$\{?([A-Za-z_]\w*)", item)}
    return {name: environ[name] for name in sorted(named) if name in environ}


def _announce(path: Path, port: int) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(str(port))
    partial.replace(path)
