"""The files that carry live limits to the engine and its record back; see also ``bench/hook``.

``limits.json`` is written by the launcher, ``record-<rank>.json`` by each engine core. Both sides
replace whole files.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

FIELDS: dict[str, type] = {
    "window": int,
    "seqs": int,
    "tokens": int,
    "long_prefill_token_threshold": int,
    "chunked": bool,
    "kv_blocks": int,
}
"""Fields of ``limits.json``; all but ``window`` may be null (= as started)."""


def make_directory() -> Path:
    """A fresh directory for one start, in memory where that is possible.

    It is written several times a second.
    """
    shm = Path("/dev/shm")  # noqa: S108 - a private directory is made in it
    parent = shm if os.access(shm, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="vllm-tuning-", dir=parent))


def remove_directory(directory: Path) -> None:
    """Forget a start's files."""
    shutil.rmtree(directory, ignore_errors=True)


def checked_limits(body: dict[str, Any]) -> dict[str, Any]:
    """The content of ``limits.json`` from a request.

    Raises ``ValueError`` naming the wrong field.
    """
    unknown = sorted(set(body) - set(FIELDS))
    if unknown:
        raise ValueError(f"unknown fields: {', '.join(unknown)}")
    for name, kind in FIELDS.items():
        value = body.get(name)
        if value is None and name != "window":
            continue
        if type(value) is not kind:
            raise ValueError(f"{name} must be of type {kind.__name__}")
    return {name: body.get(name) for name in FIELDS}


def write_limits(directory: Path, limits: dict[str, Any]) -> None:
    """Put ``limits`` in force from the engine's next step on."""
    handle, name = tempfile.mkstemp(dir=directory, prefix=".limits-")
    with os.fdopen(handle, "w") as file:
        json.dump(limits, file)
    Path(name).chmod(0o644)
    Path(name).replace(directory / "limits.json")


def read_records(directory: Path) -> list[dict[str, Any]]:
    """The engine cores' records, by rank."""
    records = [json.loads(path.read_text()) for path in directory.glob("record-*.json")]
    return sorted(records, key=lambda record: int(record["rank"]))
