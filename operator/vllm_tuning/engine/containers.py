"""Find the container that runs the engine: by what it starts, never by index or name alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vllm_tuning.engine.launch.entry import find_entry
from vllm_tuning.engine.launch.text import Path
from vllm_tuning.engine.outcome import Refusal

_SCRIPT: Final = re.compile(
    r"(?:^|[\s;&|/('\"`])vllm\s+serve\b|vllm\.entrypoints\.(?:openai\.)?api_server|\bdynamo\.vllm\b"
)
_IMAGE: Final = re.compile(r"vllm", re.IGNORECASE)
_ROUTER: Final = re.compile(
    r"router|gateway|epp|scheduler|exporter|sidecar|proxy|controller|operator", re.IGNORECASE
)
OWN_IMAGE: Final = "vllm-openai"
"""vLLM's own image: whatever args it gets, it starts the server."""
_FLAG: Final = re.compile(r"--?\w")


@dataclass(frozen=True, slots=True)
class Found:
    """The engine's container."""

    name: str
    index: int
    """Position in ``containers`` (or ``initContainers``, for a native sidecar); use it with a test
    of the name."""
    container: Mapping[str, Any]
    path: Path
    """From the pod spec, e.g. ``("containers", 1)``."""


def find_vllm_container(pod_spec: Mapping[str, Any], *, name: str | None = None) -> Found | Refusal:
    """Find the one container that starts vLLM's server; ``name`` decides between several."""
    candidates = list(_candidates(pod_spec, name))
    if len(candidates) == 1:
        return candidates[0]
    names = ", ".join(f"`{c.name}`" for c in candidates)
    if candidates:
        return Refusal(
            "AmbiguousContainer",
            f"{len(candidates)} containers start vLLM ({names}); name the one to use",
        )
    known = ", ".join(f"`{c.get('name')}`" for _, _, c in _containers(pod_spec)) or "none"
    if name is not None:
        if any(container.get("name") == name for _, _, container in _containers(pod_spec)):
            return Refusal("NotAnEngine", f"container `{name}` does not start vLLM's server")
        return Refusal("ContainerNotFound", f"there is no container `{name}`; there are: {known}")
    return Refusal(
        "NoEngineContainer",
        f"no container starts vLLM's server (containers: {known}); its command or args must hold"
        " `vllm serve` or"
        " `python -m vllm.entrypoints.openai.api_server`, or flags for an image that is named vllm",
    )


def _containers(pod_spec: Mapping[str, Any]) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """Main containers and native sidecars (init containers that restart always)."""
    for key in ("containers", "initContainers"):
        for index, container in enumerate(pod_spec.get(key) or ()):
            if key == "initContainers" and container.get("restartPolicy") != "Always":
                continue
            yield key, index, container


def _candidates(pod_spec: Mapping[str, Any], name: str | None) -> Iterator[Found]:
    for key, index, container in _containers(pod_spec):
        given = str(container.get("name", ""))
        if (name is None or given == name) and starts_vllm(container, named=name is not None):
            yield Found(given, index, container, (key, index))


def starts_vllm(container: Mapping[str, Any], *, named: bool = False) -> bool:
    """Whether the container starts the engine; ``named`` = the user says so, whatever the image."""
    words = [str(w) for key in ("command", "args") for w in container.get(key) or ()]
    if find_entry(words) is not None or any(_SCRIPT.search(word) for word in words):
        return True
    if container.get("command"):
        return False
    image = str(container.get("image", "")).partition("@")[0]
    if named:
        return bool(words)
    repository = image.rpartition("/")[2].partition(":")[0]
    looks_like = _IMAGE.search(image) and not _ROUTER.search(repository)
    if repository == OWN_IMAGE and words:
        return True
    return bool(looks_like) and any(_FLAG.match(word) for word in words)
