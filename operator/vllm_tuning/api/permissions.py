"""What the operator may do in a cluster: the least that it needs, each right with its reason.

One registry: the chart's roles and ``docs/reference/rbac.md`` are generated from it, and a test on
a real API server checks both directions (what is granted works, what is not is refused).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from vllm_tuning.api.base import GROUP

_READ = ("get", "list", "watch")


class Scope(StrEnum):
    """Where a right is granted."""

    SERVED = "served"
    """In every namespace that the operator serves (a ClusterRole if it serves all of them)."""
    OWN = "own"
    """In the operator's own namespace only."""
    CLUSTER = "cluster"
    """On the whole cluster, also when only some namespaces are served."""
    POLICIES = "policies"
    """On the whole cluster, for VLLMSLAPolicies; without it no policy holds."""
    EXPORTER = "exporter"
    """In the namespace of the DCGM exporter, and only when some namespaces are served; else the
    right is among those of ``SERVED``."""
    ALL_NAMESPACES = "all-namespaces"
    """On the whole cluster, and only when all namespaces are served."""


@dataclass(frozen=True, slots=True)
class Permission:
    """One rule of a role."""

    scope: Scope
    group: str
    """API group; empty = core."""
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str

    def to_rule(self) -> dict[str, Any]:
        """Return the ``PolicyRule``."""
        return {
            "apiGroups": [self.group],
            "resources": list(self.resources),
            "verbs": list(self.verbs),
        }


PERMISSIONS = (
    Permission(Scope.SERVED, GROUP, ("vllmtunings",), _READ, "the wishes"),
    Permission(
        Scope.SERVED,
        GROUP,
        ("vllmtunings",),
        ("create",),
        "the tunings that a policy's autoCreate makes; none is ever changed or deleted",
    ),
    Permission(Scope.SERVED, GROUP, ("vllmtunings/status",), ("patch",), "conditions and results"),
    Permission(
        Scope.SERVED,
        GROUP,
        ("vllmtrials",),
        (*_READ, "create", "delete"),
        "one record per measured configuration; deleted beyond historyLimit",
    ),
    Permission(Scope.SERVED, GROUP, ("vllmtrials/status",), ("patch",), "measurements"),
    Permission(
        Scope.SERVED,
        "apps",
        ("deployments",),
        (*_READ, "patch"),
        "the targets; patched only in mode Auto or after an approval",
    ),
    Permission(
        Scope.SERVED, "apps", ("replicasets",), _READ, "which pods belong to a target's roll-out"
    ),
    Permission(
        Scope.SERVED,
        "batch",
        ("jobs",),
        (*_READ, "create", "patch", "delete"),
        "one benchmark Job per run; patched to set its time to live",
    ),
    Permission(
        Scope.SERVED,
        "",
        ("pods",),
        _READ,
        "the benchmark pod, and the target's pods during a roll-out",
    ),
    Permission(
        Scope.SERVED, "", ("pods/log",), ("get",), "a benchmark's events; a new pod's start"
    ),
    Permission(
        Scope.SERVED,
        "",
        ("configmaps",),
        ("get", "create", "delete"),
        "a run's question and answers; flags that a target keeps in a ConfigMap",
    ),
    Permission(
        Scope.SERVED,
        "",
        ("persistentvolumeclaims",),
        ("get",),
        "whether a benchmark pod may mount the target's model beside it",
    ),
    Permission(
        Scope.SERVED,
        "",
        ("services",),
        ("list",),
        "that no Service selects a benchmark pod",
    ),
    Permission(
        Scope.SERVED,
        "",
        ("events",),
        ("list", "create"),
        "telling what happens; why a Job's pod was refused is told in events only",
    ),
    Permission(
        Scope.OWN,
        "coordination.k8s.io",
        ("leases",),
        ("get", "create", "update"),
        "one working operator at a time",
    ),
    Permission(
        Scope.CLUSTER,
        "",
        ("nodes",),
        ("get",),
        "the GPU product of the target's node; without it the GPU is Unknown",
    ),
    Permission(
        Scope.EXPORTER,
        "",
        ("pods",),
        ("list",),
        "the DCGM exporter on a benchmark's node; without it GPU counters are the launcher's alone",
    ),
    Permission(Scope.POLICIES, GROUP, ("vllmslapolicies",), _READ, "rules of the platform team"),
    Permission(
        Scope.POLICIES,
        GROUP,
        ("vllmslapolicies/status",),
        ("patch",),
        "whom a policy concerns, and who exceeds it",
    ),
    Permission(
        Scope.POLICIES, "", ("namespaces",), ("get", "list"), "labels that policies select by"
    ),
    Permission(
        Scope.ALL_NAMESPACES,
        "apiextensions.k8s.io",
        ("customresourcedefinitions",),
        ("list", "watch"),
        "noticing the own kinds being installed or upgraded",
    ),
)


def rules(scope: Scope, permissions: Iterable[Permission] = PERMISSIONS) -> list[dict[str, Any]]:
    """Return the ``rules`` of the role for one scope."""
    return [permission.to_rule() for permission in permissions if permission.scope is scope]
