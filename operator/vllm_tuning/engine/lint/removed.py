"""What to write instead of flags that are gone.

Source: the flag table for when; vLLM's release notes and deprecation messages for what instead.
"""

from __future__ import annotations

from typing import Final

INSTEAD: Final = {
    "device": "drop it: the installed build decides",
    "use_v2_block_manager": "drop it",
    "enable_reasoning": "--reasoning-parser alone",
    "num_scheduler_steps": "drop it: scheduling is asynchronous by itself",
    "multi_step_stream_outputs": "drop it",
    "preemption_mode": "drop it: preempted requests are recomputed",
    "scheduler_delay_factor": "drop it",
    "max_seq_len_to_capture": "--max-cudagraph-capture-size",
    "disable_async_output_proc": "drop it",
    "rope_scaling": "--hf-overrides '{\"rope_scaling\": ...}'",
    "rope_theta": "--hf-overrides '{\"rope_theta\": ...}'",
    "num_lookahead_slots": "--speculative-config",
    "guided_decoding_backend": "--structured-outputs-config.backend",
    "override_pooler_config": "--pooler-config",
    "cuda_graph_sizes": "--cudagraph-capture-sizes",
    "task": "--runner and --convert",
    "disable_log_requests": "drop it: request logging is off unless --enable-log-requests is given",
    "swap_space": "drop it; to keep more KV cache in CPU memory use --kv-offloading-size",
    "max_num_partial_prefills": "--long-prefill-token-threshold",
    "max_long_partial_prefills": "--long-prefill-token-threshold",
    "calculate_kv_scales": "drop it",
    "enable_prompt_adapter": "drop it: use LoRA",
}
