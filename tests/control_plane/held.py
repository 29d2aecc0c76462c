"""A benchmark on its way that stays where it is until the test lets it go."""

from __future__ import annotations

from typing import Any

from tests.control_plane.fleet import Tenant, a_server
from tests.operator_process import a_tuning

OURS = {"labelSelector": "vllmtuning.io/tuning=llama"}
MEASURED = 4
"""Events after which a held bench stays: it has told one start and two probes."""


def held(user: Tenant, **spec: Any) -> None:
    """Begin it; ``user.kubelet.hold_after = None`` lets it go."""
    user.kubelet.hold_after = MEASURED
    user.apply(a_server(), a_tuning("llama", **spec))


def wait_for_trials(user: Tenant) -> None:
    """Wait until what it has told is stored."""
    user.wait(lambda: len(user.items("vllmtrials")) >= 3, "three trials")
