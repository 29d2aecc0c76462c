"""The engine's metrics, named, typed, labelled and bucketed as vLLM 0.32 shows them.

Histograms are kept as bucket counts of our own, because one step observes the same gap for every
decoding request: one addition instead of hundreds.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from vllm_tuning.bench.sim.engine import StepOutput
from vllm_tuning.bench.sim.scheduler import Request

_TTFT: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_ITL: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
_LATENCY: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip
_ITERATION: Final = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_PREEMPTIONS: Final = (1, 2, 3, 4, 5, 10, 20)
_PARAMS_N: Final = (1, 2, 5, 10, 20)
_FINISH_REASONS: Final = ("stop", "length", "abort", "error", "repetition")
_PROMPT_SOURCES: Final = ("local_compute", "local_cache_hit", "external_kv_transfer")
_CACHE_TIERS: Final = ("device", "host", "p2p", "disk", "external_unspecified")

_COUNTERS: Final = {
    "vllm:prefix_cache_queries": "Prefix cache queries, in terms of number of queried tokens.",
    "vllm:prefix_cache_hits": "Prefix cache hits, in terms of number of cached tokens.",
    "vllm:external_prefix_cache_queries": "Queried tokens of the KV connector's prefix cache.",
    "vllm:external_prefix_cache_hits": "Cached tokens of the KV connector's prefix cache.",
    "vllm:mm_cache_queries": "Multi-modal cache queries, in terms of number of queried items.",
    "vllm:mm_cache_hits": "Multi-modal cache hits, in terms of number of cached items.",
    "vllm:num_preemptions": "Cumulative number of preemption from the engine.",
    "vllm:prompt_tokens": "Number of prefill tokens processed.",
    "vllm:prompt_tokens_cached": "Number of cached prompt tokens (local + external).",
    "vllm:generation_tokens": "Number of generation tokens processed.",
}


def tokens_buckets(longest: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, ... up to ``longest``."""
    values: list[float] = []
    power = 1
    while True:
        for mantissa in (1, 2, 5):
            if mantissa * power > longest:
                return tuple(values)
            values.append(mantissa * power)
        power *= 10


