"""What stored answers already say to a question that differs in its SLA only.

No second way of thinking: the search itself runs on the stored answers, each judged by the new
SLA, for as long as it asks for nothing that was not measured. Either it ends (then the answer has
cost nothing), or its open question is the first load that has to be measured; unless the new SLA is
stricter and what was confirmed meets it all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from vllm_tuning.tuning.model import (
    SLO,
    Answer,
    Budget,
    DecisionStep,
    Done,
    Ending,
    Objective,
    Probe,
    ProbeResult,
    Problem,
    Purpose,
    Question,
    Recommendation,
    Start,
    StartResult,
    Verdict,
)
from vllm_tuning.tuning.pool import pool
from vllm_tuning.tuning.recommend import margins_of
from vllm_tuning.tuning.rejudge import holding, rejudge
from vllm_tuning.tuning.search import Search
from vllm_tuning.tuning.text import describe, load_text

SHORTEST_WINDOW = 0.9
"""A stored probe stands for a question whose window is at most so much longer than its own."""


@dataclass(frozen=True, slots=True)
class Reused:
    """How far stored answers lead."""

    answers: tuple[Answer, ...]
    """Those that were used, in the order in which the search asks."""
    question: Question
    """``Done``, or what has to be measured next."""

    @property
    def recommendation(self) -> Recommendation | None:
        """The answer, if nothing has to be measured for it."""
        return self.question.recommendation if isinstance(self.question, Done) else None

    @property
    def seconds(self) -> float:
        """Wall seconds that measuring them took."""
        return sum(answer.seconds for answer in self.answers)


def reuse(problem: Problem, stored: Iterable[Answer]) -> Reused:
    """Run the search of ``problem`` on stored answers of the same measurement.

    What was measured once is not charged to the budget again.
    """
    stored = tuple(stored)
    found = _search(problem, stored)
    if found.recommendation is None and (kept := _kept(problem, stored)) is not None:
        return Reused(stored, Done(kept))
    return found


def _search(problem: Problem, stored: tuple[Answer, ...]) -> Reused:
    known = _Known(stored)
    search = Search(with_seconds(problem, known.seconds))
    used: list[Answer] = []
    while not isinstance(question := search.ask(), Done):
        answer = known.find(question, search.server, problem)
        if answer is None:
            return Reused(tuple(used), question)
        used.append(answer)
        search.tell(answer)
    return Reused(tuple(used), question)


def _kept(problem: Problem, stored: tuple[Answer, ...]) -> Recommendation | None:
    """Return the stored answer if a stricter SLA leaves it standing.

    What a looser SLA does not allow, a stricter one does not either: nothing carries more under it
    than was found, so a confirmed load that meets it as well is still the largest, and what was
    unsatisfiable stays so. Only where load is what is looked for: other objectives order by the
    SLA itself.
    """
    before = _slos_of(stored)
    stricter = all(any(new.implies(old) for new in problem.slos) for old in before)
    if problem.objective is not Objective.MAX_RATE or not before or not stricter:
        return None
    found = _search(replace(problem, slos=before), stored).recommendation
    if found is None:
        return None
    if found.ending is Ending.SLA_UNSATISFIABLE:
        message = f"{found.message} The changed SLA is stricter still."
        return replace(found, message=message)
    result = found.result
    unchanged = result is not None and result.probe.limits == problem.current
    if result is None or (found.ending is Ending.NO_IMPROVEMENT and not unchanged):
        return None  # the current limits may carry less under the stricter SLA
    proof = _proof(result.probe, problem, stored)
    if proof is None:
        return None
    return replace(
        found,
        message=f"{found.message} The changed SLA is stricter, and that load meets it as well.",
        result=proof,
        margins=margins_of(proof),
        decisions=tuple(_of_sla(step, problem.slos) for step in found.decisions),
    )


def _of_sla(step: DecisionStep, slos: Iterable[SLO]) -> DecisionStep:
    if step.topic != "SLA":
        return step
    return replace(step, decision="; ".join(map(str, slos)))


def _slos_of(stored: Iterable[Answer]) -> tuple[SLO, ...]:
    """Return the SLA that all stored probes were judged by; empty if there were several."""
    probes = [a for a in stored if isinstance(a, ProbeResult) and a.slos]
    found = {frozenset(part.slo for part in probe.slos) for probe in probes}
    return tuple(part.slo for part in probes[0].slos) if len(found) == 1 else ()


def _proof(confirmed: Probe, problem: Problem, stored: Iterable[Answer]) -> ProbeResult | None:
    """Pool the seeds of a confirmation under the SLA of ``problem``; ``None`` = no PASS."""
    seeds = [
        holding(answer, problem.slos)
        for answer in stored
        if isinstance(answer, ProbeResult)
        and answer.probe.purpose is Purpose.CONFIRM
        and (answer.probe.limits, answer.probe.load) == (confirmed.limits, confirmed.load)
    ]
    held = [seed for seed in seeds if seed is not None]
    if not held or len(held) < len(seeds):
        return None
    pooled = pool(held, alpha=confirmed.alpha)
    return pooled if pooled.verdict is Verdict.PASS else None


def with_seconds(problem: Problem, seconds: float) -> Problem:
    """Return the problem with so many wall seconds more in its budget: those spent before."""
    budget = problem.budget
    return replace(
        problem,
        budget=Budget(
            gpu_seconds=budget.gpu_seconds + seconds * max(problem.gpus, 1),
            deadline_seconds=budget.deadline_seconds + seconds,
        ),
    )


def describe_question(question: Start | Probe) -> str:
    """Say what has to be measured, e.g. ``seqs 96, tokens 2048 at 38.2/s``."""
    if isinstance(question, Start):
        return f"a start with {describe(question.limits)}"
    return f"{describe(question.limits)} at {load_text(question.load)}"


class _Known:
    """Stored answers, found by what they answer instead of by their number."""

    def __init__(self, stored: tuple[Answer, ...]) -> None:
        self._starts: dict[object, list[StartResult]] = {}
        self._probes: dict[object, list[ProbeResult]] = {}
        self.seconds = sum(answer.seconds for answer in stored)
        server: Start | None = None
        for answer in stored:
            if isinstance(answer, StartResult):
                server = answer.start if answer.facts else None
                self._starts.setdefault(_start_key(answer.start), []).append(answer)
            else:
                self._probes.setdefault(_probe_key(answer.probe, server), []).append(answer)

    def find(
        self, question: Start | Probe, server: Start | None, problem: Problem
    ) -> Answer | None:
        """Return the answer to a question, under its number, each stored one once."""
        if isinstance(question, Start):
            starts = self._starts.get(_start_key(question))
            return replace(starts.pop(0), start=question) if starts else None
        probes = self._probes.get(_probe_key(question, server))
        if not probes or probes[0].probe.window_seconds < SHORTEST_WINDOW * question.window_seconds:
            return None
        judged = rejudge(probes.pop(0), problem.slos)
        return judged and replace(judged, probe=replace(judged.probe, id=question.id))


def _start_key(start: Start) -> object:
    return (start.purpose, start.limits, start.hook)


def _probe_key(probe: Probe, server: Start | None) -> object:
    """The same limits and arrivals, on a server that was started alike."""
    started = server and (
        server.hook,
        server.limits if not server.hook else server.limits.gpu_memory_utilization_percent,
    )
    return (started, probe.limits, probe.load, probe.seed, probe.decide)
