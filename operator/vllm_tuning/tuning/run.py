"""One benchmark run across the process boundary: its input, and the JSON lines it prints.

The operator writes a ``RunSpec`` into a ConfigMap, ``vllm-tuning bench`` reads it, prints one
``Event`` per line on stdout and, last, a ``Summary`` (<= 4 KiB) into its termination message.
Versioned by ``RunSpec.version``: a bench that does not know the version ends with a clear error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from vllm_tuning.tuning.model import (
    Answer,
    Limits,
    Load,
    Probe,
    ProbeResult,
    Problem,
    Purpose,
    Recommendation,
    Start,
    StartResult,
)

VERSION = 1
ENGINE_PORT = 8902
"""Where the engine under test listens, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class RunSpec:
    """What the bench container is told."""

    run_id: str
    attempt: int
    problem: Problem
    launcher_url: str = "http://127.0.0.1:8901"
    token_file: str = "/run/vllm-tuning/token"  # noqa: S105 - a path, not a secret
    engine_port: int = ENGINE_PORT
    start_timeout_seconds: float = 1800.0
    """Deadline of one engine start; from the baseline's measured start time where it is known."""
    previous: tuple[Answer, ...] = ()
    """Answers of earlier attempts, replayed into the search so that nothing is measured twice."""
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class RunStarted:
    """First line."""

    seq: int
    time: float
    """Unix seconds; every event has one."""
    run_id: str
    attempt: int
    original_argv: tuple[str, ...]
    replayed: int
    """How many answers of earlier attempts were replayed."""
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs that the engine's container sees, where NVML tells."""
    kind: Literal["run_started"] = "run_started"


@dataclass(frozen=True, slots=True)
class StartBegan:
    """An engine start began."""

    seq: int
    time: float
    start: Start
    argv: tuple[str, ...]
    kind: Literal["start_began"] = "start_began"


@dataclass(frozen=True, slots=True)
class StartEnded:
    """An engine start ended, well or not."""

    seq: int
    time: float
    result: StartResult
    engine_seconds: float
    """Spent in the whole run so far."""
    kind: Literal["start_ended"] = "start_ended"


@dataclass(frozen=True, slots=True)
class ProbeBegan:
    """A probe began."""

    seq: int
    time: float
    probe: Probe
    kind: Literal["probe_began"] = "probe_began"


@dataclass(frozen=True, slots=True)
class Progress:
    """Heartbeat inside a probe, at most one in 5 s."""

    seq: int
    time: float
    probe_id: str
    phase: Literal["warmup", "measure", "drain"]
    completed: int
    in_flight: int
    ttft_p95_ms: float | None
    tpot_p95_ms: float | None
    engine_seconds: float
    kind: Literal["progress"] = "progress"


@dataclass(frozen=True, slots=True)
class ProbeEnded:
    """A probe ended."""

    seq: int
    time: float
    result: ProbeResult
    engine_seconds: float
    kind: Literal["probe_ended"] = "probe_ended"


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Last line of a run that came to an answer."""

    seq: int
    time: float
    recommendation: Recommendation
    engine_seconds: float
    kind: Literal["run_ended"] = "run_ended"


@dataclass(frozen=True, slots=True)
class RunFailed:
    """Last line of a run that broke: the bench's or the environment's fault, never a verdict."""

    seq: int
    time: float
    reason: str
    message: str
    engine_seconds: float
    kind: Literal["run_failed"] = "run_failed"


Event: TypeAlias = Annotated[
    RunStarted
    | StartBegan
    | StartEnded
    | ProbeBegan
    | Progress
    | ProbeEnded
    | RunEnded
    | RunFailed,
    Field(discriminator="kind"),
]


@dataclass(frozen=True, slots=True)
class Summary:
    """The termination message: enough to go on if the log is lost."""

    run_id: str
    attempt: int
    reason: str
    """An ``Ending``, or the reason of a ``RunFailed``."""
    message: str
    limits: Limits | None
    load: Load | None
    purpose: Purpose | None
    gain_percent: float | None
    engine_starts: int
    probes: int
    engine_seconds: float


RUN_SPEC: TypeAdapter[RunSpec] = TypeAdapter(RunSpec)
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
SUMMARY: TypeAdapter[Summary] = TypeAdapter(Summary)
