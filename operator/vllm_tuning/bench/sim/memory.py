"""Does a start fit: argument rules and the memory arithmetic of vLLM's profile run.

Texts are those of vLLM 0.32, because the classifier of failed starts reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

from vllm_tuning.bench.sim.parameters import GIB, EngineParameters


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The settings of one start, every default resolved."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    gpu_memory_utilization: float = 0.92
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    enable_prefix_caching: bool = True
    async_scheduling: bool = True
    block_size: int = 16
    max_num_active_seqs: int | None = None
    num_gpu_blocks_override: int | None = None
    kv_cache_memory_bytes: int | None = None
    tensor_parallel_size: int = 1

    @property
    def active_seqs(self) -> int:
        """Requests that may run at once."""
        return self.max_num_active_seqs or self.max_num_seqs

    def largest_graph(self, cap: int) -> int:
        """Largest step, in tokens, for which a CUDA graph is captured, ``cap`` at most.

        vLLM's ``config``, ``_set_cudagraph_sizes``.
        """
        return max(1, min(2 * self.max_num_seqs, cap, self.max_num_batched_tokens))


@dataclass(frozen=True, slots=True)
class StartRefusal:
    """Why the simulated engine does not start."""

    error: str
    """The Python exception's type, as a traceback names it."""
    text: str
    """The engine's own words."""
    in_core: bool
    """True if the engine core fails, after the API server has come up; else the arguments are
    refused.
    """
    frame: str
    """Function of vLLM in which it happens: the classifier tells stages of a start by it."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where the device's memory goes, bytes."""

    kv_bytes: int
    blocks: int
    kv_tokens: int


def check_rules(settings: EngineSettings) -> StartRefusal | None:
    """Return the first argument rule that the settings break."""
    seqs, tokens, longest = (
        settings.max_num_seqs,
        settings.max_num_batched_tokens,
        settings.max_model_len,
    )
    active, threshold = settings.max_num_active_seqs, settings.long_prefill_token_threshold
    share = settings.gpu_memory_utilization
    text, config = "", "SchedulerConfig"
    if min(seqs, tokens) < 1:
        name = "max_num_seqs" if seqs < 1 else "max_num_batched_tokens"
        text = f"{name}\n  Input should be greater than or equal to 1"
    elif not 0 < share <= 1:
        bound = "less than or equal to 1" if share > 1 else "greater than 0"
        text, config = f"gpu_memory_utilization\n  Input should be {bound}", "CacheConfig"
    elif tokens < longest and not settings.enable_chunked_prefill:
        text = (
            f"Value error, max_num_batched_tokens ({tokens}) is smaller than max_model_len "
            f"({longest}). This effectively limits the maximum sequence length to "
            "max_num_batched_tokens and makes vLLM reject longer sequences. Please increase "
            "max_num_batched_tokens or decrease max_model_len."
        )
    elif tokens < seqs:
        text = (
            f"Value error, max_num_batched_tokens ({tokens}) must be greater than or equal to "
            f"max_num_seqs ({seqs})."
        )
    elif active is not None and active > seqs:
        text = (
            f"Value error, max_num_active_seqs ({active}) cannot be greater than max_num_seqs "
            f"({seqs})."
        )
    elif threshold > longest:
        text = (
            f"Value error, long_prefill_token_threshold ({threshold}) cannot be greater than the "
            f"max_model_len ({longest})."
        )
    return _rule(text, config) if text else None


