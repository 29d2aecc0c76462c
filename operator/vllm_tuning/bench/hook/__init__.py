"""Live limits: a vLLM general plugin that changes the limits of a running engine and records it.

Loaded by the engine through the entry point group ``vllm.general_plugins`` when the launcher
started it with ``TUNING_HOOK_DIR``. Production pods never get it. Standard library only, Python 3.9
or later; it never raises into the engine: what goes wrong stands in the record.
"""

from __future__ import annotations

import os
from pathlib import Path


def register() -> None:
    """Entry point.

    VLLM calls it in every process; only one that makes a scheduler does anything more.
    """
    directory = os.environ.get("TUNING_HOOK_DIR")
    if not directory:
        return
    from .install import install
    from .record import Record

    try:
        from vllm.v1.core.sched.scheduler import Scheduler
    except ImportError as error:
        record = Record(Path(directory), rank=0, scheduler="unknown")
        record.error = f"this vLLM has no V1 scheduler: {error}"
        record.write()
        return
    install(Scheduler, Path(directory))
