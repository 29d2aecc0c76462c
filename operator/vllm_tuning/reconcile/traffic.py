"""A workload from a trace: recorded requests in a ConfigMap of the tuning's namespace."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from vllm_tuning.api.reasons import Reason
from vllm_tuning.api.status import Effective
from vllm_tuning.api.traffic import TraceFacts
from vllm_tuning.api.workload import TokenLengths, TraceRef
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.reconcile import convert
from vllm_tuning.tuning.model import Lengths
from vllm_tuning.tuning.recorded import TraceError, parse_trace

ConfigMaps = Mapping[str, Mapping[str, str]]
"""Text of ConfigMaps by their names and keys."""

KEPT_TRACES: Final = 16
"""Traces of which is kept what was read: a tuning is looked at every few seconds, and a megabyte of
rows takes half a second."""


def with_trace(wish: Effective, config_maps: ConfigMaps) -> Effective | Refusal:
    """Read the workload's trace, if it names one.

    Refused with a reason of the condition ``Accepted`` if there is none or it cannot be read.
    """
    workload = wish.workload
    if workload is None or workload.trace_ref is None:
        return wish
    ref = workload.trace_ref
    text = trace_text(ref, config_maps)
    if isinstance(text, Refusal):
        return text
    try:
        has_blocks, facts = _read(text, f"{ref.name}/{ref.key}")
    except TraceError as error:
        return Refusal(
            Reason.TRACE_INVALID,
            f"ConfigMap {error}; workload.traceRef takes what Azure, BurstGPT and Mooncake "
            "publish, or their first rows",
        )
    if has_blocks and workload.shared_prefix_percent:
        return Refusal(
            Reason.TRACE_INVALID,
            f"ConfigMap {ref.name}/{ref.key} says itself which prompts begin alike (hash_ids): "
            "remove workload.sharedPrefixPercent",
        )
    return wish.model_copy(update={"trace": facts})


def trace_text(ref: TraceRef, config_maps: ConfigMaps) -> str | Refusal:
    """Return the trace as it stands in the ConfigMap, or say what to create."""
    make = f"kubectl create configmap {ref.name} --from-file={ref.key}=FILE (at most 1 MiB)"
    found = config_maps.get(ref.name)
    if found is None:
        return Refusal(
            Reason.TRACE_NOT_FOUND,
            f"workload.traceRef: there is no ConfigMap {ref.name} in this namespace: {make}",
        )
    if ref.key not in found:
        keys = ", ".join(sorted(found)) or "none"
        return Refusal(
            Reason.TRACE_NOT_FOUND,
            f"workload.traceRef: ConfigMap {ref.name} has no text under key {ref.key} (keys with "
            f"text: {keys}); write one of these, or {make}",
        )
    return found[ref.key]


@lru_cache(KEPT_TRACES)
def _read(text: str, name: str) -> tuple[bool, TraceFacts]:
    """Return whether the trace says which prompts begin alike, and what is shown of it."""
    trace = parse_trace(text, name=name)
    return trace.has_blocks, TraceFacts(
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        requests=len(trace.rows),
        rows_left_out=trace.bad_rows,
        input_tokens=_lengths(trace.input_tokens),
        output_tokens=_lengths(trace.output_tokens),
        message=convert.short(f"trace {name}: {trace.describe()}"),
    )


def _lengths(found: Lengths) -> TokenLengths:
    return TokenLengths(mean=found.mean, cv_percent=min(1000, found.cv_percent), max=found.maximum)
