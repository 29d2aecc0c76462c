"""What is simulated: a model on a device, as coefficients.

``h200-8b`` is fitted to our own measurements (``benchmarks/simulator/``); the others change one
kind of physics each, so that a search tuned on one of them is seen to work on the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from vllm_tuning.bench.sim.cost import Noise, StepCost
from vllm_tuning.bench.sim.frontend import FrontendCost

GIB: Final = 1 << 30
KIB: Final = 1 << 10


@dataclass(frozen=True, slots=True)
class EngineParameters:
    """One simulated engine."""

    name: str
    device_name: str
    device_memory_bytes: int
    weights_bytes: int
    kv_bytes_per_token: int
    model_max_len: int
    cost: StepCost
    noise: Noise
    architecture: str = "LlamaForCausalLM"
    block_size: int = 16
    activation_bytes_per_token: int = 56 * KIB
    """Peak activation memory per token of ``max_num_batched_tokens``, found by the engine's profile
    run.
    """
    fixed_bytes: int = int(1.4 * GIB)
    """CUDA context, graphs and what else is taken before the KV cache is sized."""
    unprofiled_bytes: int = int(0.9 * GIB)
    """What the profile run does not see: with too high a memory share the engine dies of it."""
    sampler_bytes_per_request: int = 1_539_072
    """Logits of one request during sampler warm-up: vocabulary x 4 bytes x 3 copies."""
    graph_cap: int = 512
    """Largest CUDA graph in tokens."""
    reserve_full_prompt: bool = True
    """Admit a request only if its whole prompt fits the KV cache (vLLM since 0.19)."""
    async_scheduling: bool = True
    host_seconds: float = 0.0003
    """From the decision on a step to its start on an idle device."""
    frontend: FrontendCost = field(default_factory=FrontendCost)
    """The API server, in virtual time; in real time the simulation's own server takes its place."""
    start_seconds: float = 110.0
    """A start in virtual time, seconds."""


_H200 = EngineParameters(
    name="h200-8b",
    device_name="NVIDIA H200",
    device_memory_bytes=143_771 * (1 << 20),
    weights_bytes=int(14.96 * GIB),
    kv_bytes_per_token=128 * KIB,
    model_max_len=8192,
    cost=StepCost(
        fixed=4.929,
        per_request=0.00934,
        per_request_squared=0.03279,
        per_context=0.03004,
        mixed_fixed=4.82,
        mixed_request=0.01714,
        mixed_context=0.03456,
        per_token=15.96,
        per_attention=1.448,
        throttle=0.375,
        heat_seconds=0.1,
        launch_graph=1.5,
        launch_mixed=3.5,
        launch_mixed_per_token=18.6,
        launch_eager=12.73,
        launch_eager_per_request=0.03,
    ),
    noise=Noise(
        step=0.02,
        card=0.03,
        slow_factor=2.0,
        slow_share=0.4,
        slow_share_per_request=0.006,
        slow_seconds=4.0,
    ),
    frontend=FrontendCost(latency=0.003, request=0.0009231, token=0.00005714),
)

PRESETS: Final[dict[str, EngineParameters]] = {
    parameters.name: parameters
    for parameters in (
        _H200,
        # Slow enough that one core serves it and its client, fast enough for runs of seconds.
        EngineParameters(
            name="tiny",
            device_name="Simulated",
            device_memory_bytes=4 * GIB,
            weights_bytes=GIB // 2,
            kv_bytes_per_token=16 * KIB,
            model_max_len=2048,
            activation_bytes_per_token=8 * KIB,
            fixed_bytes=GIB // 8,
            unprofiled_bytes=GIB // 16,
            sampler_bytes_per_request=16 * KIB,
            cost=StepCost(
                fixed=4.0,
                per_request=0.5,
                per_context=0.1,
                mixed_fixed=4.5,
                mixed_request=0.5,
                mixed_context=0.1,
                per_token=40.0,
            ),
            noise=Noise(step=0.03),
            start_seconds=0.3,
        ),
        # A mixture of experts: a decode step gets dearer as its batch wakes more experts.
        replace(
            _H200,
            name="h200-moe",
            architecture="MixtralForCausalLM",
            weights_bytes=int(86.9 * GIB),
            cost=StepCost(
                fixed=5.5,
                per_request=0.02,
                per_context=0.03,
                mixed_fixed=7.0,
                mixed_request=0.03,
                mixed_context=0.04,
                per_token=31.0,
                launch_mixed=8.0,
                launch_eager=18.0,
                expert_saturation=14.0,
                expert_tokens=24.0,
            ),
            noise=Noise(
                step=0.05,
                window=0.03,
                card=0.03,
                stall_probability=0.002,
                stall_milliseconds=20.0,
            ),
        ),
        # Kernels that round every mixed step up to 256 tokens: other budgets waste time.
        replace(
            _H200,
            name="a100-padded",
            device_name="NVIDIA A100-SXM4-80GB",
            device_memory_bytes=81_920 * (1 << 20),
            cost=StepCost(
                fixed=9.0,
                per_request=0.03,
                per_context=0.06,
                mixed_fixed=12.0,
                mixed_request=0.05,
                mixed_context=0.08,
                per_token=52.0,
                per_attention=0.9,
                pad_tokens=256,
            ),
            noise=Noise(step=0.04, window=0.03, card=0.03),
        ),
        # A hot card whose clock wanders for a minute at a time.
        replace(
            _H200,
            name="h200-drifting",
            cost=replace(_H200.cost, heat_seconds=15.0),
            noise=Noise(step=0.06, window=0.04, card=0.05, drift=0.08, drift_seconds=90.0),
        ),
        # A 24 GB card: an 8B model leaves 5 GiB of KV cache, so KV capacity binds before compute.
        EngineParameters(
            name="l4-8b",
            device_name="NVIDIA L4",
            device_memory_bytes=23_034 * (1 << 20),
            weights_bytes=int(14.96 * GIB),
            kv_bytes_per_token=128 * KIB,
            model_max_len=8192,
            cost=StepCost(
                fixed=53.0,
                per_request=0.06,
                per_context=0.45,
                mixed_fixed=56.0,
                mixed_request=0.06,
                mixed_context=0.5,
                per_token=155.0,
                per_attention=4.0,
            ),
            noise=Noise(step=0.02, window=0.02, card=0.02),
        ),
    )
}
