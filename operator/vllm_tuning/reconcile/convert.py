"""From the words of the core to those of the API: what status and trials show of a measurement."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from vllm_tuning.api import values as api
from vllm_tuning.api.base import decimal
from vllm_tuning.api.recommendation import GainRange
from vllm_tuning.tuning import model

MAX_MESSAGE = 1024
"""Characters of a short text in the API."""


def short(text: str, limit: int = MAX_MESSAGE) -> str:
    """Cut a text to what the schema allows."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def at(unix_seconds: float) -> datetime:
    """Turn the bench's clock into an aware time, to the second."""
    return datetime.fromtimestamp(int(unix_seconds), tz=UTC)


def limits(value: model.Limits) -> api.BatchLimits:
    """Show limits."""
    return api.BatchLimits(
        max_num_seqs=value.max_num_seqs,
        max_num_batched_tokens=value.max_num_batched_tokens,
        gpu_memory_utilization_percent=value.gpu_memory_utilization_percent,
        enable_chunked_prefill=value.enable_chunked_prefill,
        long_prefill_token_threshold=value.long_prefill_token_threshold,
    )


def core_limits(value: api.BatchLimits) -> model.Limits:
    """Say stored limits in the core's words."""
    return model.Limits(
        max_num_seqs=value.max_num_seqs,
        max_num_batched_tokens=value.max_num_batched_tokens,
        gpu_memory_utilization_percent=value.gpu_memory_utilization_percent,
        enable_chunked_prefill=value.enable_chunked_prefill,
        long_prefill_token_threshold=value.long_prefill_token_threshold,
    )


def load(value: model.Load) -> api.LoadPoint:
    """Show an offered load."""
    match value:
        case model.OpenLoad(rate_per_second=rate):
            return api.LoadPoint(arrival=api.LoadKind.OPEN, requests_per_second=decimal(rate))
        case model.ClosedLoad(concurrency=clients):
            return api.LoadPoint(arrival=api.LoadKind.CLOSED, concurrency=clients)


def slo(value: model.SLO) -> api.SLO:
    """Show an SLO."""
    return api.SLO(
        metric=api.SLOMetric(value.metric),
        percentile=value.percentile,
        max_milliseconds=value.max_milliseconds,
        max_percent=value.max_percent,
    )


def core_slo(value: api.SLO) -> model.SLO:
    """Say an SLO in the core's words."""
    return model.SLO(
        metric=model.Metric(value.metric),
        percentile=value.percentile,
        max_milliseconds=value.max_milliseconds,
        max_percent=value.max_percent,
    )


def slo_outcomes(results: Iterable[model.SLOResult]) -> tuple[api.SLOOutcome, ...]:
    """Show how each SLO fared."""
    return tuple(
        api.SLOOutcome(
            slo=slo(result.slo),
            observed_milliseconds=decimal(result.observed_milliseconds, 1),
            attainment_percent=decimal(_percent(result.attainment), 2),
            margin_percent=decimal(_margin_percent(result), 1),
            verdict=api.MeasuredVerdict(result.verdict),
        )
        for result in results
    )


def margins(values: Iterable[model.SLOMargin]) -> tuple[api.SLOOutcome, ...]:
    """Show the room left to each SLO."""
    return tuple(
        api.SLOOutcome(
            slo=slo(value.slo),
            observed_milliseconds=decimal(value.observed_milliseconds, 1),
            attainment_percent=decimal(_percent(value.attainment), 2),
            margin_percent=decimal(value.margin_percent, 1),
        )
        for value in values
    )


def gain_range(found: model.Recommendation) -> GainRange | None:
    """Show what the measurements allow a gain to be."""
    if found.gain_range_percent is None:
        return None
    least, greatest = found.gain_range_percent
    return GainRange(least=round(least), greatest=round(greatest))


def metrics(result: model.ProbeResult) -> api.Metrics:
    """Show the figures of a load point; what was not measured stays absent."""
    return api.Metrics(
        ttft_milliseconds=_latency(result.ttft),
        tpot_milliseconds=_latency(result.tpot),
        itl_milliseconds=_latency(result.itl),
        max_gap_milliseconds=_latency(result.max_gap),
        e2e_milliseconds=_latency(result.e2e),
        requests_per_second=decimal(result.request_rate),
        output_tokens_per_second=decimal(result.output_tokens_per_second, 1),
        input_tokens_per_second=decimal(result.input_tokens_per_second, 1),
        goodput_percent=decimal(_percent(result.goodput_fraction), 2),
        preemptions=result.engine.preemptions,
        running_max=_first(result.engine.hook_running_max, result.engine.running_max),
        waiting_max=result.engine.waiting_max,
        kv_cache_peak_percent=decimal(_percent(result.engine.kv_usage_peak_fraction), 1),
    )


def measurement(result: model.ProbeResult) -> api.Measurement:
    """Show a load point with its limits; its figures stand in the trial."""
    return api.Measurement(
        probe_id=result.probe.id,
        limits=limits(result.probe.limits),
        load=load(result.probe.load),
        verdict=api.MeasuredVerdict(result.verdict),
        reason=result.reason,
        message=short(result.message),
        slos=slo_outcomes(result.slos),
        bottleneck=result.bottleneck,
        bottleneck_evidence=short(result.bottleneck_evidence) or None,
    )


def _latency(value: model.Percentiles) -> api.Latency | None:
    if value.count == 0:
        return None
    return api.Latency(
        count=value.count,
        mean=decimal(value.mean, 2),
        p50=decimal(value.p50, 2),
        p90=decimal(value.p90, 2),
        p95=decimal(value.p95, 2),
        p99=decimal(value.p99, 2),
        maximum=decimal(value.maximum, 2),
    )


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def _margin_percent(result: model.SLOResult) -> float | None:
    bound, observed = result.slo.max_milliseconds, result.observed_milliseconds
    if bound is None or observed is None:
        return None
    return 100 * (bound - observed) / bound


def _first(*candidates: int | None) -> int | None:
    return next((value for value in candidates if value is not None), None)
