"""Rules about the pod around the engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vllm_tuning.engine.flags.version import at_least
from vllm_tuning.engine.lint.model import Context, Issue, Severity, rule

GONE_VARIABLES = {
    "VLLM_USE_V1": ("0.11.1", "drop it: there is only V1"),
    "VLLM_ATTENTION_BACKEND": ("0.15.0", "--attention-backend"),
}
"""Variable, first release without it, what to write."""


@rule(
    "probe-timeout",
    Severity.WARNING,
    "A busy engine answers `/health` late; 1 s kills it under load.",
)
def probe_timeout(context: Context) -> Iterator[Issue]:
    """A liveness probe with the default timeout."""
    probe = context.engine.container.get("livenessProbe")
    if not isinstance(probe, Mapping):
        return
    timeout = probe.get("timeoutSeconds", 1)
    if isinstance(timeout, int) and timeout <= 1:
        yield Issue(
            "the liveness probe gives up after 1 s: a saturated engine answers later and is"
            " killed in the middle of its"
            " work",
            "timeoutSeconds: 15 and failureThreshold: 10, with a startupProbe for the loading time",
            place="livenessProbe",
        )


@rule("service-named-vllm", Severity.ERROR, "A Service named `vllm` sets VLLM_PORT to a URL.")
def service_named_vllm(context: Context) -> Iterator[Issue]:
    """Service links put ``VLLM_PORT=tcp://...`` into every pod of the namespace."""
    spec = _pod_spec(context)
    env = [
        e.get("name") for e in context.engine.container.get("env") or () if isinstance(e, Mapping)
    ]
    if spec.get("enableServiceLinks") is False or "VLLM_PORT" in env:
        return
    for value in context.values:
        is_service = isinstance(value, Mapping) and value.get("kind") == "Service"
        if is_service and (value.get("metadata") or {}).get("name") == "vllm":
            yield Issue(
                "the Service `vllm` sets VLLM_PORT=tcp://... in this pod and the engine"
                " refuses to start",
                "enableServiceLinks: false in the pod spec, or another name for the Service",
                place="Service/vllm",
            )


@rule("variable-without-effect", Severity.WARNING, "The release no longer reads this variable.")
def variable_without_effect(context: Context) -> Iterator[Issue]:
    """Variables that steered the engine once."""
    for entry in context.engine.container.get("env") or ():
        name = entry.get("name") if isinstance(entry, Mapping) else None
        gone, instead = GONE_VARIABLES.get(str(name), ("", ""))
        if gone and at_least(context.version, gone):
            yield Issue(f"vLLM ignores {name} since {gone}", instead, place=f"env[{name}]")


def _pod_spec(context: Context) -> Mapping[str, Any]:
    value: Any = context.values[context.engine.document]
    for key in (*context.engine.object_path, *context.engine.path[:-2]):
        value = value[key]
    return value if isinstance(value, Mapping) else {}
