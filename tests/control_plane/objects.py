"""Objects of our kinds, as users and the operator write them."""

from __future__ import annotations

from typing import Any

TTFT = {"metric": "TTFT", "percentile": 95, "maxMilliseconds": 300}


def tuning(**spec: Any) -> dict[str, Any]:
    """Return the six-line tuning with fields of its spec replaced; ``None`` removes one."""
    whole = {"targetRef": {"name": "chat"}, "slos": [TTFT]} | spec
    return {
        "apiVersion": "vllmtuning.io/v1alpha1",
        "kind": "VLLMTuning",
        "metadata": {"name": "chat"},
        "spec": {name: value for name, value in whole.items() if value is not None},
    }


def trial(**spec: Any) -> dict[str, Any]:
    """Return a trial as the operator writes it."""
    return {
        "apiVersion": "vllmtuning.io/v1alpha1",
        "kind": "VLLMTrial",
        "metadata": {"name": "chat-t01"},
        "spec": {
            "tuningRef": {"name": "chat", "uid": "1"},
            "runID": "abc",
            "index": 1,
            "purpose": "Baseline",
            "limits": {"maxNumSeqs": 8, "maxNumBatchedTokens": 2048},
        }
        | spec,
    }


def policy(**spec: Any) -> dict[str, Any]:
    """Return a policy."""
    return {
        "apiVersion": "vllmtuning.io/v1alpha1",
        "kind": "VLLMSLAPolicy",
        "metadata": {"name": "prod"},
        "spec": spec,
    }


def concerning(namespace: str, **spec: Any) -> dict[str, Any]:
    """Return a policy, named like the namespace, that concerns only it."""
    only = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return policy(namespaceSelector=only, **spec) | {"metadata": {"name": namespace}}
