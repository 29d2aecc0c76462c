"""A DCGM exporter that serves the real format, with values of the test's making."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

_FIELDS = {
    "DCGM_FI_DEV_SM_CLOCK": "SM clock frequency (in MHz).",
    "DCGM_FI_DEV_POWER_USAGE": "Power draw (in W).",
    "DCGM_FI_DEV_FB_USED": "Framebuffer memory used (in MiB).",
    "DCGM_FI_DEV_GPU_UTIL": "GPU utilization (in %).",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "Ratio of time the graphics engine is active.",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "Ratio of cycles the tensor (HMMA) pipe is active.",
    "DCGM_FI_PROF_DRAM_ACTIVE": "Ratio of cycles the device memory interface is active.",
}


class DCGMExporter:
    """Serves ``/metrics`` on 127.0.0.1; the power rises a little with each collection."""

    def __init__(self, *, collect_seconds: float = 0.0) -> None:
        self.collect_seconds = collect_seconds
        """The exporter's interval; 0 = a value is as fresh as its page."""
        self.pod = ("", "")
        """Namespace and name of the pod that has the device."""
        self.values: dict[str, float] = {
            "DCGM_FI_DEV_SM_CLOCK": 1980,
            "DCGM_FI_DEV_FB_USED": 133923,
            "DCGM_FI_DEV_GPU_UTIL": 99,
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.994,
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.029,
            "DCGM_FI_PROF_DRAM_ACTIVE": 0.634,
        }
        self.answer: Callable[[], tuple[int, dict[str, str], bytes]] = lambda: (
            200,
            {"Content-Type": "text/plain; version=0.0.4"},
            self.page().encode(),
        )
        self.served: list[float] = []
        """Unix seconds of each page."""
        self._began = time.time()
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                exporter.served.append(time.time())
                status, headers, body = exporter.answer()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def page(self) -> str:
        """The page as it is now."""
        age = time.time() - self._began
        if self.collect_seconds:
            age -= age % self.collect_seconds
        namespace, pod = self.pod
        labels = (
            'gpu="0",UUID="GPU-1",pci_bus_id="00000000:18:00.0",device="nvidia0",'
            'modelName="NVIDIA H200",Hostname="gpu-node",DCGM_FI_DRIVER_VERSION="580.95.05",'
            f'container="engine",namespace="{namespace}",pod="{pod}"'
        )
        values = {**self.values, "DCGM_FI_DEV_POWER_USAGE": 500 + age}
        return "".join(
            f"# HELP {name} {_FIELDS[name]}\n# TYPE {name} gauge\n{name}{{{labels}}} {value:.6f}\n"
            for name, value in values.items()
        )
