"""Everything that a decision may look at, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from vllm_tuning.engine.traffic import Traffic
from vllm_tuning.tuning.run import Event

Body: TypeAlias = Mapping[str, Any]
"""An object as the API server gave it. Read only."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the installation decides, not the user; from the chart's values."""

    bench_image: str
    bench_image_pull_policy: str = "IfNotPresent"
    priority_class: str | None = None
    """Negative and never preempting, so that a benchmark cannot push production out."""
    bench_cpu_request: str = "250m"
    bench_memory_limit: str = "1Gi"
    quick: bool = False
    """Shorter measurements for tiny engines (demo, tests)."""


@dataclass(frozen=True, slots=True)
class Rival:
    """Another tuning of the same target."""

    name: str
    uid: str
    created: datetime


@dataclass(frozen=True, slots=True)
class BenchLog:
    """What the bench container of one pod has said so far, in order of ``seq``, each once."""

    events: tuple[Event, ...] = ()
    complete: bool = False
    """The container has ended and its log was read to the end (or is gone)."""


@dataclass(frozen=True, slots=True)
class Refused:
    """An effect of the last decision that the API server did not accept."""

    effect: str
    """Class name of the effect."""
    message: str
    """The API server's words."""
    reason: str = "PodRefused"
    """Reason for the condition."""


@dataclass(frozen=True, slots=True)
class PodTraffic:
    """What one serving pod of the target has told of its traffic."""

    pod: str
    """Its name."""
    traffic: Traffic | None
    """``None`` = it could not be read."""
    problem: str = ""
    """Why not."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One tuning and all that matters to it, read at about the same moment."""

    tuning: Body
    settings: Settings
    rivals: tuple[Rival, ...] = ()
    target: Body | None = None
    target_replica_sets: tuple[Body, ...] = ()
    """Of the target, newest revision last."""
    target_pods: tuple[Body, ...] = ()
    target_traffic: tuple[PodTraffic, ...] | None = None
    """Of its serving pods; ``None`` = not read, as mostly (``Decision.traffic_wanted``)."""
    target_logs: Mapping[str, str] = field(default_factory=dict)
    """Start logs of the target's pods during a roll-out, by pod name."""
    target_nodes: tuple[Mapping[str, str], ...] = ()
    """Labels of the nodes that pods of the target run on; empty = unknown."""
    volume_claims: Mapping[str, Body] = field(default_factory=dict)
    """PersistentVolumeClaims that the target mounts, by name; those that may be read."""
    config_maps: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Those that the target's flags or the workload's trace come from, by name."""
    jobs: tuple[Body, ...] = ()
    """Jobs with our label for this tuning, or with a name that we would use."""
    pods: tuple[Body, ...] = ()
    """Benchmark pods of this tuning."""
    job_warnings: Mapping[str, str] = field(default_factory=dict)
    """By Job name: the last Warning event of a Job that has no pod (quota, admission), or of its
    pod while that has a node and no running container (volumes, images)."""
    trials: tuple[Body, ...] = ()
    logs: Mapping[str, BenchLog] = field(default_factory=dict)
    """By uid of the benchmark pod."""
    selecting_service: str | None = None
    """A Service whose selector matches ``benchmark.labels``."""
    policies: tuple[Body, ...] = ()
    """All VLLMSLAPolicies of the cluster; empty where they may not be read."""
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    """Of the tuning's namespace; empty where they may not be read."""
    refused: Refused | None = None
