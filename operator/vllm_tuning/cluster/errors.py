"""What can go wrong between the operator and the API server, as types of our own domain.

::

    ClusterError
    ├── Retry                 look again, with back-off
    │   ├── Throttled         429: the server says when
    │   ├── Unavailable       5xx, timeouts, broken connections
    │   └── Conflict          409 on a write: somebody else was faster
    ├── GuardFailed           a ``test`` of our JSON Patch did not hold: gather again, decide again
    ├── AlreadyExists         409 on a create: look at what is there
    ├── NotFound              404 where an object was promised
    └── Refused               401, 403, 400, 422: tell the user; look again when something changes
        └── NameTaken         an object of the name that we would use is somebody else's

They know nothing of kopf; ``controller.errors`` says what follows from each.
"""

from __future__ import annotations

import json
from typing import Any


class ClusterError(Exception):
    """Base of all. ``message`` is the API server's own text where it gave one."""

    def __init__(self, message: str, *, doing: str = "") -> None:
        super().__init__(f"{doing}: {message}" if doing else message)
        self.message = message
        self.doing = doing
        """Method and path, e.g. ``POST apis/batch/v1/namespaces/serving/jobs``."""


class Retry(ClusterError):  # noqa: N818 - says what happened
    """A later attempt may succeed without anybody's help."""

    after_seconds: float | None = None


class Throttled(Retry):
    """429. ``after_seconds`` is the server's ``Retry-After``."""

    def __init__(
        self, message: str, *, doing: str = "", after_seconds: float | None = None
    ) -> None:
        super().__init__(message, doing=doing)
        self.after_seconds = after_seconds


class Unavailable(Retry):
    """The API server did not answer, or answered with 5xx."""


class Conflict(Retry):
    """409 on a write: the object changed since it was read."""


class GuardFailed(ClusterError):  # noqa: N818 - says what happened
    """The object is not what the patch was computed from."""


class AlreadyExists(ClusterError):  # noqa: N818 - says what happened
    """409 on a create."""


class NotFound(ClusterError):  # noqa: N818 - says what happened
    """404 where the caller promised an object."""


class Refused(ClusterError):  # noqa: N818 - says what happened
    """Authentication, authorization, admission or validation said no; ``message`` says why."""


class NameTaken(Refused):
    """An object of the name that is ours by rule exists and belongs to somebody else."""


def error_of(
    status: int, body: bytes, *, doing: str, creating: bool, guarded: bool, retry_after: str | None
) -> ClusterError:
    """Turn an HTTP answer of the API server into one of our kinds.

    ``guarded`` marks a JSON Patch with ``test`` operations. The server answers a failed test with
    422 and no ``details.causes``; a value that it finds invalid comes with causes.
    """
    details = _status_object(body)
    message = details.get("message") or body[:300].decode(errors="replace") or f"HTTP {status}"
    if status == 429:
        return Throttled(message, doing=doing, after_seconds=_seconds(retry_after))
    kind: type[ClusterError]
    if status == 409:
        taken = creating and details.get("reason") == "AlreadyExists"
        kind = AlreadyExists if taken else Conflict
    elif status == 422 and guarded and not (details.get("details") or {}).get("causes"):
        kind = GuardFailed
    elif status == 404:
        kind = NotFound
    else:
        kind = Refused if 400 <= status < 500 else Unavailable
    return kind(message, doing=doing)


def _status_object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _seconds(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
