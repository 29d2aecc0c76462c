"""How limits and loads are written for people: one spelling in messages, traces and reports."""

from __future__ import annotations

from vllm_tuning.tuning.model import Limits, Load, OpenLoad


def load_text(load: Load) -> str:
    """``38.22 req/s`` or ``64 clients``."""
    if isinstance(load, OpenLoad):
        return f"{load.rate_per_second:.4g} req/s"
    return f"{load.concurrency} client{'s' if load.concurrency != 1 else ''}"


def describe(limits: Limits) -> str:
    """Name a pair as people write it: ``seqs 96, tokens 2048``."""
    parts = [f"seqs {limits.max_num_seqs}", f"tokens {limits.max_num_batched_tokens}"]
    if limits.enable_chunked_prefill is not None:
        parts.append(f"chunked prefill {'on' if limits.enable_chunked_prefill else 'off'}")
    if limits.gpu_memory_utilization_percent is not None:
        parts.append(f"memory {limits.gpu_memory_utilization_percent} %")
    return ", ".join(parts)
