"""``docs/reference/metrics.md``: what the operator exports, and what is read of others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import get_args

from prometheus_client import Counter, Gauge, Histogram

from vllm_tuning.api.markdown import table
from vllm_tuning.api.policy import LiveState
from vllm_tuning.api.reference import GENERATED
from vllm_tuning.bench.launcher.gpu import GPM_METRICS
from vllm_tuning.controller import metrics as own
from vllm_tuning.engine.dcgm import FIELDS
from vllm_tuning.engine.metrics import SERIES, EnginePage
from vllm_tuning.reconcile.effects import Effect

LABELS = {
    "vllmtuning_reconciles_total": (
        "`Done`, `Bug`, or the class of the error after which the look is repeated"
    ),
    "vllmtuning_effects_total": ", ".join(f"`{effect.__name__}`" for effect in get_args(Effect)),
    "vllmtuning_events_total": "the reasons of events, see [reasons](reasons.md)",
    "vllmtuning_fleet_deployments": ", ".join(f"`{state}`" for state in LiveState),
    "vllmtuning_fleet_pages_total": "`Read`, `Failed`",
    "vllmtuning_tunings": "the reasons of condition `Progressing`, see [reasons](reasons.md)",
}
"""Values of a metric's label; bounded, never the name of an object."""

MEANINGS = {
    "running": "requests in the running batch, summed over data-parallel engines",
    "waiting": "requests in the queue, summed over data-parallel engines",
    "kv_usage": "share of KV blocks in use, of the fullest engine",
    "preemptions": "preemptions",
    "prompt_tokens": "prompt tokens",
    "generation_tokens": "generated tokens",
    "prefix_queries": "prompt tokens looked up in the prefix cache",
    "prefix_hits": "prompt tokens found there",
    "finished": "requests that ended, by `finished_reason`; `abort` is told apart",
    "rejections": "requests turned away by admission control",
    "steps": "engine steps",
    "step_tokens": "tokens over all steps",
    "queue_seconds": "time in the queue, over all requests that ended",
    "prefill_seconds": "time in prefill, over all requests that ended",
    "decode_seconds": "time in decode, over all requests that ended",
    "started_at": "start of the process: notices a restart",
    "created_at": "birth of the counters: notices a restart",
}


def metrics_page() -> str:
    """Return the page."""
    return "\n".join(
        [
            GENERATED.format(source="operator/vllm_tuning/controller/metrics.py and engine/"),
            "# Metrics\n",
            *_exported(),
            *_of_vllm(),
            *_of_dcgm(),
            *_of_nvml(),
        ]
    )


def _exported() -> Iterator[str]:
    yield "## What the operator exports\n"
    yield (
        "On port 8080, `/metrics`, in the Prometheus text format; beside these the `process_` and "
        "`python_` metrics of the Python client. The chart makes a `PodMonitor` with "
        "`metrics.podMonitor.create=true`.\n"
    )
    rows = []
    for metric in vars(own).values():
        if isinstance(metric, Counter | Gauge | Histogram):
            (family,) = metric.describe()
            # The client has no public way to the label names of a metric without samples.
            names = metric._labelnames  # noqa: SLF001
            name = f"{family.name}{'_total' if isinstance(metric, Counter) else ''}"
            label = ", ".join(f"`{label}`" for label in names)
            values = f": {LABELS[name]}" if name in LABELS else ""
            rows.append((f"`{name}`", family.type, f"{label}{values}", family.documentation))
    yield table(("metric", "type", "label and its values", "meaning"), rows)


def _of_vllm() -> Iterator[str]:
    yield "## What is read of vLLM\n"
    yield (
        "From the `/metrics` page of the engine under test, several times in a window, the series "
        "of the served model only. Where a page shows two spellings of a value, the newer one is "
        "read. A value that a release does not have is absent, never 0.\n"
    )
    assert set(MEANINGS) == set(SERIES) <= {field.name for field in fields(EnginePage)}
    yield table(
        ("value", "series", "vLLM"),
        [
            (MEANINGS[name], f"`{series.name}`", _releases(series.since, series.until))
            for name, spellings in SERIES.items()
            for series in spellings
        ],
    )
    yield (
        "Also the labels of `vllm:cache_config_info`: block size and number of blocks. Latencies "
        "of a benchmark are the client's, never those of the engine's histograms.\n"
    )


def _releases(since: str, until: str | None) -> str:
    return f"{since}-{until}" if until else f"from {since}"


def _of_dcgm() -> Iterator[str]:
    yield "## What is read of the DCGM exporter\n"
    yield (
        "By the operator, from the exporter's pod on the node of a benchmark while its bench runs "
        "(chart value `dcgmExporter`; see [telemetry](../telemetry.md)). It fills what the "
        "launcher could not measure. `DCGM_FI_DEV_GPU_UTIL` is not read: it is near 100 % under "
        "every load.\n"
    )
    yield table(
        ("field", "unit", "becomes", "in the exporter's default list"),
        [
            (f"`{name}`", field.unit, f"`{field.name}`", "yes" if field.default else "no: add it")
            for name, field in FIELDS.items()
        ],
    )


def _of_nvml() -> Iterator[str]:
    yield "## What is read of NVML\n"
    numbers = ", ".join(f"`{name}` ({number})" for name, number in GPM_METRICS.items())
    yield (
        "By the launcher in the engine's container, once a second: memory in use, memory "
        "utilisation, power, SM clock, temperature, reasons for lower clocks; and with GPM (Hopper "
        f"and later) {numbers}, by NVML's numbers of GPM metrics.\n"
    )
