"""What a decision may ask for. Each effect is idempotent: done twice, it is done once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from vllm_tuning.api.status import VLLMTuningStatus
from vllm_tuning.reconcile.observed import Body


@dataclass(frozen=True, slots=True)
class CreateRun:
    """Create the ConfigMap, then the Job of an attempt. Existing ones are left as they are."""

    config_map: Body
    job: Body


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete a Job and its pod, and the ConfigMap of the same name."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ExpireJob:
    """Let a finished Job go after a while: its results are recorded."""

    namespace: str
    name: str
    seconds: int


@dataclass(frozen=True, slots=True)
class RequeueJob:
    """Let a Job that waits for quota wait in another Kueue queue."""

    namespace: str
    name: str
    queue: str


@dataclass(frozen=True, slots=True)
class RecordTrial:
    """Create a trial if it is not there, and write its status."""

    body: Body


@dataclass(frozen=True, slots=True)
class DeleteTrial:
    """Delete a trial beyond ``historyLimit``."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class PatchTarget:
    """Change the target by a JSON Patch that tests what it was computed from."""

    namespace: str
    name: str
    operations: tuple[dict[str, Any], ...]


Effect: TypeAlias = (
    CreateRun | DeleteJob | ExpireJob | RequeueJob | RecordTrial | DeleteTrial | PatchTarget
)


class About(StrEnum):
    """Whom an event is attached to."""

    TUNING = "Tuning"
    TARGET = "Target"


@dataclass(frozen=True, slots=True)
class Announcement:
    """A Kubernetes event; its name follows from its content, so that it is told once."""

    about: About
    reason: str
    message: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class TrafficWanted:
    """Read the metrics of these pods: what follows depends on the traffic that they have had."""

    pods: tuple[Body, ...]
    port: int
    tls: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from what was observed.

    The effects are done in order, then the announcements, then the status is written. At most one
    effect is disruptive (a Job created or deleted, the target patched).
    """

    status: VLLMTuningStatus
    effects: tuple[Effect, ...] = ()
    announcements: tuple[Announcement, ...] = ()
    look_again_at: datetime | None = None
    traffic_wanted: TrafficWanted | None = None
    """To be read before anything else is done; then it is decided anew. Who cannot read it does
    what is decided without."""
