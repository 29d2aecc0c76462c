"""One run as the strategies see it: ask for a start or a probe, get the answer, keep the books.

Strategies are generators that yield questions and receive answers, so that they read like the plan
that they are. Everything here follows from the answers alone; replaying them gives the same state.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from typing import TypeAlias, TypeVar
from zlib import crc32

from vllm_tuning.tuning.books import Books
from vllm_tuning.tuning.diagnosis import CLIENT_REASONS
from vllm_tuning.tuning.model import (
    Answer,
    FailureKind,
    Limits,
    Load,
    OpenLoad,
    Probe,
    ProbeResult,
    Purpose,
    Start,
    StartResult,
    Verdict,
)
from vllm_tuning.tuning.pacing import confirm_window, search_window

T = TypeVar("T")
Steps: TypeAlias = Generator[Start | Probe, Answer, T]
"""A part of a strategy that ends with a ``T``."""

INVALID_RETRIES = 2
"""How often an INVALID probe is repeated before the run gives up: the causes do not go away by
themselves.
"""

CONFIRM_SEEDS = 2
"""Least arrival seeds of a PASS; none may FAIL, and together they must PASS."""


class OutOfBudgetError(Exception):
    """The next question would not fit into what is left of the budget."""


class UnmeasurableError(Exception):
    """A probe stayed INVALID: nothing that follows would be data."""

    def __init__(self, result: ProbeResult) -> None:
        super().__init__(result.message)
        self.result = result


class ClientBoundError(UnmeasurableError):
    """The load driver did not keep up with this load; a lower one may well be measurable."""


class StartFailedError(Exception):
    """The engine did not start with limits that the strategy cannot do without."""

    def __init__(self, result: StartResult) -> None:
        super().__init__(result.failure.message if result.failure else "")
        self.result = result


class Experiment(Books):
    """The state of one run, and the questions that change it."""

    def start(
        self, limits: Limits, purpose: Purpose, *, hook: bool, why: str
    ) -> Steps[StartResult]:
        """Start a server; failures are returned. One of the environment gets a second try."""
        for attempt in (1, 2):
            if self.left_seconds < self.start_seconds:
                raise OutOfBudgetError
            question = Start(f"s{len(self.starts) + 1}", purpose, limits, hook, why)
            answer = yield question
            if not isinstance(answer, StartResult):
                raise TypeError(f"{question.id} is a start, the answer is {type(answer).__name__}")
            self.answers.append(answer)
            self.server, self.facts = (question, answer.facts) if answer.facts else (None, None)
            failure = answer.failure
            if failure is None:
                self.fit_workload()
                return answer
            if failure.kind is FailureKind.INFEASIBLE:
                self.infeasible.append((limits, failure))
            if failure.kind in {FailureKind.INFEASIBLE, FailureKind.BAD_ARGUMENTS}:
                return answer
            if attempt == 2:
                return answer
        raise AssertionError("the loop returns")

    def probe(
        self,
        limits: Limits,
        load: Load,
        purpose: Purpose,
        *,
        why: str,
        repeat: int = 0,
        windows: int = 1,
        window_seconds: float | None = None,
    ) -> Steps[ProbeResult]:
        """Measure one load point for ordering, on a server that has these limits."""
        yield from self._serve(limits)
        window = window_seconds or search_window(self.pace, load, self.latency_seconds)
        question = self._question(limits, load, purpose, why=why, repeat=repeat, window=window)
        return (yield from self._ask(replace(question, windows=windows)))

    def glance(
        self,
        limits: Limits,
        load: Load,
        purpose: Purpose,
        *,
        why: str,
        window_seconds: float,
    ) -> Steps[ProbeResult]:
        """Look once at a load point, for people: whole even where it fails, never repeated.

        Nothing is learned from it.
        """
        yield from self._serve(limits)
        question = self._question(limits, load, purpose, why=why, repeat=0, window=window_seconds)
        return (yield from self._tell(replace(question, stop_on_fail=False)))

    def decide(
        self, limits: Limits, load: Load, purpose: Purpose, *, why: str, alpha: float, repeat: int
    ) -> Steps[ProbeResult]:
        """Measure one load point for a verdict: whole windows, no early PASS."""
        window = confirm_window(self.pace, self.problem, load, self.latency_seconds)
        question = self._question(
            limits, load, purpose, why=why, repeat=1000 + repeat, window=window
        )
        return (yield from self._ask(replace(question, windows=2, decide=True, alpha=alpha)))

    def _question(
        self,
        limits: Limits,
        load: Load,
        purpose: Purpose,
        *,
        why: str,
        repeat: int,
        window: float,
    ) -> Probe:
        return Probe(
            id="",
            purpose=purpose,
            limits=limits,
            load=load,
            seed=self.seed(load, repeat),
            window_seconds=round(window, 3),
            why=why,
        )

    def seed(self, load: Load, repeat: int) -> int:
        """The arrivals of a load: the same for all limits (paired), other ones per repeat."""
        return crc32(f"{self.problem.seed}/{load_value(load):.5f}/{repeat}".encode())

    def _serve(self, limits: Limits) -> Steps[None]:
        """Make sure that the running server has ``limits``, live or by a restart."""
        if self.server is None:
            raise AssertionError("a probe needs a server")
        if self.live or self.server.limits == limits:
            return
        result = yield from self.start(
            limits, Purpose.SEARCH, hook=False, why="limits cannot change live on this engine"
        )
        if result.failure is not None:
            raise StartFailedError(result)

    def _ask(self, question: Probe) -> Steps[ProbeResult]:
        least = question.windows * question.window_seconds
        for attempt in range(INVALID_RETRIES + 1):
            left = self.left_seconds - self.reserve_seconds
            if left < least + self.latency_seconds:
                raise OutOfBudgetError
            answer = yield from self._tell(replace(question, seed=question.seed + attempt))
            if answer.verdict is not Verdict.INVALID:
                self.learn_latency(answer)
                return answer
            if attempt == INVALID_RETRIES:
                by_client = answer.reason in CLIENT_REASONS
                raise (ClientBoundError if by_client else UnmeasurableError)(answer)
        raise AssertionError("the loop returns or raises")

    def _tell(self, question: Probe) -> Steps[ProbeResult]:
        answer = yield (asked := replace(question, id=f"p{len(self.probes) + 1}"))
        if not isinstance(answer, ProbeResult):
            raise TypeError(f"{asked.id} is a probe, the answer is {type(answer).__name__}")
        self.answers.append(answer)
        return answer


def load_value(load: Load) -> float:
    """The number that orders loads of one kind: requests per second, or clients."""
    return load.rate_per_second if isinstance(load, OpenLoad) else float(load.concurrency)


def rounded(load: float) -> float:
    """A load with five digits, so that it survives text and equals itself."""
    return float(f"{load:.5g}")
