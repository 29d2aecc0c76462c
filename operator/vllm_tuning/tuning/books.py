"""What a run has spent and learned; everything here follows from its answers alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vllm_tuning.tuning.knee import is_whole
from vllm_tuning.tuning.lengths import fit_context, tell_cut
from vllm_tuning.tuning.model import (
    Answer,
    EngineFacts,
    Limits,
    Load,
    ProbeResult,
    Problem,
    Start,
    StartFailure,
    StartResult,
    Verdict,
)
from vllm_tuning.tuning.pacing import Pace, confirm_window, pace_of, probe_seconds
from vllm_tuning.tuning.priors import graph_seqs

FRUGAL_WINDOW_SECONDS = 90.0
"""Windows longer than this make a target one of low rate: few candidates, no duels."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What time is kept back for."""

    load: Load | None = None
    starts: int = 0
    probes: int = 0


class Books:
    """The answers of one run, and what follows from them."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        """As asked; from the first start on, with a workload that fits the engine's context."""
        self.pace: Pace = pace_of(problem)
        self.answers: list[Answer] = []
        self.server: Start | None = None
        self.facts: EngineFacts | None = None
        self.latency_seconds = self.pace.canary / 8
        """How long a request takes near the boundary in the mean, as far as seen: by Little's law
        the time in which the engine's requests are replaced by others."""
        self._kept = Kept()
        self.infeasible: list[tuple[Limits, StartFailure]] = []
        self.cut_short = False
        """The search's share of the budget ended before the search did."""
        self.notes: list[str] = []
        """What an engineer would want to be told, in the order it was found."""

    @property
    def starts(self) -> list[StartResult]:
        """The starts so far."""
        return [answer for answer in self.answers if isinstance(answer, StartResult)]

    @property
    def probes(self) -> list[ProbeResult]:
        """The probes so far."""
        return [answer for answer in self.answers if isinstance(answer, ProbeResult)]

    @property
    def spent_seconds(self) -> float:
        """Wall time of all answers."""
        return sum(answer.seconds for answer in self.answers)

    @property
    def left_seconds(self) -> float:
        """Wall time left under both caps."""
        budget = self.problem.budget
        cap = min(budget.gpu_seconds / max(self.problem.gpus, 1), budget.deadline_seconds)
        return cap - self.spent_seconds

    @property
    def start_seconds(self) -> float:
        """What a start takes: the longest seen, else what is assumed."""
        return max(
            (result.seconds for result in self.starts if result.facts),
            default=self.pace.assumed_start,
        )

    @property
    def reserve_seconds(self) -> float:
        """Time that nothing but what it is kept for may use; see ``keep``.

        It grows with what is learned of the latency: windows are long against that.
        """
        kept = self._kept
        if kept.load is None:
            return 0.0
        return self.seconds_for(kept.load, starts=kept.starts, probes=kept.probes)

    def seconds_for(self, load: Load, *, starts: int, probes: int) -> float:
        """What so many starts and deciding probes at ``load`` will take."""
        window = confirm_window(self.pace, self.problem, load, self.latency_seconds)
        deciding = probes * probe_seconds(window, 2, self.latency_seconds)
        return 1.1 * starts * self.start_seconds + deciding

    @property
    def frugal(self) -> bool:
        """Whether probes are so long that only the likeliest candidates can be afforded."""
        return self.pace.search_latencies * self.latency_seconds > FRUGAL_WINDOW_SECONDS

    @property
    def live(self) -> bool:
        """Whether the running server takes new limits without a restart."""
        return bool(
            self.server and self.server.hook and self.facts and self.facts.live_limits is None
        )

    @property
    def graph_tokens(self) -> int:
        """Largest step, in tokens, that had a CUDA graph on any start; 0 = none, or not told."""
        return max((s.facts.graph_tokens or 0 for s in self.starts if s.facts), default=0)

    def lacks_graphs(self, limits: Limits) -> bool:
        """Whether a start with ``limits`` has fewer CUDA graphs than live limits show."""
        return limits.max_num_seqs < graph_seqs(limits.max_num_batched_tokens, self.graph_tokens)

    def dominated(self, limits: Limits) -> StartFailure | None:
        """The failure of a start that asked for no more than ``limits`` in any respect."""
        for failed, failure in self.infeasible:
            if (
                failed.max_num_seqs <= limits.max_num_seqs
                and failed.max_num_batched_tokens <= limits.max_num_batched_tokens
                and (failed.gpu_memory_utilization_percent or 0)
                <= (
                    limits.gpu_memory_utilization_percent
                    or failed.gpu_memory_utilization_percent
                    or 0
                )
            ):
                return failure
        return None

    def keep(self, load: Load, *, starts: int, probes: int) -> None:
        """Keep time back for so many starts and deciding probes at ``load``."""
        self._kept = Kept(load, starts, probes)

    def fit_workload(self) -> None:
        """Cut the workload to the running engine's context, and note that."""
        declared = self.problem.workload
        longest = self.facts.max_model_len if self.facts else None
        fitted = fit_context(declared, longest)
        if cut := tell_cut(declared, fitted, longest):
            self.notes.append(cut)
            self.problem = replace(self.problem, workload=fitted)

    def learn_latency(self, result: ProbeResult) -> None:
        """Follow the latency of requests, but for overloads: windows are not made for those."""
        if not result.e2e.count:
            return
        seen = (result.e2e.mean or 0.0) / 1e3
        calm = result.verdict is not Verdict.FAIL and result.reason != "NearLimit"
        # A probe that was cut short saw the end of its fastest requests only.
        shorter = seen < self.latency_seconds and is_whole(result)
        if seen and (calm or shorter):
            self.latency_seconds = seen
