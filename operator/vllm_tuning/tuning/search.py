"""Ask and tell: the search as a value that answers, and nothing else, move forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from vllm_tuning.tuning.experiment import Experiment, Steps
from vllm_tuning.tuning.model import (
    Answer,
    Done,
    Ending,
    Limits,
    Probe,
    Problem,
    Question,
    Recommendation,
    Start,
    StartResult,
)
from vllm_tuning.tuning.recommend import Findings, unconfirmed
from vllm_tuning.tuning.strategy import strategy

Strategy: TypeAlias = Callable[[Experiment, Findings], Steps[Recommendation]]
"""What is asked, and what follows: the product has one, benchmarks have others."""


class Search:
    """The search for the best limits of one problem.

    ``ask`` gives the question, ``tell`` takes its answer. Deterministic: the same problem and the
    same answers give the same questions, so a list of answers is the whole state (``replay``).
    """

    def __init__(self, problem: Problem, plan: Strategy = strategy) -> None:
        self._experiment = Experiment(problem)
        self._findings = Findings(self._experiment)
        self._steps = plan(self._experiment, self._findings)
        self._question: Question
        self._advance(None)

    def ask(self) -> Question:
        """Return the open question; the same one until it is answered. ``Done`` stays for ever."""
        return self._question

    def tell(self, answer: Answer) -> None:
        """Take the answer to the open question.

        Raises ``ValueError`` if it answers another one: that is a bug of the caller, or a replay
        of another problem.
        """
        given = answer.start if isinstance(answer, StartResult) else answer.probe
        if not _answers(given, self._question):
            opened = "none" if isinstance(self._question, Done) else self._question.id
            raise ValueError(f"the open question is {opened}, the answer is to {given.id}")
        self._advance(answer)

    def replay(self, answers: Iterable[Answer]) -> int:
        """Tell the answers of an earlier attempt; returns how many were taken.

        Ends at the first that does not fit: what follows was measured under another plan and is
        measured again.
        """
        taken = 0
        for answer in answers:
            if isinstance(self._question, Done):
                break
            given = answer.start if isinstance(answer, StartResult) else answer.probe
            if not _same_question(given, self._question):
                break
            self._advance(answer)
            taken += 1
        return taken

    def stop(self, why: str, *, ending: Ending = Ending.BUDGET_EXHAUSTED) -> Done:
        """End now, from outside: tell what is known, recommend nothing new."""
        if not isinstance(self._question, Done):
            self._steps.close()
            self._question = Done(unconfirmed(self._findings, ending, why))
        return self._question

    @property
    def problem(self) -> Problem:
        """The problem as it is measured: its workload fits the engine once that has started."""
        return self._experiment.problem

    @property
    def believed(self) -> tuple[Limits, float] | None:
        """The best limits of the race and the load that they are believed to carry: no promise."""
        chosen, load = self._findings.chosen, self._findings.chosen_load
        return (chosen, load.estimate) if chosen is not None and load is not None else None

    @property
    def server(self) -> Start | None:
        """The start whose server the open question needs; a resumed run starts it again first."""
        return self._experiment.server

    @property
    def spent_seconds(self) -> float:
        """Wall seconds of all answers."""
        return self._experiment.spent_seconds

    def _advance(self, answer: Answer | None) -> None:
        try:
            self._question = next(self._steps) if answer is None else self._steps.send(answer)
        except StopIteration as end:
            self._question = Done(end.value)


def _answers(given: Start | Probe, expected: Question) -> bool:
    return type(given) is type(expected) and given.id == getattr(expected, "id", None)


def _same_question(given: Start | Probe, expected: Start | Probe | Done) -> bool:
    if isinstance(given, Start) and isinstance(expected, Start):
        return (given.id, given.limits, given.hook) == (expected.id, expected.limits, expected.hook)
    if isinstance(given, Probe) and isinstance(expected, Probe):
        return (given.id, given.limits, given.load, given.seed, given.decide) == (
            expected.id,
            expected.limits,
            expected.load,
            expected.seed,
            expected.decide,
        )
    return False
