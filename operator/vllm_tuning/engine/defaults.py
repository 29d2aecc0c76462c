"""The limits that vLLM chooses when a flag is not given.

Source: ``EngineArgs.get_batch_defaults`` and ``_set_default_args`` of vLLM 0.8.5 to 0.33. They
depend on release and
device: read the effective value from a running engine where there is one, and take these only
where there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from vllm_tuning.engine.flags.version import at_least

GIB: Final = 2**30
HUGE_BYTES: Final = 160 * GIB
BIG_BYTES: Final = 70 * GIB
SMALL_DEVICES: Final = ("gb10", "dgx spark")
"""Big by memory, small by bandwidth; in the small tier since 0.33."""


@dataclass(frozen=True, slots=True)
class DefaultLimits:
    """What an engine without explicit limits uses, per data-parallel rank."""

    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization_percent: int


def default_limits(
    version: str | None,
    device_memory_bytes: int | None,
    device_name: str | None = None,
    *,
    max_model_len: int | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    chunked_prefill: bool = True,
    world_size: int = 1,
) -> DefaultLimits:
    """The defaults of ``vllm serve``, with what is given explicitly taken as it is.

    No ``device_memory_bytes`` = the engine cannot ask its device (it then takes the small tier); a
    ``device_name`` of ``cpu`` = the CPU back end. An unknown ``version`` counts as the newest.
    """
    seqs, tokens = _tier(version, device_memory_bytes, (device_name or "").lower(), world_size)
    if not chunked_prefill and max_model_len is not None:
        tokens = max(tokens, max_model_len)
    if max_num_batched_tokens is None:
        if max_num_seqs is not None and max_model_len is not None:
            tokens = min(tokens, max_num_seqs * max_model_len)
    else:
        tokens = max_num_batched_tokens
    if max_num_seqs is not None:
        seqs = max_num_seqs
    elif at_least(version, "0.10.1") is not False:
        seqs = min(seqs, tokens)
    percent = 90 if at_least(version, "0.20.0") is False else 92
    return DefaultLimits(seqs, tokens, percent)


def _tier(version: str | None, memory: int | None, name: str, world_size: int) -> tuple[int, int]:
    """``(max_num_seqs, max_num_batched_tokens)`` of the API server."""
    if name == "cpu":
        return 128 * world_size, 2048 * world_size
    since_033 = at_least(version, "0.33.0") is not False
    if memory is None or (since_033 and any(small in name for small in SMALL_DEVICES)):
        return 256, 2048
    if memory >= HUGE_BYTES and at_least(version, "0.28.0") is not False:
        return 1024, 16384
    a100_is_small = at_least(version, "0.9.0") is not False
    if memory >= BIG_BYTES and not (a100_is_small and "a100" in name):
        return 1024, 8192
    return 256, 2048
