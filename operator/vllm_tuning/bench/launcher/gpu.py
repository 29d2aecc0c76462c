"""GPU counters from NVML, and from GPM where the GPU has it (Hopper and later). No GPU, no samples.

Percent is 0-100. What the driver does not answer is left out of a sample, never zero.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

INTERVAL_SECONDS = 1.0
KEPT_SAMPLES = 7200
"""Two hours of one GPU; the bench fetches after every probe."""

GPM_METRICS = {"sm_active_percent": 2, "tensor_active_percent": 5, "dram_active_percent": 10}
"""NVML_GPM_METRIC_SM_UTIL, _ANY_TENSOR_UTIL, _DRAM_BW_UTIL."""


def open_devices(environ: Mapping[str, str]) -> tuple[list[Device], str | None]:
    """The GPUs that the engine can see, and why there are none."""
    try:
        import pynvml
    except ImportError:
        return [], "pynvml is not installed"
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        return [], f"NVML: {error}"
    devices = [Device(pynvml, index, handle) for index, handle in enumerate(handles)]
    return _visible(devices, environ.get("CUDA_VISIBLE_DEVICES")), None


def _visible(devices: list[Device], wanted: str | None) -> list[Device]:
    """Those that ``CUDA_VISIBLE_DEVICES`` names by index or UUID.

    All of them when it names none that is known.
    """
    names = [name.strip() for name in (wanted or "").split(",") if name.strip()]
    chosen = [
        d for d in devices if any(n == str(d.index) or (d.uuid or "").startswith(n) for n in names)
    ]
    return chosen or devices


class Device:
    """One GPU as NVML shows it."""

    def __init__(self, nvml: Any, index: int, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self.index = index
        self.name: str | None = _text(self._ask(lambda: nvml.nvmlDeviceGetName(handle)))
        self.uuid: str | None = _text(self._ask(lambda: nvml.nvmlDeviceGetUUID(handle)))
        supported = self._ask(lambda: nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        buffers = [self._ask(nvml.nvmlGpmSampleAlloc) for _ in range(2)] if supported else []
        self._gpm_buffers: list[Any] = [buffer for buffer in buffers if buffer is not None]
        self._gpm_has_sample = False
        self._work_seen_until: int | None = None

    def describe(self) -> dict[str, Any]:
        """Name, UUID, memory in bytes and driver."""
        memory = self._ask(lambda: self._nvml.nvmlDeviceGetMemoryInfo(self._handle))
        return {
            "index": self.index,
            "name": self.name,
            "uuid": self.uuid,
            "memory_bytes": memory.total if memory else None,
            "memory_used_bytes": memory.used if memory else None,
            "driver": _text(self._ask(self._nvml.nvmlSystemGetDriverVersion)),
            "gpm": bool(self._gpm_buffers),
        }

    def sample(self) -> dict[str, Any]:
        """All counters now; those of GPM cover the time since the last call."""
        nvml, handle = self._nvml, self._handle
        memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        utilization = self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        power = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        values = {
            "memory_used_bytes": memory.used if memory else None,
            "gpu_utilization_percent": utilization.gpu if utilization else None,
            "memory_utilization_percent": utilization.memory if utilization else None,
            "power_watts": power / 1000 if power is not None else None,
            "sm_clock_megahertz": self._ask(
                lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)
            ),
            "temperature_celsius": self._ask(lambda: nvml.nvmlDeviceGetTemperature(handle, 0)),
            "throttle_reasons": self._throttle_reasons(),
            "process_sm_percent": self._work_by_process(),
            **self._gpm_values(),
        }
        return {name: value for name, value in values.items() if value is not None}

    def _throttle_reasons(self) -> int | None:
        nvml = self._nvml
        new = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        ask = new or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        reasons = self._ask(lambda: ask(self._handle))
        return int(reasons) if reasons is not None else None

    def _work_by_process(self) -> dict[str, int] | None:
        """Percent of the time since the last call in which each process had kernels on the GPU.

        Pids are of this container or of the host, as the driver has it, so they only tell processes
        apart. ``None`` on the first call, which reaches back without end, and where NVML does not
        answer (MIG).
        """
        nvml, since = self._nvml, self._work_seen_until
        try:
            told = nvml.nvmlDeviceGetProcessUtilization(self._handle, since or 0)
        except (nvml.NVMLError, AttributeError) as error:
            if not isinstance(error, getattr(nvml, "NVMLError_NotFound", ())):
                return None
            told = []  # nobody worked
        # Rows that the driver has not filled have no time, or percents beyond all bounds.
        rows = [row for row in told if row.timeStamp > (since or 0) and row.smUtil <= 100]
        self._work_seen_until = max([since or 0, *(row.timeStamp for row in rows)])
        return None if since is None else {str(row.pid): row.smUtil for row in rows}

    def _gpm_values(self) -> dict[str, float]:
        """What GPM counted since the last sample; two buffers take turns."""
        nvml = self._nvml
        if len(self._gpm_buffers) != 2:
            return {}
        old, new = self._gpm_buffers
        had_old, self._gpm_has_sample = self._gpm_has_sample, False
        if self._ask(lambda: nvml.nvmlGpmSampleGet(self._handle, new)) is None:
            return {}
        self._gpm_buffers = [new, old]
        self._gpm_has_sample = True
        return self._gpm_between(old, new) if had_old else {}

    def _gpm_between(self, old: Any, new: Any) -> dict[str, float]:
        nvml = self._nvml
        query = nvml.c_nvmlGpmMetricsGet_t()
        query.version = nvml.NVML_GPM_METRICS_GET_VERSION
        query.numMetrics = len(GPM_METRICS)
        query.sample1, query.sample2 = old, new
        for slot, number in enumerate(GPM_METRICS.values()):
            query.metrics[slot].metricId = number
        if self._ask(lambda: nvml.nvmlGpmMetricsGet(query)) is None:
            return {}
        answered = {name: query.metrics[slot] for slot, name in enumerate(GPM_METRICS)}
        return {
            name: float(metric.value)
            for name, metric in answered.items()
            if metric.nvmlReturn == nvml.NVML_SUCCESS
        }

    def _ask(self, call: Callable[[], Any]) -> Any:
        """What NVML answers; ``None`` where driver or GPU lacks it."""
        with contextlib.suppress(self._nvml.NVMLError, AttributeError):
            return call()
        return None


class Sampler:
    """A thread that keeps the latest samples of all devices."""

    def __init__(self, devices: list[Device]) -> None:
        self._devices = devices
        self._samples: deque[dict[str, Any]] = deque(maxlen=KEPT_SAMPLES * max(1, len(devices)))

    def begin(self) -> None:
        """Sample from now on, when there is something to sample."""
        if self._devices:
            threading.Thread(target=self._run, name="gpu", daemon=True).start()

    def since(self, unix_seconds: float) -> list[dict[str, Any]]:
        """Samples later than that, oldest first.

        Each has ``time`` (unix seconds) and ``device`` (index).
        """
        return [sample for sample in list(self._samples) if sample["time"] > unix_seconds]

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            for device in self._devices:
                self._samples.append(
                    {"time": time.time(), "device": device.index, **device.sample()}
                )
            due = max(due + INTERVAL_SECONDS, time.monotonic())
            time.sleep(due - time.monotonic())


def _text(value: Any) -> str | None:
    return value.decode() if isinstance(value, bytes) else value
