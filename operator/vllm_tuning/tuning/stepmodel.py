"""A model of the engine's step: it orders candidates and never gives a verdict.

A step takes ``base + per_kv_token x KV tokens + per_token x scheduled tokens``. Under a steady
load of L requests per second, Little's law makes both sums proportional to L x step, so the step
is ``base / (1 - L x drag)``. ``base`` and ``per_token`` are read off requests that run alone,
``drag`` off one loaded closed loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from vllm_tuning.tuning.model import SLO, Limits, Metric, ProbeResult, Problem, Workload

TAIL = {Metric.TPOT: 1.25, Metric.ITL: 1.6}
"""p95 over mean, as seen on a data-centre GPU near the knee; only orders candidates."""


@dataclass(frozen=True, slots=True)
class StepModel:
    """Seconds; loads are requests per second."""

    base: float
    per_token: float
    per_kv_token: float
    prompt_tokens: int
    output_tokens: int

    @property
    def drag(self) -> float:
        """Seconds of work that one request adds to the engine: saturation is at its inverse."""
        context = self.prompt_tokens + self.output_tokens / 2
        return (
            self.per_kv_token * self.output_tokens * context
            + self.per_token * (self.prompt_tokens + self.output_tokens)
        )  # fmt: skip

    @property
    def saturation(self) -> float:
        """The load that no setting can carry."""
        return 1.0 / self.drag

    def step(self, load: float) -> float:
        """Mean step under a steady load; infinite from saturation on."""
        left = 1.0 - load * self.drag
        return self.base / left if left > 0 else float("inf")

    def running(self, load: float) -> float:
        """Mean requests that decode at the same time."""
        return load * self.output_tokens * self.step(load)

    def largest_load(self, limits: Limits, slos: tuple[SLO, ...]) -> float:
        """The largest load that the model believes to meet ``slos``, by bisection."""
        low, high = 0.0, self.saturation
        for _ in range(40):
            middle = (low + high) / 2
            if self._meets(middle, limits, slos):
                low = middle
            else:
                high = middle
        return low

    def _meets(self, load: float, limits: Limits, slos: tuple[SLO, ...]) -> bool:
        step = self.step(load)
        if step == float("inf"):
            return False
        running = load * self.output_tokens * step
        budget = limits.max_num_batched_tokens - running
        if running > limits.max_num_seqs or budget <= 0:
            return False
        full = self._full_step(limits, running)
        utilisation = load * self.prompt_tokens * full / budget
        if utilisation >= 0.98:
            return False
        return all(
            self._latency_ms(slo, step, full, budget, utilisation) <= slo.max_milliseconds
            for slo in slos
            if slo.max_milliseconds is not None
        )

    def _full_step(self, limits: Limits, running: float) -> float:
        context = self.prompt_tokens + self.output_tokens / 2
        return (
            self.base
            + self.per_kv_token * running * context
            + self.per_token * limits.max_num_batched_tokens
        )

    def _latency_ms(
        self, slo: SLO, step: float, full: float, budget: float, utilisation: float
    ) -> float:
        """The SLO's percentile, roughly: queueing as in M/M/1, stalls as one full step."""
        share = (slo.percentile or 95) / 100.0
        chunk = min(self.prompt_tokens, budget)
        work = step + self.per_token * chunk
        prefill = work * max(1.0, self.prompt_tokens / budget)
        first = prefill * (1.0 + utilisation / (1.0 - utilisation) * -log(1.0 - share) / 2)
        match slo.metric:
            case Metric.TTFT:
                return first * 1e3
            case Metric.E2E_LATENCY:
                return (first + self.output_tokens * step * 1.1) * 1e3
            case Metric.MAX_GAP:
                stalled = min(full, step + self.per_token * min(2.0 * self.prompt_tokens, budget))
                return stalled * 1e3
            case _:
                return step * TAIL.get(slo.metric, 1.0) * 1e3


def fit(problem: Problem, alone: ProbeResult, loaded: ProbeResult | None) -> StepModel | None:
    """Fit the model, or ``None`` if the single requests were not seen whole.

    ``alone`` is a closed loop of one client, ``loaded`` one of many. Outputs of one token have no
    TPOT: then the base step is taken to be a tenth of the time to first token, which only the
    order depends on.
    """
    workload: Workload = problem.workload
    prompt, output = workload.input_tokens.mean, workload.output_tokens.mean
    if not alone.ttft.mean:
        return None
    first = alone.ttft.mean / 1e3
    base = (alone.tpot.mean / 1e3) if alone.tpot.mean else 0.1 * first
    base = min(base, first) if base > 0 else 0.1 * first
    per_token = max(first - base, 0.02 * first) / max(prompt, 1)
    free = StepModel(base, per_token, 0.0, prompt, output)
    if loaded is None or not loaded.request_rate or not loaded.tpot.mean:
        return free
    drag = (1.0 - base / max(loaded.tpot.mean / 1e3, base * 1.02)) / loaded.request_rate
    context = max(1.0, output * (prompt + output / 2))
    per_kv = (drag - per_token * (prompt + output)) / context
    if per_kv < 0:  # prefill is cheaper in a batch than alone
        return StepModel(base, drag / (prompt + output), 0.0, prompt, output)
    return StepModel(base, per_token, per_kv, prompt, output)
