"""Trace files on disk, as a run's workload names them."""

from __future__ import annotations

import hashlib
from pathlib import Path

from vllm_tuning.tuning.recorded import Trace, TraceError, parse_trace


def read_trace(path: Path, *, sha256: str | None = None) -> Trace:
    """Read a trace file.

    ``sha256`` is that of the content that was asked for, in hexadecimal. Raises ``TraceError``,
    also when it is another content.
    """
    try:
        data = path.read_bytes()
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: {error}") from error
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256:
        raise TraceError(
            f"{path} is not what it was when this run was made: its content has changed since"
        )
    return parse_trace(text, name=str(path))
