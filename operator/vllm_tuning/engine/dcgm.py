"""The page of NVIDIA's DCGM exporter: what a GPU did, by device, as far as it may be believed.

Labels changed over its releases and pass through Prometheus: ``Hostname`` became ``hostname``
after 4.5.3, a ServiceMonitor without ``honorLabels`` turns ``pod`` into ``exported_pod``, and
``--use-old-namespace`` writes ``pod_name``. The exporter measures every 30 s unless told otherwise,
and repeats a value until the next measurement.
Source: ``etc/default-counters.csv`` and ``internal/pkg`` of NVIDIA/dcgm-exporter 4.5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from vllm_tuning.engine.exposition import parse_samples

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Field:
    """What becomes of one of DCGM's fields."""

    name: str
    """Ours, of ``GPUReading``."""
    unit: str
    """DCGM's."""
    factor: float = 1.0
    """Turns DCGM's unit into ours."""
    default: bool = True
    """Whether the exporter's ``default-counters.csv`` asks for it; else it must be added there."""


FIELDS: Mapping[str, Field] = {
    "DCGM_FI_DEV_FB_USED": Field("memory_used_bytes", "MiB", MIB),
    "DCGM_FI_DEV_FB_FREE": Field("memory_free_bytes", "MiB", MIB),
    "DCGM_FI_DEV_FB_RESERVED": Field("memory_reserved_bytes", "MiB", MIB),
    "DCGM_FI_PROF_DRAM_ACTIVE": Field("dram_active_percent", "0-1", 100.0),
    "DCGM_FI_PROF_SM_ACTIVE": Field("sm_active_percent", "0-1", 100.0, default=False),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": Field("tensor_active_percent", "0-1", 100.0),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": Field("engine_active_percent", "0-1", 100.0),
    "DCGM_FI_DEV_MEM_COPY_UTIL": Field("memory_utilization_percent", "%"),
    "DCGM_FI_DEV_SM_CLOCK": Field("sm_clock_megahertz", "MHz"),
    "DCGM_FI_DEV_POWER_USAGE": Field("power_watts", "W"),
    "DCGM_FI_DEV_GPU_TEMP": Field("temperature_celsius", "°C"),
    "DCGM_FI_DEV_XID_ERRORS": Field("last_xid", "number"),
}

_BLANK = 0x7FFFFFF0
"""DCGM's blanks (not found, not supported, no permission) are numbers from here up: from this one
as 32-bit integers, from 2**47 as floats, near 2**63 as 64-bit integers. No value that is read here
is as large (``dcgm_structs.h``).
"""


@dataclass(frozen=True, slots=True)
class GPUIdentity:
    """Which device, and whose it is by the exporter's account."""

    uuid: str
    mig_instance: str | None = None
    """GPU instance id; ``None`` = the whole card."""
    model: str | None = None
    host: str | None = None
    pod: str | None = None
    namespace: str | None = None
    container: str | None = None


@dataclass(frozen=True, slots=True)
class GPUReading:
    """One device's values of one page; absent = ``None``."""

    identity: GPUIdentity
    memory_used_bytes: float | None = None
    memory_free_bytes: float | None = None
    memory_reserved_bytes: float | None = None
    dram_active_percent: float | None = None
    """Share of cycles in which the memory interface was busy: bandwidth, not capacity."""
    sm_active_percent: float | None = None
    tensor_active_percent: float | None = None
    engine_active_percent: float | None = None
    memory_utilization_percent: float | None = None
    """Share of *time* with any memory access; near 100 at the least load."""
    sm_clock_megahertz: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    last_xid: float | None = None
    """The last XID error; 0 = none."""
    measured_at: float | None = None
    """Unix seconds, where the exporter writes time stamps; the oldest of the values'."""
    shared: bool = False
    """Several pods are listed for the device: its values are of them all."""


def read_gpus(text: str) -> tuple[GPUReading, ...]:
    """Read a page: one reading per device or MIG instance, in the page's order."""
    values: dict[tuple[str, str | None], dict[str, float]] = {}
    identities: dict[tuple[str, str | None], GPUIdentity] = {}
    times: dict[tuple[str, str | None], list[float]] = {}
    pods: dict[tuple[str, str | None], set[tuple[str | None, str | None]]] = {}
    for sample in parse_samples(text, FIELDS):
        uuid = sample.labels.get("UUID") or sample.labels.get("uuid")
        if not uuid or not _known(sample.value):
            continue
        key = (uuid, sample.labels.get("GPU_I_ID") or None)
        field = FIELDS[sample.name]
        # Time slicing with virtual GPUs repeats a device once per pod: the value is the same.
        values.setdefault(key, {})[field.name] = sample.value * field.factor
        identity = _identity(*key, sample.labels)
        identities.setdefault(key, identity)
        pods.setdefault(key, set()).add((identity.namespace, identity.pod))
        if sample.timestamp_ms is not None:
            times.setdefault(key, []).append(sample.timestamp_ms / 1e3)
    return tuple(
        GPUReading(
            identities[key],
            **found,
            measured_at=min(times.get(key, ()), default=None),
            shared=len(pods[key]) > 1,
        )
        for key, found in values.items()
    )


def _known(value: float) -> bool:
    return value == value and abs(value) < _BLANK  # noqa: PLR0124 - NaN is not equal to itself


def _identity(uuid: str, instance: str | None, labels: Mapping[str, str]) -> GPUIdentity:
    def first(*names: str) -> str | None:
        return next((labels[name] for name in names if labels.get(name)), None)

    # Where Prometheus renamed the workload's labels, the plain ones are the exporter's own pod's.
    return GPUIdentity(
        uuid=uuid,
        mig_instance=instance,
        model=first("modelName"),
        host=first("Hostname", "hostname"),
        pod=first("exported_pod", "pod", "pod_name"),
        namespace=first("exported_namespace", "namespace", "pod_namespace"),
        container=first("exported_container", "container", "container_name"),
    )


def collection_interval(readings: Sequence[tuple[float, GPUReading]]) -> float | None:
    """Return how often the exporter really measures one device, from pages at known times.

    The shortest time between two changes of any value; ``None`` while fewer than two were seen.
    An idle card whose values stand still looks slower than it is, which errs on the safe side.
    """
    changes = [
        at
        for (_, old), (at, new) in pairwise(readings)
        if any(getattr(old, field.name) != getattr(new, field.name) for field in FIELDS.values())
    ]
    return min((b - a for a, b in pairwise(changes)), default=None)


def usable(
    readings: Iterable[tuple[float, GPUReading]],
    *,
    start: float,
    end: float,
    interval_seconds: float,
) -> tuple[GPUReading, ...]:
    """Return the readings that were measured inside the window, at Unix times ``start`` to ``end``.

    A value is as old as its time stamp says, else up to one interval older than its page. Where the
    exporter's interval is more than half the window nothing is usable: one value from somewhere
    around the window would pass for a mean over it.
    """
    if interval_seconds > (end - start) / 2:
        return ()
    return tuple(
        reading
        for at, reading in readings
        if (
            start <= reading.measured_at <= end
            if reading.measured_at is not None
            else start + interval_seconds <= at <= end
        )
    )


def mean(readings: Sequence[GPUReading], name: str) -> float | None:
    """Return the mean of a value over readings, ``None`` if none has it."""
    known = [value for reading in readings if (value := getattr(reading, name)) is not None]
    return sum(known) / len(known) if known else None