class BulkHistogram:
    """A histogram that takes one value many times at the cost of one."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(float(bound) for bound in bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count ``value`` ``times`` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        """Buckets as the exposition format wants them."""
        rows: list[tuple[str, float]] = []
        running = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            running += count
            rows.append(("+Inf" if bound == float("inf") else repr(bound), running))
        return rows


class EngineMetrics(Collector):
    """Everything that ``/metrics`` shows of one engine."""

    def __init__(
        self, model_name: str, cache_config: Mapping[str, str], max_model_len: int
    ) -> None:
        self._labels = [model_name, "0"]
        self._cache_config = {**cache_config, "engine": "0"}
        self._created = time.time()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        self.running = 0
        self.waiting = 0
        self.kv_usage = 0.0
        self.counters = dict.fromkeys(_COUNTERS, 0)
        self.finished = dict.fromkeys(_FINISH_REASONS, 0)
        self.rejected = {"max_num_queued_reqs": 0, "max_num_queued_tokens": 0}
        lengths = tokens_buckets(max_model_len)
        self.histograms = {
            name: BulkHistogram(bounds)
            for name, bounds in {
                "vllm:request_prompt_tokens": lengths,
                "vllm:request_generation_tokens": lengths,
                "vllm:iteration_tokens_total": _ITERATION,
                "vllm:request_max_num_generation_tokens": lengths,
                "vllm:request_params_n": _PARAMS_N,
                "vllm:request_params_max_tokens": lengths,
                "vllm:time_to_first_token_seconds": _TTFT,
                "vllm:inter_token_latency_seconds": _ITL,
                "vllm:request_time_per_output_token_seconds": _ITL,
                "vllm:e2e_request_latency_seconds": _LATENCY,
                "vllm:request_queue_time_seconds": _LATENCY,
                "vllm:request_inference_time_seconds": _LATENCY,
                "vllm:request_prefill_time_seconds": _LATENCY,
                "vllm:request_decode_time_seconds": _LATENCY,
                "vllm:request_num_preemptions": _PREEMPTIONS,
                "vllm:request_prefill_kv_computed_tokens": lengths,
            }.items()
        }

    # --- what happens ---------------------------------------------------------------------------

    def step(self, output: StepOutput, previous_end: float, end_of: Callable[[int], float]) -> None:
        """Count one finished step; ``end_of`` tells when an earlier one ended, by index."""
        batch = output.batch
        tokens = batch.decode_requests + len(batch.first_tokens)
        histograms = self.histograms
        counters = self.counters
        counters["vllm:generation_tokens"] += tokens
        counters["vllm:num_preemptions"] += len(batch.preempted)
        prompts = 0
        for request in batch.first_tokens:
            if len(request.spans) > 1:
                gap = output.ended_at - end_of(request.spans[-2][1])
                histograms["vllm:inter_token_latency_seconds"].observe(gap)
            else:
                prompts += request.prompt_tokens - request.cached_tokens
                counters["vllm:prompt_tokens"] += request.prompt_tokens
                counters["vllm:prompt_tokens_cached"] += request.cached_tokens
                histograms["vllm:time_to_first_token_seconds"].observe(
                    output.ended_at - request.arrived_at
                )
        if batch.decode_requests:
            gap = output.ended_at - previous_end
            histograms["vllm:inter_token_latency_seconds"].observe(gap, batch.decode_requests)
        histograms["vllm:iteration_tokens_total"].observe(prompts + tokens)

    def finish(self, request: Request, reason: str, first: float, last: float) -> None:
        """Count a request that has ended. Times are engine seconds."""
        self.finished[reason] += 1
        scheduled = request.arrived_at if request.scheduled_at is None else request.scheduled_at
        observe = {
            "vllm:request_prompt_tokens": request.prompt_tokens,
            "vllm:request_generation_tokens": request.generated,
            "vllm:request_max_num_generation_tokens": request.generated,
            "vllm:request_params_n": 1,
            "vllm:request_params_max_tokens": request.output_tokens,
            "vllm:e2e_request_latency_seconds": last - request.arrived_at,
            # A step that is caught up on may carry a time just before the request came.
            "vllm:request_queue_time_seconds": max(0.0, scheduled - request.arrived_at),
            "vllm:request_inference_time_seconds": last - scheduled,
            "vllm:request_prefill_time_seconds": first - scheduled,
            "vllm:request_decode_time_seconds": last - first,
            "vllm:request_num_preemptions": request.preemptions,
            "vllm:request_prefill_kv_computed_tokens": request.prompt_tokens
            - request.cached_tokens,
            "vllm:request_time_per_output_token_seconds": (last - first)
            / max(1, request.generated - 1),
        }
        for name, value in observe.items():
            self.histograms[name].observe(value)

    # --- what is shown --------------------------------------------------------------------------

    def text(self) -> bytes:
        """Render the exposition text."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Yield the families, for prometheus_client."""
        yield from self._gauges()
        for name, documentation in _COUNTERS.items():
            yield self._counter(name, documentation, (), {(): self.counters[name]})
        computed = self.counters["vllm:prompt_tokens"] - self.counters["vllm:prompt_tokens_cached"]
        sources = (computed, self.counters["vllm:prompt_tokens_cached"], 0)
        yield self._counter(
            "vllm:prompt_tokens_by_source",
            "Number of prompt tokens by source.",
            ("source",),
            {(name,): value for name, value in zip(_PROMPT_SOURCES, sources, strict=True)},
        )
        tiers: dict[tuple[str, ...], float] = {(tier,): 0 for tier in _CACHE_TIERS}
        tiers["device",] = self.counters["vllm:prefix_cache_hits"]
        yield self._counter(
            "vllm:prompt_tokens_cached_by_source",
            "Prefix-cache hit tokens by the cache tier that supplied them.",
            ("source",),
            tiers,
        )
        yield self._counter(
            "vllm:request_success",
            "Count of successfully processed requests.",
            ("finished_reason",),
            {(reason,): count for reason, count in self.finished.items()},
        )
        rejections = CounterMetricFamily(
            "vllm:admission_rejections",
            "Number of admission attempts rejected by a queue limit, by reason.",
            labels=["model_name", "reason"],
        )
        for reason, count in self.rejected.items():
            rejections.add_metric([self._labels[0], reason], count, created=self._created)
        yield rejections
        for name, histogram in self.histograms.items():
            yield self._histogram(name, histogram)
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            labels=list(self._cache_config),
        )
        info.add_metric(list(self._cache_config.values()), 1)
        yield info

    def _gauges(self) -> Iterable[Metric]:
        def gauge(
            name: str, text: str, rows: Mapping[tuple[str, ...], float], *labels: str
        ) -> GaugeMetricFamily:
            family = GaugeMetricFamily(name, text, labels=["model_name", "engine", *labels])
            for values, value in rows.items():
                family.add_metric([*self._labels, *values], value)
            return family

        yield gauge(
            "vllm:num_requests_running",
            "Number of requests in model execution batches.",
            {(): self.running},
        )
        yield gauge(
            "vllm:num_requests_waiting",
            "Number of requests waiting to be processed.",
            {(): self.waiting},
        )
        yield gauge(
            "vllm:num_requests_waiting_by_reason",
            "Number of waiting requests by reason.",
            {("capacity",): self.waiting, ("deferred",): 0},
            "reason",
        )
        yield gauge(
            "vllm:engine_sleep_state",
            "Engine sleep state; awake = 1 means engine is awake.",
            {("awake",): 1, ("weights_offloaded",): 0, ("discard_all",): 0},
            "sleep_state",
        )
        yield gauge(
            "vllm:kv_cache_usage_perc",
            "KV-cache usage. 1 means 100 percent usage.",
            {(): self.kv_usage},
        )

    def _counter(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        rows: Mapping[tuple[str, ...], float],
    ) -> CounterMetricFamily:
        family = CounterMetricFamily(name, text, labels=["model_name", "engine", *labels])
        for values, value in rows.items():
            family.add_metric([*self._labels, *values], value, created=self._created)
        return family

    def _histogram(self, name: str, histogram: BulkHistogram) -> HistogramMetricFamily:
        family = HistogramMetricFamily(
            name, name.removeprefix("vllm:"), labels=["model_name", "engine"]
        )
        family.add_metric(self._labels, histogram.cumulative(), histogram.total)
        # The family has no parameter for it, but the client library's own histograms show it.
        labels = dict(zip(("model_name", "engine"), self._labels, strict=True))
        family.samples.append(Sample(f"{name}_created", labels, self._created))
        return family
