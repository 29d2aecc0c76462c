"""Which program a command line starts: ``vllm serve``, the API server module, or another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Program(StrEnum):
    """The parser behind the flags."""

    SERVE = "vllm serve"
    API_SERVER = "vllm.entrypoints.openai.api_server"
    DYNAMO = "dynamo.vllm"
    IMAGE = "image entrypoint"
    """Args only: the image decides, by its version."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The program and the index of the first word that is its own argument."""

    program: Program
    first: int


_VLLM: Final = re.compile(r"(?:.*/)?vllm")
_PYTHON: Final = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")
_SCRIPT: Final = re.compile(r"(?:.*/)?vllm/entrypoints/openai/api_server\.py")
_MODULES: Final = {
    "vllm.entrypoints.openai.api_server": Program.API_SERVER,
    "dynamo.vllm": Program.DYNAMO,
}
_CLI_MODULES: Final = ("vllm", "vllm.entrypoints.cli.main")


def find_entry(texts: Sequence[str]) -> Entry | None:
    """Find the engine in a command line; wrappers (``numactl``, ``exec``) may stand before it."""
    for index, text in enumerate(texts):
        following = texts[index + 1] if index + 1 < len(texts) else None
        if _VLLM.fullmatch(text) and following == "serve":
            return Entry(Program.SERVE, index + 2)
        if _SCRIPT.fullmatch(text):
            return Entry(Program.API_SERVER, index + 1)
        if text == "-m" and following is not None and _has_python(texts[:index]):
            if program := _MODULES.get(following):
                return Entry(program, index + 2)
            if following in _CLI_MODULES and texts[index + 2 : index + 3] == ["serve"]:
                return Entry(Program.SERVE, index + 3)
    return None


def _has_python(texts: Sequence[str]) -> bool:
    return any(_PYTHON.fullmatch(text) for text in texts)


SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})


def shell_script(texts: Sequence[str]) -> int | None:
    """Index of the script in ``sh -c``, ``bash -exc``, ``bash -lc --``; ``None`` = no shell."""
    start = next((i for i, t in enumerate(texts) if t.rsplit("/", 1)[-1] in SHELLS), None)
    if start is None:
        return None
    wants_script = False
    index = start + 1
    while index < len(texts):
        text = texts[index]
        if text == "--" and wants_script:
            return index + 1 if index + 1 < len(texts) else None
        if text in ("-o", "+o"):
            index += 2
            continue
        if not text.startswith("-") or text == "-":
            return index if wants_script else None
        wants_script = wants_script or (not text.startswith("--") and "c" in text[1:])
        index += 1
    return None
