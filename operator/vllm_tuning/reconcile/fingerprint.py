"""What a result depends on, as hashes: the measurement, and the SLA that it is judged by.

The same measurement never runs twice, and another one never poses as it.

*Measurement*: everything of the target's pod that reaches the engine except the flags that are
tuned (else applying a result would outdate it), the workload with what was learnt or recorded of
it, the bounds, and whether it is a quick one. *Judgement*: the SLOs and the objective. They are
apart because stored measurements can be judged by another SLA. In neither: mode, channel, budget,
deadlines, windows, history (editing them starts nothing), and what changes in a Deployment without
touching the engine: replicas, labels, annotations, probes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from vllm_tuning.api.status import Effective
from vllm_tuning.reconcile.names import digest

VERSION: Final = 2
"""Raised when this file hashes differently: then every result is measured anew, once, knowingly."""

_POD_FIELDS: Final = (
    "initContainers",
    "volumes",
    "nodeSelector",
    "runtimeClassName",
    "tolerations",
    "affinity",
    "resourceClaims",
    "serviceAccountName",
)
_CONTAINER_FIELDS: Final = (
    "image",
    "command",
    "args",
    "env",
    "envFrom",
    "resources",
    "volumeMounts",
)


def fingerprint(
    pod_spec: Mapping[str, Any],
    container: Mapping[str, Any],
    effective: Effective,
    *,
    benchmark: Mapping[str, Any] | None = None,
    quick: bool = False,
) -> str:
    """Hash a measurement.

    ``container`` comes without its tuned flags; ``benchmark`` is the spec's own.
    """
    return digest(
        {
            "version": VERSION,
            "pod": {key: pod_spec[key] for key in _POD_FIELDS if key in pod_spec},
            "container": {key: container[key] for key in _CONTAINER_FIELDS if container.get(key)},
            "workload": _workload(effective),
            "parameters": [_dump(parameter) for parameter in effective.parameters],
            "benchmark": benchmark or {},
            "quick": quick,
        },
        length=16,
    )


def _workload(effective: Effective) -> Any:  # noqa: ANN401 - a JSON value
    """What is sent, not who said it."""
    workload = effective.workload
    if workload is None:
        return None
    body = _dump(workload.model_copy(update={"source": None}))
    if effective.trace is not None:
        body["traceRef"] = effective.trace.sha256  # the same file under another name is the same
    if (learnt := effective.learnt) is not None:
        for field in ("input_tokens", "output_tokens"):
            if (lengths := getattr(learnt, field)) is not None:
                body[f"learnt_{field}"] = _dump(lengths)
        if learnt.requests_per_minute is not None:
            body.pop("requestsPerMinute", None)  # tells replicas only: no load point is another
    return body


def judgement(effective: Effective) -> str:
    """Hash what a measurement is judged by; the order of the SLOs says nothing."""
    slos = sorted((_dump(slo) for slo in effective.slos), key=str)
    return digest([slos, effective.objective], length=10)


def measurement_id(measurement: str, rerun: str | None, epoch: str | None = None) -> str:
    """Name what may answer for each other: one measurement, and one reason to repeat it."""
    return digest([measurement, rerun or "", epoch or ""], length=16)


def run_id(tuning_uid: str, measured: str, judged: str) -> str:
    """Name a run: one per tuning, ``measurement_id`` and ``judgement``."""
    return digest([tuning_uid, measured, judged], length=8)


def _dump(value: Any) -> Any:  # noqa: ANN401 - any API model
    return None if value is None else value.to_object()
