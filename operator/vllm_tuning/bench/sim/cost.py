"""How long one step takes, on the device and on the host.

The form is the one that the H200 measurements follow (``benchmarks/simulator/fit.py``)::

    device, decode only   fixed + per_request n + per_request_squared n^2 + per_context context
    device, with prefill  mixed_fixed + mixed_request n + mixed_context context
                          + (per_token tokens + per_attention pairs) (1 + throttle heat)
    host                  launch: replaying a graph is cheap, launching kernels one by one is not

``n`` is rounded up to the next captured CUDA graph. ``heat`` is the share of the last tenth of a
second spent on prefill (a moving average): a power-capped device lowers its clock within that time.
A step that fits no CUDA graph is launched kernel by kernel, and then the host may well be slower
than the device; it has two speeds and wanders between them, which is most of the difference between
two windows at the same load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vllm_tuning.bench.sim.scheduler import Batch


@dataclass(frozen=True, slots=True)
class StepCost:
    """Coefficients of a step's time: milliseconds, unless the name says otherwise."""

    fixed: float
    """A decode step with nothing in it: weights are read once."""
    per_request: float
    """Per decoding request."""
    per_context: float
    """Per 1,000 tokens of KV cache that decoding requests read."""
    mixed_fixed: float
    """A step with prefill and nothing else."""
    per_token: float
    """Per 1,000 prefill tokens, on a cool device."""
    per_request_squared: float = 0.0
    """Per 1,000 pairs of decoding requests: large batches leave the memory-bound regime."""
    per_attention: float = 0.0
    """Per 1,000,000 pairs of attending tokens in prefill."""
    mixed_request: float = 0.0
    """As ``per_request``, in a step with prefill."""
    mixed_context: float = 0.0
    """As ``per_context``, in a step with prefill."""
    throttle: float = 0.0
    """Share by which a fully heated device is slower at prefill."""
    heat_seconds: float = 0.1
    """Time constant of ``heat``."""
    launch_graph: float = 0.0
    """Host time of a decode step."""
    launch_mixed: float = 0.0
    """Host time of a step with prefill that fits a graph ..."""
    launch_mixed_per_token: float = 0.0
    """... and per 1,000 of its tokens."""
    launch_eager: float = 0.0
    """Host time of a step with prefill that fits none, while the host is fast ..."""
    launch_eager_per_request: float = 0.0
    """... and per running request: they keep the host's other threads busy."""
    expert_saturation: float = 0.0
    """Mixture of experts: added once a step's tokens touch every expert; 0 = dense."""
    expert_tokens: float = 64.0
    """Tokens at which about 63 % of that are reached."""
    pad_tokens: int = 1
    """Steps with prefill are padded up to a multiple of this many tokens."""


@dataclass(frozen=True, slots=True)
class Noise:
    """What makes two equal steps, windows or cards differ. Spreads are relative."""

    step: float = 0.02
    """Of single steps on the device."""
    stall_probability: float = 0.0
    """Chance that a step is hit by a host stall."""
    stall_milliseconds: float = 0.0
    """Mean of the exponential stall."""
    window: float = 0.0
    """Between load windows on one start."""
    card: float = 0.0
    """Between cards."""
    drift: float = 0.0
    """Of a slow random walk that returns to its mean."""
    drift_seconds: float = 60.0
    """Its time constant."""
    slow_factor: float = 1.0
    """How much longer launches without a graph take while the host is slow."""
    slow_share: float = 0.0
    """Mean share of time for which it is; every window draws its own around it."""
    slow_share_per_request: float = 0.0
    """Added to that share for each running request."""
    slow_seconds: float = 3.0
    """Mean length of a slow or fast stretch."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds that one step needs."""

    device: float
    launch: float


def graph_sizes(largest: int) -> tuple[int, ...]:
    """Token counts for which vLLM captures CUDA graphs: 1, 2, 4, by 8 up to 248, by 16 from 256."""
    sizes = [1, 2, 4, *range(8, min(256, largest + 1), 8), *range(256, largest + 1, 16)]
    return tuple(size for size in sizes if size <= largest)