def plan_memory(
    parameters: EngineParameters, settings: EngineSettings
) -> MemoryPlan | StartRefusal:
    """Size the KV cache as the engine does, or say why it cannot start."""
    ranks = settings.tensor_parallel_size
    total = parameters.device_memory_bytes
    wanted = int(total * settings.gpu_memory_utilization)
    if parameters.weights_bytes // ranks > total:
        return _out_of_memory(total, parameters.weights_bytes // ranks, total, "load_model")
    taken = (
        parameters.weights_bytes // ranks
        + parameters.fixed_bytes
        + parameters.activation_bytes_per_token * settings.max_num_batched_tokens // ranks
    )
    per_token = parameters.kv_bytes_per_token // ranks
    available = settings.kv_cache_memory_bytes or wanted - taken
    blocks = available // (per_token * settings.block_size)
    if settings.num_gpu_blocks_override is not None:
        blocks = settings.num_gpu_blocks_override
        available = blocks * per_token * settings.block_size
    plan = MemoryPlan(available, blocks, blocks * settings.block_size)
    return (
        _too_small(settings, plan, per_token)
        or _unprofiled(parameters, settings, taken + available)
        or plan
    )


def out_of_memory(parameters: EngineParameters, settings: EngineSettings) -> StartRefusal:
    """The device's memory ends while CUDA graphs are captured."""
    total = parameters.device_memory_bytes
    used = int(total * settings.gpu_memory_utilization)
    return _out_of_memory(total, total - used + GIB, used, "capture_model")


def memory_taken(parameters: EngineParameters, settings: EngineSettings) -> StartRefusal:
    """Something else holds the device's memory."""
    total = parameters.device_memory_bytes / GIB
    share = settings.gpu_memory_utilization
    text = (
        f"Free memory on device cuda:0 ({total * 0.01:.2f}/{total:.2f} GiB) on startup is less "
        f"than desired GPU memory utilization ({share}, {total * share:.2f} GiB). Decrease GPU "
        "memory utilization or reduce GPU memory used by other processes."
    )
    return StartRefusal("ValueError", text, in_core=True, frame="init_device")


def _too_small(
    settings: EngineSettings, plan: MemoryPlan, bytes_per_token: int
) -> StartRefusal | None:
    see = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
    if plan.blocks <= 0:
        text = (
            "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` "
            "when initializing the engine (this flag also controls CPU memory reservation on "
            f"the CPU backend, despite its name). {see}"
        )
        return StartRefusal("ValueError", text, in_core=True, frame="initialize_from_config")
    if settings.max_model_len <= plan.kv_tokens:
        return None
    needed = settings.max_model_len * bytes_per_token / GIB
    text = (
        f"To serve at least one request with the model's max seq len ({settings.max_model_len}), "
        f"({needed:.2f} GiB KV cache is needed, which is larger than the available KV cache "
        f"memory ({plan.kv_bytes / GIB:.2f} GiB). Based on the available memory, the estimated "
        f"maximum model length is {plan.kv_tokens}. Try increasing `gpu_memory_utilization` "
        "(which also controls CPU memory on the CPU backend) or decreasing "
        f"`max_model_len` when initializing the engine. {see}"
    )
    return StartRefusal("ValueError", text, in_core=True, frame="initialize_from_config")


def _unprofiled(
    parameters: EngineParameters, settings: EngineSettings, used: int
) -> StartRefusal | None:
    """Memory that no profile run foresees: a share too near to 1 ends here."""
    total = parameters.device_memory_bytes
    if used + parameters.unprofiled_bytes > total:
        return _out_of_memory(total, parameters.unprofiled_bytes, used, "capture_model")
    sampler = parameters.sampler_bytes_per_request * settings.max_num_seqs
    if used + parameters.unprofiled_bytes + sampler > total:
        text = (
            f"CUDA out of memory occurred when warming up sampler with {settings.max_num_seqs} "
            "dummy requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization` when "
            "initializing the engine."
        )
        return StartRefusal("RuntimeError", text, in_core=True, frame="_dummy_sampler_run")
    return None


def _out_of_memory(total: int, tried: int, used: int, frame: str) -> StartRefusal:
    text = (
        f"CUDA out of memory. Tried to allocate {tried / GIB:.2f} GiB. GPU 0 has a total capacity "
        f"of {total / GIB:.2f} GiB of which {max(0, total - used) / GIB:.2f} GiB is free."
    )
    return StartRefusal("torch.OutOfMemoryError", text, in_core=True, frame=frame)


def _rule(text: str, config: str) -> StartRefusal:
    words = (
        f"1 validation error for {config}\n  {text} [type=value_error, input_value=ArgsKwargs(()), "
        "input_type=ArgsKwargs]\n    For further information visit "
        "https://errors.pydantic.dev/2.12/v/value_error"
    )
    error = "pydantic_core._pydantic_core.ValidationError"
    return StartRefusal(error, words, in_core=False, frame="create_engine_config")
