"""Join what the node's DCGM exporter measured to the probes of a benchmark.

The launcher's own counters (NVML, and GPM from Hopper on) come first; here their gaps are filled:
a GPU without GPM, an engine image whose container does not see NVML. Joined by time: a probe tells
when its windows were, the pages were read on the operator's clock. Nodes that keep time by NTP
differ by milliseconds, windows last seconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from vllm_tuning.engine.dcgm import GPUReading, collection_interval, mean, usable
from vllm_tuning.reconcile.devices import count_resource
from vllm_tuning.reconcile.names import ENGINE
from vllm_tuning.reconcile.observed import BenchLog, Body
from vllm_tuning.tuning.diagnosis import diagnosed
from vllm_tuning.tuning.model import Bottleneck, GPUActivity, ProbeResult
from vllm_tuning.tuning.run import Event, ProbeEnded, RunEnded, RunStarted

_NVIDIA_RESOURCE: Final = re.compile(r"nvidia\.com/")
"""Extended resources that are NVIDIA GPUs or parts of them."""

_JOINED: Final = (
    "memory_used_bytes",
    "dram_active_percent",
    "sm_active_percent",
    "tensor_active_percent",
    "engine_active_percent",
    "memory_utilization_percent",
    "sm_clock_megahertz",
    "power_watts",
)


@dataclass(frozen=True, slots=True)
class Page:
    """All devices of one page of the exporter, and when it was read in Unix seconds."""

    at: float
    gpus: tuple[GPUReading, ...]


@dataclass(frozen=True, slots=True)
class NodeGPUs:
    """What the exporter on a benchmark pod's node has shown while the bench ran."""

    scrape_seconds: float
    """Time between two pages."""
    pages: tuple[Page, ...] = ()
    problem: str = ""
    """Why the last attempt to read a page failed."""


def gpu_count(pod: Body) -> int:
    """Return how many NVIDIA devices the engine asks for by extended resources."""
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    engine: Body = next((c for c in containers if c["name"] == ENGINE), {})
    return count_resource(engine, _NVIDIA_RESOURCE)


def has_gpus(pod: Body) -> bool:
    """Whether a pod has a device that a DCGM exporter may know."""
    return gpu_count(pod) > 0 or bool((pod.get("spec") or {}).get("resourceClaims"))


@dataclass(frozen=True, slots=True)
class _Device:
    """One of the pod's devices over all pages."""

    readings: tuple[tuple[float, GPUReading], ...]
    age_seconds: float | None
    """How old a value on a page may be; ``None`` = the values never changed."""


@dataclass(frozen=True, slots=True)
class _Devices:
    found: tuple[_Device, ...]
    why_none: str = ""


def complete(log: BenchLog, pod: Body, node: NodeGPUs) -> BenchLog:
    """Fill the gaps of every probe in a bench's log, those of its recommendation included."""
    started = next((event for event in log.events if isinstance(event, RunStarted)), None)
    devices: _Devices | None = None
    filled: dict[str, ProbeResult] = {}
    events: list[Event] = []
    for event in log.events:
        told = event
        if isinstance(event, ProbeEnded) and _has_gaps(event.result):
            devices = devices or _devices(node, pod, frozenset(started.gpus if started else ()))
            told = replace(event, result=_join(event.result, devices))
            filled[event.result.probe.id] = told.result
        elif isinstance(event, RunEnded) and filled:
            found = event.recommendation
            found = replace(
                found,
                result=_as_filled(found.result, filled),
                baseline=_as_filled(found.baseline, filled),
                before=_as_filled(found.before, filled),
                nearest_miss=_as_filled(found.nearest_miss, filled),
            )
            told = replace(event, recommendation=found)
        events.append(told)
    return replace(log, events=tuple(events))