class StepClock:
    """Turns batches into seconds: coefficients, graph buckets and noise of one started engine."""

    def __init__(
        self,
        cost: StepCost,
        noise: Noise,
        graphs: Sequence[int],
        *,
        seed: int,
        card: float = 1.0,
    ) -> None:
        """``card`` is the factor of this card on every step's device time."""
        self._cost = cost
        self._noise = noise
        self._random = np.random.default_rng(seed)
        self._largest = graphs[-1]
        self._bucket = _bucket_table(graphs)
        self._card = card
        self._window = 1.0
        self._heat = 0.0
        self._drift = 0.0
        self._normals: list[float] = []
        self._slow = False
        self._slow_share = noise.slow_share
        self._toggle_at = 0.0
        self.new_window()

    def new_window(self) -> None:
        """Draw what separates one load window from the next."""
        noise = self._noise
        if noise.window:
            self._window = math.exp(self._random.normal(0.0, noise.window))
        if noise.slow_share:
            share = noise.slow_share
            self._slow_share = float(self._random.beta(1.5 * share, 1.5 * (1.0 - share)))

    def times(self, batch: Batch, now: float) -> StepTime:
        """Device and host time of the step, launched at ``now``."""
        cost = self._cost
        requests = batch.decode_requests
        context = 1e-3 * batch.decode_context
        compute = 0.0
        if batch.prefill_tokens:
            padded = -(-batch.prefill_tokens // cost.pad_tokens) * cost.pad_tokens
            compute = (
                1e-3 * cost.per_token * padded + 1e-6 * cost.per_attention * batch.prefill_attention
            )
            device = cost.mixed_fixed + cost.mixed_request * requests + cost.mixed_context * context
            launch = self._launch(batch, now)
        else:
            padded = self._bucket[requests] if requests <= self._largest else requests
            device = (
                cost.fixed
                + cost.per_request * padded
                + 1e-3 * cost.per_request_squared * padded * padded
                + cost.per_context * context
            )
            launch = cost.launch_graph
        if cost.expert_saturation:
            touched = 1.0 - math.exp(-batch.tokens / cost.expert_tokens)
            device += cost.expert_saturation * touched
        if cost.throttle:
            compute = self._throttled(device, compute)
        device = (device + compute) * self._factor(device + compute)
        if self._noise.stall_probability and self._random.random() < self._noise.stall_probability:
            launch += self._random.exponential(self._noise.stall_milliseconds)
        return StepTime(1e-3 * device, 1e-3 * launch)

    def _launch(self, batch: Batch, now: float) -> float:
        cost = self._cost
        if batch.tokens <= self._largest:
            return cost.launch_mixed + 1e-3 * cost.launch_mixed_per_token * batch.tokens
        launch = cost.launch_eager + cost.launch_eager_per_request * batch.running
        return (
            launch * self._noise.slow_factor if self._host_is_slow(batch.running, now) else launch
        )

    def _host_is_slow(self, running: int, now: float) -> bool:
        share = self._slow_share + self._noise.slow_share_per_request * running
        if not share:
            return False
        while now >= self._toggle_at:
            self._slow = bool(self._random.random() < share)
            self._toggle_at = max(now, self._toggle_at) + self._random.exponential(
                self._noise.slow_seconds
            )
        return self._slow

    def _throttled(self, rest: float, compute: float) -> float:
        """Slow the prefill down by the heat that it meets and makes, and remember that heat."""
        cost = self._cost
        total = rest + compute
        own = compute / total
        span = 1e-3 * total / cost.heat_seconds
        kept = math.exp(-span)
        # Mean of the moving average while the step runs.
        mean = own - (own - self._heat) * (1.0 - kept) / span
        self._heat = own - (own - self._heat) * kept
        return compute * (1.0 + cost.throttle * mean)

    def _factor(self, milliseconds: float) -> float:
        noise = self._noise
        factor = self._card * self._window * (1.0 + noise.step * self._normal())
        if noise.drift:
            rate = min(1.0, 1e-3 * milliseconds / noise.drift_seconds)
            self._drift += noise.drift * math.sqrt(2.0 * rate) * self._normal() - rate * self._drift
            factor *= 1.0 + self._drift
        return max(0.2, factor)

    def _normal(self) -> float:
        if not self._normals:
            self._normals = self._random.standard_normal(4096).tolist()
        return self._normals.pop()


def _bucket_table(graphs: Sequence[int]) -> list[int]:
    """Index n gives the smallest graph that holds n tokens."""
    table = [graphs[0]]
    for low, high in zip((0, *graphs), graphs, strict=False):
        table += [high] * (high - low)
    return table
