"""Loads that the load driver does not keep up with: there it measures itself, lower ones may do."""

from __future__ import annotations

from vllm_tuning.tuning.experiment import Experiment, rounded
from vllm_tuning.tuning.model import ProbeResult

ROOM = 0.7
"""Share of a load that the client did not keep up with that is tried instead."""

DESCENTS = 4
"""How often in a row: a quarter of the load that was asked for is left then."""


class ClientBound:
    """The highest load that the client can offer, as far as it was met."""

    def __init__(self, experiment: Experiment) -> None:
        self._experiment = experiment
        self._beyond: float | None = None

    def measurable(self, load: float) -> float:
        """Lower ``load`` (requests per second) to what the client can be expected to offer."""
        return load if self._beyond is None else min(load, rounded(ROOM * self._beyond))

    def learn(self, load: float, result: ProbeResult) -> None:
        """Take in that the client did not keep up with ``load``, and say so in the result."""
        if self._beyond is None:
            self._experiment.notes.append(
                f"The client did not keep up with {load:.4g} requests/s ({result.reason}), so only "
                "lower loads were measured: the engine may carry more."
            )
        self._beyond = load if self._beyond is None else min(load, self._beyond)

    def reached(self, held: float | None) -> bool:
        """Whether limits that hold ``held`` hold all that the client can offer."""
        return (
            held is not None and self._beyond is not None and held >= self.measurable(self._beyond)
        )