def own_gpus(
    gpus: Sequence[GPUReading], pod: Body, uuids: frozenset[str] = frozenset()
) -> tuple[GPUReading, ...]:
    """Return the pod's devices; none where the page does not tell them for sure.

    By the pod that the exporter names; else, as its mapping has gaps, by the UUIDs that the
    engine's container sees (whole cards only: NVML there names the card, not the MIG instance);
    else all, where the page names no pod at all and has just as many devices as the pod. A device
    that several pods share says nothing about one of them.
    """
    metadata = pod["metadata"]
    mine = [
        gpu
        for gpu in gpus
        if (gpu.identity.namespace, gpu.identity.pod) == (metadata["namespace"], metadata["name"])
    ]
    if not mine:
        split = {gpu.identity.uuid for gpu in gpus if gpu.identity.mig_instance is not None}
        mine = [gpu for gpu in gpus if gpu.identity.uuid in uuids - split]
    if not mine and not uuids and not any(gpu.identity.pod for gpu in gpus):
        mine = list(gpus) if len(gpus) == gpu_count(pod) else []
    return tuple(gpu for gpu in mine if not gpu.shared)


def _has_gaps(result: ProbeResult) -> bool:
    """Whether the pipes are not known of a probe that tells when it was measured."""
    gpu = result.gpu
    known = gpu and None not in (gpu.dram_active_percent, gpu.tensor_active_percent)
    return not known and result.measured_from is not None and result.measured_seconds > 0


def _join(result: ProbeResult, devices: _Devices) -> ProbeResult:
    start = result.measured_from or 0.0
    end = start + result.measured_seconds
    ages = [device.age_seconds for device in devices.found if device.age_seconds is not None]
    if not devices.found:
        return _explained(result, devices.why_none)
    if len(ages) < len(devices.found):
        return _explained(result, "its values never changed")
    readings = [
        reading
        for device, age in zip(devices.found, ages, strict=True)
        for reading in usable(device.readings, start=start, end=end, interval_seconds=age)
    ]
    if not readings:
        seconds = result.measured_seconds
        why_not = f"its values are up to {max(ages):.0f} s old, too old for {seconds:.0f} s"
        return _explained(result, why_not)
    return diagnosed(replace(result, gpu=_fill(result.gpu, readings)))


def _as_filled(result: ProbeResult | None, filled: Mapping[str, ProbeResult]) -> ProbeResult | None:
    """Give a result that the recommendation repeats, perhaps pooled, what its probe has got."""
    probe = filled.get(result.probe.id) if result else None
    if result is None or probe is None or probe.gpu == result.gpu:
        return result
    return diagnosed(replace(result, gpu=probe.gpu))


def _devices(node: NodeGPUs, pod: Body, uuids: frozenset[str]) -> _Devices:
    """Sort the pod's readings by device, each in order of time."""
    if not node.pages:
        return _Devices((), node.problem or "no page was read")
    series: dict[tuple[str, str | None], list[tuple[float, GPUReading]]] = {}
    for page in node.pages:
        for gpu in own_gpus(page.gpus, pod, uuids):
            key = (gpu.identity.uuid, gpu.identity.mig_instance)
            series.setdefault(key, []).append((page.at, gpu))
    found = []
    for readings in series.values():
        interval = collection_interval(readings)
        # Seen through pages: the exporter's interval may be a scrape longer.
        age = None if interval is None else interval + node.scrape_seconds
        found.append(_Device(tuple(readings), age))
    why_none = "" if found else "it does not tell which devices are the benchmark pod's own"
    return _Devices(tuple(found), why_none)


def _fill(known: GPUActivity | None, readings: Sequence[GPUReading]) -> GPUActivity:
    base = known or GPUActivity(source="")
    values: dict[str, Any] = {
        name: value
        for name in _JOINED
        if getattr(base, name) is None and (value := mean(readings, name)) is not None
    }
    if "memory_used_bytes" in values:
        values["memory_used_bytes"] = round(values["memory_used_bytes"])
    source = f"{base.source}+DCGM" if base.source else "DCGM"
    return replace(base, source=source if values else base.source, **values)


def _explained(result: ProbeResult, why_not: str) -> ProbeResult:
    """Say of a point without a bottleneck why the exporter did not help."""
    if result.bottleneck is not Bottleneck.UNKNOWN:
        return result
    evidence = f"{result.bottleneck_evidence}; DCGM exporter: {why_not}".removeprefix("; ")
    return replace(result, bottleneck_evidence=evidence)
