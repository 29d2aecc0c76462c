"""What an image's name tells: the engine's version and, for vLLM's own images, the entrypoint."""

from __future__ import annotations

import re
from typing import Final

from vllm_tuning.engine.flags.version import at_least
from vllm_tuning.engine.launch.entry import Program

_TAG: Final = re.compile(r"v?(\d+\.\d+(?:\.\d+){0,2})(?![\d.])")
_IN_TAG: Final = re.compile(r"vllm[_-]?v?(\d+\.\d+(?:\.\d+){0,2})", re.IGNORECASE)
_OTHER_VERSIONS: Final = re.compile(r"lmcache|router|production-stack|kserve|aibrix", re.IGNORECASE)
"""Images that are named after vLLM and tagged with a version of something else."""
_OWN: Final = re.compile(r"(?:^|/)vllm/vllm-openai(?:$|[:@])")
LAST_API_SERVER: Final = "0.11.1"
"""Below this release the image's entrypoint surely was the API server module."""
FIRST_SERVE: Final = "0.12.0"
"""From this release on it surely is ``vllm serve``; between the two it is not known."""


def engine_version(image: str) -> str | None:
    """The version in an image reference; ``None`` for ``latest``, digests, dates, others."""
    name, _, _ = image.partition("@")
    repository, colon, tag = name.rpartition(":")
    if not colon or "/" in tag or _OTHER_VERSIONS.search(repository):
        return None
    if (hidden := _IN_TAG.search(tag)) is not None:
        return hidden[1]
    match = _TAG.match(tag)
    if match is None or not match[1].startswith("0."):
        return None
    return match[1] if "vllm" in repository.rpartition("/")[2].lower() else None


def image_program(image: str, version: str | None = None) -> Program | None:
    """What an image starts that gets args only; ``None`` = not known (vendors, unknown version)."""
    if not _OWN.search(image.partition("@")[0]):
        return None
    version = version or engine_version(image)
    if at_least(version, FIRST_SERVE):
        return Program.SERVE
    return Program.API_SERVER if at_least(version, LAST_API_SERVER) is False else None
