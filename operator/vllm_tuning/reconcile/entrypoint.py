"""How the launcher starts the target's engine: command and args of the engine container.

Setting ``command`` on a container drops the image's ENTRYPOINT, so it has to be said in full. The
container's own ``command`` says it; without one it is what vLLM's images do with such args
(``vllm serve MODEL`` or ``--model MODEL``); any other image needs ``benchmark.command``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vllm_tuning.api.reasons import Reason
from vllm_tuning.engine.outcome import Refusal

LAUNCHER: Final = "/tools/launcher.pyz"
_PYTHON: Final = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")
_MODULE: Final = ("python3", "-m", "vllm.entrypoints.openai.api_server")


@dataclass(frozen=True, slots=True)
class Entrypoint:
    """``command`` and ``args`` of the engine container, the launcher in front."""

    command: tuple[str, ...]
    args: tuple[str, ...]


def build_entrypoint(
    container: Mapping[str, Any],
    *,
    command: Sequence[str] | None = None,
    python: str | None = None,
) -> Entrypoint | Refusal:
    """Put the launcher in front of what starts the engine.

    ``command`` and ``python`` are the spec's ``benchmark.command`` and ``benchmark.python``.
    ``$(VAR)`` stays as it is: the kubelet expands it, as it does for the target.
    """
    args = tuple(container.get("args") or ())
    found = tuple(command or container.get("command") or ()) or _image_command(args)
    if isinstance(found, Refusal):
        return found
    interpreter = python or next((word for word in found if _PYTHON.fullmatch(word)), "python3")
    return Entrypoint(command=(interpreter, LAUNCHER, "--", *found), args=args)


def _image_command(args: Sequence[str]) -> tuple[str, ...] | Refusal:
    """Say what vLLM's own images do with these args."""
    if args[:1] == ("serve",):
        return ("vllm",)
    if args and not args[0].startswith("-"):
        return ("vllm", "serve")
    if any(word == "--model" or word.startswith("--model=") for word in args):
        return _MODULE
    return Refusal(
        Reason.ENTRYPOINT_UNKNOWN,
        "the container has no command and its args name no model, so what its image starts is not "
        'known: set benchmark.command, e.g. ["vllm", "serve", "MODEL"]',
    )
