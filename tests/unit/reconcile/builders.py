"""Builders of what a decision looks at, and readers of what it says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from vllm_tuning.api.policy import VLLMSLAPolicy
from vllm_tuning.reconcile import names
from vllm_tuning.reconcile.effects import Decision
from vllm_tuning.reconcile.observed import Observed, Settings

NOW = datetime(2026, 11, 29, 12, 0, 0, tzinfo=UTC)
SETTINGS = Settings(bench_image="bench:1", priority_class="benchmarks")


def stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def a_deployment(**container: Any) -> dict[str, Any]:
    """A vLLM target of one replica that has settled."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "llama",
            "namespace": "serving",
            "uid": "target-uid",
            "resourceVersion": "7",
            "generation": 1,
            "annotations": {"deployment.kubernetes.io/revision": "1"},
        },
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "llama"}},
            "template": {
                "metadata": {"labels": {"app": "llama"}},
                "spec": {
                    "containers": [
                        {
                            "name": "vllm",
                            "image": "vllm/vllm-openai:v0.20.0",
                            "command": ["vllm", "serve"],
                            "args": [
                                "meta-llama/Llama-3.1-8B-Instruct",
                                "--max-num-seqs=4",
                                "--max-num-batched-tokens=2048",
                            ],
                            "resources": {"limits": {"nvidia.com/gpu": "1"}},
                            **container,
                        }
                    ]
                },
            },
        },
        "status": {
            "observedGeneration": 1,
            "replicas": 1,
            "updatedReplicas": 1,
            "availableReplicas": 1,
        },
    }


def a_tuning(**spec: Any) -> dict[str, Any]:
    """Six lines of YAML, as stored."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": "VLLMTuning",
        "metadata": {
            "name": "llama",
            "namespace": "serving",
            "uid": "tuning-uid",
            "generation": 1,
            "creationTimestamp": stamp(NOW - timedelta(minutes=1)),
        },
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llama"},
            "slos": [{"metric": "TTFT", "percentile": 95, "maxMilliseconds": 300}],
            **spec,
        },
    }


def policy(name: str, *, age: int = 0, **spec: Any) -> VLLMSLAPolicy:
    """Return a policy; a larger ``age`` is older."""
    return VLLMSLAPolicy.from_object(
        {
            "metadata": {
                "name": name,
                "creationTimestamp": datetime(2026, 1, 31 - age, tzinfo=UTC).isoformat(),
            },
            "spec": {"defaults": {}, **spec},
        }
    )


def running_pod(since: datetime = NOW) -> dict[str, Any]:
    return {
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(since)}
        ],
        "containerStatuses": [{"name": "bench", "state": {"running": {}}}],
    }


def ended_pod(message: str = "") -> dict[str, Any]:
    return {
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(NOW)}
        ],
        "containerStatuses": [
            {
                "name": "bench",
                "state": {
                    "terminated": {
                        "exitCode": 0,
                        "message": message,
                        "finishedAt": stamp(NOW + timedelta(minutes=5)),
                    }
                },
            }
        ],
    }


def observe(tuning: dict[str, Any] | None = None, **fields: Any) -> Observed:
    fields.setdefault("target", a_deployment())
    return Observed(tuning=tuning or a_tuning(), settings=SETTINGS, **fields)


def conditions(decision: Decision) -> dict[str, tuple[str, str]]:
    """Type to (status, reason)."""
    return {c.type: (c.status, c.reason) for c in decision.status.conditions}


def message(decision: Decision, type_: str) -> str:
    return next(c.message for c in decision.status.conditions if c.type == type_)
