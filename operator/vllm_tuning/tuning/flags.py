"""Limits as flags of vLLM: one place for the benchmark's exact start and the target's patch.

If the two differed, the target would run what was never measured.
"""

from __future__ import annotations

from vllm_tuning.tuning.model import Limits


def flag_changes(limits: Limits) -> dict[str, str]:
    """Return canonical flag names and values; what is ``None`` is left as the target has it."""
    changes = {
        "max_num_seqs": str(limits.max_num_seqs),
        "max_num_batched_tokens": str(limits.max_num_batched_tokens),
    }
    if limits.gpu_memory_utilization_percent is not None:
        changes["gpu_memory_utilization"] = f"{limits.gpu_memory_utilization_percent / 100:g}"
    if limits.enable_chunked_prefill is not None:
        changes["enable_chunked_prefill"] = str(limits.enable_chunked_prefill).lower()
    if limits.long_prefill_token_threshold is not None:
        changes["long_prefill_token_threshold"] = str(limits.long_prefill_token_threshold)
    return changes
