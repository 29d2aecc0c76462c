"""The container's termination message: what is left of a run when its log is lost."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from vllm_tuning.tuning.run import SUMMARY, Summary

LIMIT_BYTES = 4096
"""The kubelet keeps no more of one container's message."""
_DEFAULT = Path("/dev/termination-log")


def write_summary(summary: Summary) -> None:
    """Write the message where the kubelet looks for it; nowhere outside a container."""
    named = os.environ.get("TERMINATION_LOG")
    path = Path(named) if named else _DEFAULT
    if named or path.exists():
        path.write_bytes(render_summary(summary))


def render_summary(summary: Summary) -> bytes:
    """Render JSON of at most 4 KiB; only the message's text is ever cut."""
    data = SUMMARY.dump_json(summary)
    message = summary.message
    while len(data) > LIMIT_BYTES:
        excess = len(data) - LIMIT_BYTES
        message = message[: max(0, len(message) - max(1, excess // 4) - 1)]
        data = SUMMARY.dump_json(replace(summary, message=message + "…"))
    return data
