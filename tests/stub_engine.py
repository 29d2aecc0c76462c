"""A real shell with a stub `vllm` that writes down its argv: what a script really starts."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_STUB = """#!/bin/sh
{ printf '%s\\0' "${0##*/}"; for word in "$@"; do printf '%s\\0' "$word"; done; } > "$STUB_OUT"
"""
PROGRAMS = ("vllm", "python", "python3")


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(VAR)` as the kubelet expands it; written anew here, to check the code under test."""

    def replace(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return env.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", replace, text)


def run(command: Sequence[str], env: Mapping[str, str]) -> list[str] | None:
    """Run a command line; the argv that the stub got, or ``None`` if it was not started."""
    with tempfile.TemporaryDirectory() as directory:
        bin_path, out = Path(directory, "bin"), Path(directory, "argv")
        bin_path.mkdir()
        for program in PROGRAMS:
            path = bin_path / program
            path.write_text(_STUB)
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        # A login shell sets its own PATH first.
        Path(directory, ".profile").write_text(f'PATH="{bin_path}:$PATH"\n')
        environment = {
            "PATH": f"{bin_path}:{os.defpath}", "HOME": directory, "STUB_OUT": str(out), **env,
        }  # fmt: skip
        subprocess.run(
            command, env=environment, cwd=directory, check=False, timeout=20,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        if not out.exists():
            return None
        return out.read_bytes().decode().split("\0")[:-1]


def run_container(container: Mapping, env: Mapping[str, str]) -> list[str] | None:
    """Run a container's command and args as the kubelet hands them to the runtime."""
    words = [*(container.get("command") or ()), *(container.get("args") or ())]
    return run([expand(word, env) for word in words], env)


def literal_env(container: Mapping) -> dict[str, str]:
    """The literal entries of `env`, expanded."""
    env: dict[str, str] = {}
    for entry in container.get("env") or ():
        if isinstance(entry.get("value"), str):
            env[entry["name"]] = expand(entry["value"], env)
    return env
