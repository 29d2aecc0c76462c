"""The benchmark Job of one attempt, and the ConfigMap with its run's spec.

Pure: values in, objects out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from vllm_tuning.api.benchmark import QUEUE_LABEL
from vllm_tuning.api.reasons import Reason
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.reconcile import names
from vllm_tuning.reconcile.observed import Settings
from vllm_tuning.reconcile.pod import Copied, build_pod_spec
from vllm_tuning.tuning.run import RUN_SPEC, RunSpec

DEADLINE_MARGIN_SECONDS: Final = 120
"""Between the bench's own end and the Job's deadline, whose expiry deletes the pod and its log."""
MAX_SPEC_BYTES: Final = 900_000
"""A ConfigMap holds 1 MiB."""

_ANNOTATIONS: Final = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "linkerd.io/inject": "disabled",
    "sidecar.istio.io/inject": "false",
}
"""A node that goes away or a proxy in the way of localhost would spoil the measurement."""
_OPT_OUT_LABELS: Final = {
    "istio.io/dataplane-mode": "none",
    "sidecar.istio.io/inject": "false",
}
"""Istio goes by labels; its annotation is only for releases before 1.10."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds; the Job's clock runs while it waits for a GPU."""

    schedule: int
    startup: int
    run: int

    @property
    def total(self) -> int:
        """``activeDeadlineSeconds`` of the Job."""
        return self.schedule + self.startup + self.run + DEADLINE_MARGIN_SECONDS


def build_job(
    owner: Mapping[str, Any],
    run: RunSpec,
    copied: Copied,
    deadlines: Deadlines,
    settings: Settings,
    *,
    fingerprint: str,
    extra_labels: Mapping[str, str] | None = None,
    queue: str | None = None,
) -> dict[str, Any]:
    """Build the Job.

    ``owner`` is the tuning's metadata; ``extra_labels`` are ``benchmark.labels``. ``queue`` is the
    Kueue LocalQueue, which the Job names and its pod need not.
    """
    tuning = owner["name"]
    name = names.job_name(tuning, run.run_id, run.attempt)
    pod = build_pod_spec(copied, name, settings)
    wished = {key: value for key, value in (extra_labels or {}).items() if key != QUEUE_LABEL}
    queued = {} if queue is None else {QUEUE_LABEL: queue}
    labels = {**wished, **names.labels(tuning, run.run_id, run.attempt)}
    spec = {
        "backoffLimit": 0,
        "completions": 1,
        "parallelism": 1,
        "podReplacementPolicy": "Failed",
        "activeDeadlineSeconds": deadlines.total,
        "podFailurePolicy": {
            "rules": [
                # a lost pod ends the Job: the next attempt is a Job that knows what was measured
                {
                    "action": "FailJob",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                }
            ]
        },
        "template": {
            "metadata": {
                "labels": {**_OPT_OUT_LABELS, **labels},
                "annotations": dict(_ANNOTATIONS),
            },
            "spec": pod,
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": owner["namespace"],
            "labels": {**queued, **labels},
            "annotations": {names.ANNOTATION_FINGERPRINT: fingerprint},
            "ownerReferences": [names.owner_reference(owner)],
        },
        "spec": spec,
    }


def build_config_map(owner: Mapping[str, Any], run: RunSpec) -> dict[str, Any] | Refusal:
    """Build the ConfigMap that the bench reads; it has the name of the attempt's Job."""
    text = RUN_SPEC.dump_json(run).decode()
    if len(text) > MAX_SPEC_BYTES:
        return Refusal(
            Reason.BENCHMARK_FAILED,
            f"the answers of the earlier attempts take {len(text)} bytes, more than a ConfigMap "
            "holds: annotate the tuning with vllmtuning.io/rerun to measure anew",
        )
    tuning = owner["name"]
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.job_name(tuning, run.run_id, run.attempt),
            "namespace": owner["namespace"],
            "labels": names.labels(tuning, run.run_id, run.attempt),
            "ownerReferences": [names.owner_reference(owner)],
        },
        "data": {names.SPEC_FILE: text},
    }
