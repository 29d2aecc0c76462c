"""Targets in every form, and what the operator says of them."""

from __future__ import annotations

from typing import Any

from tests.control_plane.fleet import ENGINE_IMAGE, Tenant, a_server
from tests.operator_process import a_tuning


def asleep(name: str, *containers: dict[str, Any], **pod: Any) -> dict[str, Any]:
    """A Deployment without pods: what matters is how it is written."""
    body = a_server(name, replicas=0)
    spec = body["spec"]["template"]["spec"]
    spec["containers"] = list(containers) or spec["containers"]
    spec |= pod
    return body


def container(name: str = "vllm", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": ENGINE_IMAGE, **fields}


def read(user: Tenant, *targets: dict[str, Any]) -> None:
    """Have these targets read without measuring them."""
    user.apply(*targets)
    user.apply(*(a_tuning(t["metadata"]["name"], suspend=True) for t in targets))


def limits(user: Tenant, name: str) -> tuple[int, int]:
    user.wait_for(name, "TargetResolved", "True", "Resolved")
    found = user.get("vllmtunings", name)["status"]["target"]["limits"]
    return found["maxNumSeqs"], found["maxNumBatchedTokens"]


def check_refused(user: Tenant, name: str, reason: str, words: str) -> None:
    assert words in user.wait_for(name, "TargetResolved", "False", reason)
    assert user.conditions(name)["Ready"][:2] == ("False", reason)
