"""Names, labels and annotations of everything the operator makes, at most 63 characters.

Deterministic names are what makes a second operator, or a restarted one, harmless: it finds what
the first one made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from vllm_tuning.api.base import APPROVE_ANNOTATION, GROUP, VERSION

MAX_NAME = 63
"""A Job's name becomes a label of its pods, so the limit of labels holds, not the 253 of names."""

LABEL_TUNING = f"{GROUP}/tuning"
"""Name of the tuning (shortened like a name if it is too long for a label)."""
LABEL_RUN = f"{GROUP}/run"
"""Run id."""
LABEL_ATTEMPT = f"{GROUP}/attempt"
LABEL_CONFIGURATION = f"{GROUP}/configuration"
"""On a trial: hash of purpose, limits and engine start; two operators name the same trial by it."""
LABEL_MEASUREMENT = f"{GROUP}/measurement"
"""On a trial: what was measured, whatever SLA judged it; such trials may answer another SLA."""
LABEL_POLICY = f"{GROUP}/created-by-policy"
"""On a tuning: the policy whose autoCreate made it."""

ANNOTATION_APPLIED = f"{GROUP}/applied"
"""On the target: hash of the recommendation that its limits come from, written with them."""
ANNOTATION_APPLIED_BY = f"{GROUP}/applied-by"
"""On the target: name of the tuning that wrote ``applied``."""
ANNOTATION_RERUN = f"{GROUP}/rerun"
"""On a tuning: any new value asks for a new run of an unchanged question."""
ANNOTATION_QUICK = f"{GROUP}/quick"
"""On a tuning: "true" asks for short measurements, for tiny engines (demo, tests)."""
ANNOTATION_FINGERPRINT = f"{GROUP}/fingerprint"
"""On a benchmark Job: what it measures; a Job of our name with another one is not adopted."""

KIND_TUNING = "VLLMTuning"
KIND_TRIAL = "VLLMTrial"
API_VERSION = f"{GROUP}/{VERSION}"

SPEC_FILE = "run.json"
ENGINE = "engine"
BENCH = "bench"
TOOLS = "tools"


def digest(value: Any, length: int = 10) -> str:  # noqa: ANN401 - any JSON value
    """Hash a JSON value independent of key order; hexadecimal, ``length`` characters."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def join_name(*parts: str, limit: int = MAX_NAME) -> str:
    """Join the parts by dashes; a name that is too long keeps its end and a hash of its beginning.

    The end carries run, attempt and index, which tell siblings apart.
    """
    name = "-".join(parts)
    if len(name) <= limit:
        return name
    first, *rest = parts
    tail = "-".join((digest(first, 6), *rest))
    head = first[: limit - len(tail) - 1].rstrip("-.")
    return f"{head}-{tail}"


def journal_name(tuning: str, run_id: str) -> str:
    """Name of the ConfigMap that holds what a run was asked and what it answered."""
    return join_name(tuning, run_id)


def job_name(tuning: str, run_id: str, attempt: int) -> str:
    """Name of the benchmark Job of one attempt of a run."""
    return join_name(tuning, run_id, str(attempt))


def trial_name(tuning: str, run_id: str, index: int) -> str:
    """Name of the trial with this index (from 1) in its run."""
    return join_name(tuning, run_id, f"t{index:02d}")


def label_value(name: str) -> str:
    """Shorten an object name so that it may stand in a label."""
    return join_name(name)


def labels(tuning: str, run_id: str | None = None, attempt: int | None = None) -> dict[str, str]:
    """Labels of an object made for a tuning. None of them may occur on a target."""
    found = {
        "app.kubernetes.io/name": "vllm-tuning",
        "app.kubernetes.io/component": "benchmark",
        "app.kubernetes.io/managed-by": "vllm-tuning-operator",
        LABEL_TUNING: label_value(tuning),
    }
    if run_id is not None:
        found[LABEL_RUN] = run_id
    if attempt is not None:
        found[LABEL_ATTEMPT] = str(attempt)
    return found


def owner_reference(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Make the tuning the controller of an object, so that it goes with the tuning.

    Without ``blockOwnerDeletion``: setting it needs rights on the tuning's finalizers, and nothing
    waits for it.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": KIND_TUNING,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


__all__ = [
    "ANNOTATION_APPLIED",
    "ANNOTATION_APPLIED_BY",
    "ANNOTATION_FINGERPRINT",
    "ANNOTATION_QUICK",
    "ANNOTATION_RERUN",
    "API_VERSION",
    "APPROVE_ANNOTATION",
    "BENCH",
    "ENGINE",
    "GROUP",
    "KIND_TRIAL",
    "KIND_TUNING",
    "LABEL_ATTEMPT",
    "LABEL_CONFIGURATION",
    "LABEL_MEASUREMENT",
    "LABEL_POLICY",
    "LABEL_RUN",
    "LABEL_TUNING",
    "MAX_NAME",
    "SPEC_FILE",
    "TOOLS",
    "VERSION",
    "digest",
    "job_name",
    "join_name",
    "journal_name",
    "label_value",
    "labels",
    "owner_reference",
    "trial_name",
]
