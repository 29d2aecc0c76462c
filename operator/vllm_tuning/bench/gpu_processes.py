"""Work on the engine's GPUs that is not the engine's.

Presence says nothing: a driver that knows PID namespaces hides the processes of other containers
from NVML's list, and shows those of this one without their memory (NVIDIA's open kernel modules:
``gpuGetProcWithObject`` leaves out what has no pid in the caller's namespace); one that does not
lists the pids of the host. Memory says nothing either: the engine's own grows under load. But every
process that *works* on the device is in ``nvmlDeviceGetProcessUtilization``, with a pid of one
namespace or the other. So a pid here is a name without meaning, and whose it is follows from when
it worked: the engine's processes are those that worked while it started and not before.

What this cannot see: MIG instances (NVML does not answer; the hardware keeps them apart), and
clients of MPS that the driver accounts to one server process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

LOOK_BACK_SECONDS = 10.0
"""How long before a start the work of others is looked for."""

Sample = Mapping[str, Any]
"""The launcher's: ``time``, ``device`` and, where NVML answers, ``process_sm_percent`` by pid."""

Processes = Mapping[int, frozenset[str]]
"""Pids by device."""


def engine_processes(samples: Sequence[Sample], began: float) -> Processes:
    """Tell the engine's processes by what worked since its start ``began`` (unix s).

    ``samples`` reach back before it. What worked then is another's, except that the last engine
    is gone by now.
    """
    before, since = defaultdict[int, set[str]](set), defaultdict[int, set[str]](set)
    for sample in samples:
        working = {pid for pid, percent in _work(sample).items() if percent > 0}
        (since if sample["time"] > began else before)[sample["device"]] |= working
    return {device: frozenset(pids - before[device]) for device, pids in since.items()}


def others_percent(samples: Sequence[Sample], engine: Processes) -> float | None:
    """Share of time with kernels of other processes on the busiest device; ``None`` = not told.

    A device on which the engine was not seen at its start counts its busiest process as the
    engine.
    """
    taken = defaultdict[int, list[dict[str, float]]](list)
    for sample in samples:
        if "process_sm_percent" in sample:
            taken[sample["device"]].append(_work(sample))
    return max(
        (_others(rows, engine.get(at, frozenset())) for at, rows in taken.items()), default=None
    )


def _others(rows: Sequence[Mapping[str, float]], engine: frozenset[str]) -> float:
    totals = defaultdict[str, float](float)
    for row in rows:
        for pid, percent in row.items():
            totals[pid] += percent
    if not engine & totals.keys() and totals:
        engine = frozenset({max(totals, key=lambda pid: totals[pid])})
    return sum(total for pid, total in totals.items() if pid not in engine) / len(rows)


def _work(sample: Sample) -> dict[str, float]:
    return dict(sample.get("process_sm_percent", {}))
