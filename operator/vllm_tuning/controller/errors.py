"""The one table that says what follows from an error of our domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from vllm_tuning.api.reasons import Reason
from vllm_tuning.cluster.errors import (
    AlreadyExists,
    ClusterError,
    GuardFailed,
    NameTaken,
    NotFound,
    Refused,
    Retry,
)


@dataclass(frozen=True, slots=True)
class LookAgain:
    """What was decided on has changed: gather and decide anew, with back-off."""

    at_least_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Tell:
    """The user has to know; try again now and then."""

    reason: Reason
    message: str


Consequence: TypeAlias = LookAgain | Tell

RETRY_REFUSED_SECONDS: Final = 60.0
"""A quota or a policy that refused may have changed by then."""


def consequence_of(error: ClusterError) -> Consequence:
    """Look the error up."""
    match error:
        case Retry():
            return LookAgain(error.after_seconds)
        case GuardFailed() | NotFound() | AlreadyExists():
            return LookAgain()
        case NameTaken():
            return Tell(Reason.JOB_CONFLICT, error.message)
        case Refused():
            return Tell(Reason.POD_REFUSED, error.message)
        case _:
            return LookAgain()
