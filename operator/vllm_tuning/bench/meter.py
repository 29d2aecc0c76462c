"""What a run has spent of its budget."""

from __future__ import annotations

from collections.abc import Callable

from vllm_tuning.tuning.run import RunSpec


class Meter:
    """GPU-seconds and wall time of one attempt, with what earlier attempts spent.

    An earlier attempt is charged with the seconds of its answers; its waiting is not known here.
    """

    def __init__(self, spec: RunSpec, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self._earlier = sum(answer.seconds for answer in spec.previous)
        self._gpus = max(1, spec.problem.gpus)
        budget = spec.problem.budget
        self._cap = min(budget.gpu_seconds / self._gpus, budget.deadline_seconds)

    @property
    def engine_seconds(self) -> float:
        """GPUs x seconds of the whole run so far; a machine without GPU counts as one."""
        return self._gpus * (self._earlier + self._elapsed)

    @property
    def left_seconds(self) -> float:
        """Wall time until the budget or the deadline is spent; never negative."""
        return max(0.0, self._cap - self._earlier - self._elapsed)

    @property
    def _elapsed(self) -> float:
        return self._clock() - self._began
