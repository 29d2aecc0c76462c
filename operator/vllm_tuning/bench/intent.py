"""Checks that a started engine runs with the limits that were asked for."""

from __future__ import annotations

from vllm_tuning.engine.startlog import StartFacts
from vllm_tuning.tuning.model import FailureKind, Limits, StartFailure


def check_intent(limits: Limits, said: StartFacts) -> StartFailure | None:
    """Compare what the engine says of its args with what was asked.

    A server with other limits measures nothing. A wrapper script may drop or override flags, an
    abbreviation may have won, a config file may be read elsewhere.
    """
    if said.non_default_args is None:
        return StartFailure(
            FailureKind.ENVIRONMENT,
            "ArgumentsNotVerified",
            "the engine's log has no line 'non-default args', so its limits cannot be verified: "
            "set VLLM_LOGGING_LEVEL=INFO on the target",
        )
    wanted: dict[str, object] = {
        "max_num_seqs": limits.max_num_seqs,
        "max_num_batched_tokens": limits.max_num_batched_tokens,
    }
    told: dict[str, object] = {
        "max_num_seqs": said.max_num_seqs,
        "max_num_batched_tokens": said.max_num_batched_tokens,
    }
    if limits.enable_chunked_prefill is not None and said.chunked_prefill is not None:
        wanted["enable_chunked_prefill"] = limits.enable_chunked_prefill
        told["enable_chunked_prefill"] = said.chunked_prefill
    share = said.args.get("gpu_memory_utilization")  # absent when it is the default
    if limits.gpu_memory_utilization_percent is not None and isinstance(share, float):
        wanted["gpu_memory_utilization"] = limits.gpu_memory_utilization_percent / 100
        told["gpu_memory_utilization"] = share
    wrong = [
        f"{name} {told[name]}, not {value}" for name, value in wanted.items() if told[name] != value
    ]
    if not wrong:
        return None
    return StartFailure(
        FailureKind.ENVIRONMENT,
        "ArgumentsNotTaken",
        f"the engine runs with {'; '.join(wrong)}: something between the command line and the "
        "engine changes its flags (a wrapper script, a config file)",
    )
