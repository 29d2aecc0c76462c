"""What vLLM prints while it starts, or fails to: the lines that people and parsers read (0.32)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any, TextIO

from vllm_tuning.bench.sim.cost import graph_sizes
from vllm_tuning.bench.sim.memory import EngineSettings, MemoryPlan, StartRefusal
from vllm_tuning.bench.sim.parameters import GIB, EngineParameters

VERSION = "0.32.0"


class StartLog:
    """Writes log lines with vLLM's prefixes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._server = os.getpid()
        self._core = self._server + 1

    def server(self, source: str, message: str, level: str = "INFO") -> None:
        """Write a line of the API server."""
        self._write(f"(APIServer pid={self._server}) ", source, message, level)

    def core(self, source: str, message: str, level: str = "INFO") -> None:
        """Write a line of the engine core."""
        self._write(f"(EngineCore pid={self._core}) ", source, message, level)

    def plain(self, message: str) -> None:
        """Write lines that carry the process but no level, as uvicorn's and tracebacks do."""
        for line in message.split("\n"):
            print(f"(APIServer pid={self._server}) {line}", file=self._stream)
        self._stream.flush()

    def _write(self, process: str, source: str, message: str, level: str) -> None:
        stamp = time.strftime("%m-%d %H:%M:%S")
        for line in message.split("\n"):
            print(f"{process}{level} {stamp} [{source}] {line}", file=self._stream)
        self._stream.flush()

    # --- the stages of a start ------------------------------------------------------------------

    def arguments(self, model: str, given: Mapping[str, Any]) -> None:
        """Write the banner and the arguments as the parser understood them."""
        self.server("api_utils.py:339", f"vLLM API server version {VERSION} (simulated)")
        self.server("api_utils.py:286", f"non-default args: {dict(given)!r}")
        self.server("model.py:733", f"Serving {model} from a simulated engine")

    def config(self, parameters: EngineParameters, settings: EngineSettings) -> None:
        """Write the resolved configuration."""
        self.server("model.py:733", f"Resolved architecture: {parameters.architecture}")
        self.server("model.py:2152", f"Using max model len {settings.max_model_len}")
        if settings.enable_chunked_prefill:
            tokens = settings.max_num_batched_tokens
            self.server(
                "scheduler.py:308",
                f"Chunked prefill is enabled with max_num_batched_tokens={tokens}.",
            )
        if settings.async_scheduling:
            self.server("vllm.py:1006", "Asynchronous scheduling is enabled.")
        most = settings.max_num_seqs * settings.max_model_len
        if settings.max_num_batched_tokens > most:
            self.server(
                "scheduler.py:346",
                f"max_num_batched_tokens ({settings.max_num_batched_tokens}) exceeds max_num_seqs "
                f"* max_model_len ({most}). This may lead to unexpected behavior.",
                "WARNING",
            )

    def loading(self, parameters: EngineParameters, settings: EngineSettings) -> None:
        """Write the engine's configuration and the load of the weights."""
        graphs = list(graph_sizes(settings.largest_graph(parameters.graph_cap)))
        self.core(
            "core.py:114",
            f"Initializing a V1 LLM engine (v{VERSION}) with config: simulated, "
            f"compilation_config={{'cudagraph_capture_sizes': {graphs}}}",
        )
        gib = parameters.weights_bytes / GIB
        self.core(
            "model_runner.py:424", f"Model loading took {gib:.2f} GiB memory and 0.100000 seconds"
        )

    def memory(self, settings: EngineSettings, memory: MemoryPlan, seconds: float) -> None:
        """Write the size of the KV cache and the end of the core's start."""
        longest = settings.max_model_len
        self.core(
            "gpu_worker.py:760", f"Available KV cache memory: {memory.kv_bytes / GIB:.2f} GiB"
        )
        self.core(
            "kv_cache_utils.py:2328",
            f"GPU KV cache size: {memory.kv_tokens:,} tokens, Maximum concurrency for {longest:,} "
            f"tokens per request: {memory.kv_tokens / longest:.2f}x",
        )
        self.core("model_runner.py:1128", "Graph capturing finished in 0 secs, took 0.59 GiB")
        self.core(
            "core.py:403",
            f"init engine (profile, create kv cache, warmup model) took {seconds:.2f} s",
        )

    def serving(self, address: str) -> None:
        """Write what the API server says when it is ready."""
        self.server("entry.py:140", f"Starting vLLM server on {address}")
        self.server("launcher.py:37", "Available routes are:")
        self.plain(f"INFO:     Started server process [{self._server}]")
        self.plain("INFO:     Waiting for application startup.")
        self.plain("INFO:     Application startup complete.")

    def refused(self, refusal: StartRefusal) -> None:
        """Write the traceback of a start that failed."""
        frame = f'  File "<simulated>", line 1, in {refusal.frame}'
        if not refusal.in_core:
            self.plain("Traceback (most recent call last):")
            self.plain(frame)
            self.plain(f"{refusal.error}: {refusal.text}")
            return
        self.core("core.py:1210", "EngineCore failed to start.", "ERROR")
        self.core("core.py:1210", "Traceback (most recent call last):", "ERROR")
        self.core("core.py:1210", frame, "ERROR")
        self.core("core.py:1210", f"{refusal.error}: {refusal.text}", "ERROR")
        self.plain("Traceback (most recent call last):")
        self.plain(
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core "
            "proc(s): {'EngineCore_DP0': 1}"
        )

    def died(self) -> None:
        """Write what is seen when the engine core dies while it serves."""
        self.core("core.py:1240", "EngineCore encountered a fatal error.", "ERROR")
        self.core("core.py:1240", "Traceback (most recent call last):", "ERROR")
        self.core(
            "core.py:1240",
            "torch.AcceleratorError: CUDA error: unspecified launch failure",
            "ERROR",
        )
        self.server(
            "async_llm.py:715",
            "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack "
            "trace (above) for the root cause.",
            "ERROR",
        )
