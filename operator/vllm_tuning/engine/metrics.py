"""vLLM's ``/metrics`` page by meaning: names over the versions, counters, and their differences.

Sources: ``vllm/v1/metrics/loggers.py`` of 0.8.5 to 0.33. A page may show an old and a new spelling
of one value (0.9.2-0.11); the newest present is read, never both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vllm_tuning.engine.exposition import Sample, parse_samples

FIRST_VERSION = "0.8.5"
"""The oldest release whose source was read."""


@dataclass(frozen=True, slots=True)
class Series:
    """One spelling of a value, and the releases whose page shows it without a flag."""

    name: str
    since: str = FIRST_VERSION
    until: str | None = None
    """Last release; ``None`` = still there in 0.33."""


SERIES: Mapping[str, tuple[Series, ...]] = {
    # Newest spelling first. Old ones are hidden in 0.11 (a flag shows them) and gone in 0.12.
    "running": (Series("vllm:num_requests_running"),),
    "waiting": (Series("vllm:num_requests_waiting"),),
    "kv_usage": (
        Series("vllm:kv_cache_usage_perc", since="0.9.2"),
        Series("vllm:gpu_cache_usage_perc", until="0.10.2"),
    ),
    "preemptions": (Series("vllm:num_preemptions_total"),),
    "prompt_tokens": (Series("vllm:prompt_tokens_total"),),
    "generation_tokens": (Series("vllm:generation_tokens_total"),),
    "prefix_queries": (
        Series("vllm:prefix_cache_queries_total", since="0.9.2"),
        Series("vllm:gpu_prefix_cache_queries_total", until="0.10.2"),
    ),
    "prefix_hits": (
        Series("vllm:prefix_cache_hits_total", since="0.9.2"),
        Series("vllm:gpu_prefix_cache_hits_total", until="0.10.2"),
    ),
    "finished": (Series("vllm:request_success_total"),),
    "rejections": (Series("vllm:admission_rejections_total", since="0.32.0"),),
    # A histogram in spite of its name: one observation a step, of the step's tokens.
    "steps": (Series("vllm:iteration_tokens_total_count"),),
    "step_tokens": (Series("vllm:iteration_tokens_total_sum"),),
    "queue_seconds": (Series("vllm:request_queue_time_seconds_sum"),),
    "prefill_seconds": (Series("vllm:request_prefill_time_seconds_sum"),),
    "decode_seconds": (Series("vllm:request_decode_time_seconds_sum"),),
    # Of the Python client; with several API servers the page has none.
    "started_at": (Series("process_start_time_seconds"),),
    "created_at": (Series("vllm:num_preemptions_created"), Series("vllm:prompt_tokens_created")),
}
"""By field of ``EnginePage``: every spelling that is read."""

_MEANING = {
    series.name: (meaning, rank)
    for meaning, spellings in SERIES.items()
    for rank, series in enumerate(spellings)
}
_CACHE_INFO = "vllm:cache_config_info"

BOOT_CLOCK_SECONDS = 1.0
"""Start times come from the boot clock and move by its rounding when they are read anew."""


@dataclass(frozen=True, slots=True)
class EnginePage:
    """One reading of ``/metrics``, summed over data-parallel engines. Absent = ``None``."""

    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    """Share of KV blocks in use (0-1); the fullest engine's."""
    preemptions: float | None = None
    prompt_tokens: float | None = None
    generation_tokens: float | None = None
    prefix_queries: float | None = None
    """Prompt tokens looked up in the prefix cache."""
    prefix_hits: float | None = None
    finished: float | None = None
    """Requests that ended for any reason, aborts included."""
    aborted: float | None = None
    rejections: float | None = None
    steps: float | None = None
    step_tokens: float | None = None
    """Tokens over all steps. A prompt counts whole in the step that ends its prefill, so a single
    step may show more than ``max_num_batched_tokens``."""
    queue_seconds: float | None = None
    prefill_seconds: float | None = None
    decode_seconds: float | None = None
    started_at: float | None = None
    """Unix seconds at which the serving process began."""
    created_at: float | None = None
    """Unix seconds at which the counters were made."""
    engines: int = 0
    """Data-parallel engines that report."""
    cache_config: tuple[tuple[str, str], ...] = ()
    """Labels of ``vllm:cache_config_info``, sorted: block size, blocks, memory share, ..."""


def read_page(text: str, *, model: str | None = None) -> EnginePage:
    """Read a page; with ``model``, only the series of that served model name."""
    wanted = [*_MEANING, _CACHE_INFO]
    values: dict[str, list[tuple[int, float]]] = {}
    engines: set[str] = set()
    aborted: float | None = None
    cache_config: tuple[tuple[str, str], ...] = ()
    for sample in parse_samples(text, wanted):
        if not _of_model(sample, model):
            continue
        if sample.name == _CACHE_INFO:
            cache_config = tuple(sorted(sample.labels.items()))
            continue
        meaning, rank = _MEANING[sample.name]
        values.setdefault(meaning, []).append((rank, sample.value))
        if meaning == "running":
            engines.add(sample.labels.get("engine", "0"))
        if meaning == "finished" and sample.labels.get("finished_reason") == "abort":
            aborted = (aborted or 0.0) + sample.value
    read = {meaning: _combine(meaning, found) for meaning, found in values.items()}
    return EnginePage(**read, aborted=aborted, engines=len(engines), cache_config=cache_config)


def _of_model(sample: Sample, model: str | None) -> bool:
    return model is None or sample.labels.get("model_name", model) == model


def _combine(meaning: str, found: Iterable[tuple[int, float]]) -> float:
    found = list(found)
    newest = min(rank for rank, _ in found)
    values = [value for rank, value in found if rank == newest]
    return max(values) if meaning in {"kv_usage", "started_at", "created_at"} else sum(values)


COUNTERS = (
    "preemptions",
    "prompt_tokens",
    "generation_tokens",
    "prefix_queries",
    "prefix_hits",
    "finished",
    "aborted",
    "rejections",
    "steps",
    "step_tokens",
    "queue_seconds",
    "prefill_seconds",
    "decode_seconds",
)


def restarted(before: EnginePage, after: EnginePage) -> bool:
    """Whether the engine is another process, or its counters were made anew, between two pages."""
    for mark in ("started_at", "created_at"):
        old, new = getattr(before, mark), getattr(after, mark)
        if old is not None and new is not None and abs(new - old) > BOOT_CLOCK_SECONDS:
            return True
    return any(
        (old := getattr(before, name)) is not None
        and (new := getattr(after, name)) is not None
        and new < old
        for name in COUNTERS
    )


def delta(before: EnginePage, after: EnginePage, name: str) -> float | None:
    """Return how far the counter ``name`` went; ``None`` where absent or after a restart.

    A counter that appears between two pages began at zero: labelled series are made on first use.
    """
    old, new = getattr(before, name), getattr(after, name)
    if new is None or (old or 0.0) > new:
        return None
    return float(new - (old or 0.0))
