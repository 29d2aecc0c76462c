"""Many runs of one serving queue at once: continuous batching, one array element a run.

A coarser twin of the simulated engine (``vllm_tuning.bench.sim``), with its coefficients and its
causes of variance, some hundred times cheaper because every engine step is one numpy step over all
runs. What it leaves out: CUDA graph buckets, KV pressure, prefix hits and the API server's own
queue; ``validate.py`` says how near it comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from vllm_tuning.bench.sim.cost import Noise, StepCost
from vllm_tuning.tuning.lengths import lognormal_parameters
from vllm_tuning.tuning.model import Lengths, Limits, Workload
from vllm_tuning.tuning.samples import Floats, Ints

LARGEST_GRAPH = 512
"""Tokens up to which a step with prefill is launched as one CUDA graph."""

MEAN_HEAT = 0.5
"""The simulated engine's throttling follows the last tenth of a second; here it is its mean."""


@dataclass(frozen=True, slots=True)
class Span:
    """How long a run is, and from when on its windows count; seconds since its first request."""

    warmup: float
    window: float
    total: float


@dataclass(frozen=True, slots=True)
class Run:
    """What the clients of one run saw: one row per request. Not there yet = NaN."""

    scheduled_at: Floats
    first_token_at: Floats
    last_token_at: Floats
    output_tokens: Ints


class BatchQueue:
    """Engines of equal make, each under its own load."""

    def __init__(
        self, cost: StepCost, noise: Noise, limits: Limits, *, spread: float = 0.0
    ) -> None:
        """``spread``: of a speed factor that lasts for a whole run (relative)."""
        self._cost, self._noise, self._limits, self._spread = cost, noise, limits, spread

    def run(
        self,
        workload: Workload,
        rates: Sequence[float],
        spans: Sequence[Span],
        rng: np.random.Generator,
    ) -> list[Run]:
        """Serve one run per element of ``rates`` (requests per second)."""
        until = max(span.total for span in spans)
        arrivals = _Arrivals.draw(workload, np.array(rates), until, rng)
        steps = _Steps(self._cost, self._noise, spans, rng, self._spread)
        first, ends = self._serve(arrivals, steps, until)
        return [arrivals.seen(row, first[row], ends[:, row], until) for row in range(len(rates))]

    def _serve(self, arrivals: _Arrivals, steps: _Steps, until: float) -> tuple[Ints, Floats]:
        """Step all engines until ``until``; return each request's first step, and all step ends."""
        engines = _Engines(self._limits, arrivals)
        runs = len(arrivals.at)
        device_free, host_free = np.zeros(runs), np.zeros(runs)
        before = np.zeros(runs)
        """When the device had done the step before the last one."""
        ends: list[Floats] = []
        while before.min() < until:
            engines.let_go()
            # Two steps are in flight: the host schedules the next one when it has launched the
            # last one and taken in the tokens of the one before.
            now = np.maximum(before, host_free)
            ends.append(now)
            now = engines.wake(now, latest=10 * until)
            decoding, read = engines.running.copy(), engines.context.copy()
            prompt_tokens, attention = engines.admit(now)
            device, launch = steps.seconds(now, decoding, read, prompt_tokens, attention)
            host_free = now + launch
            before = device_free
            device_free = np.maximum(np.maximum(now, device_free) + device, host_free)
            engines.generate()
        # The tokens of a step are handed out when the next but one is scheduled.
        return engines.first, np.array(ends[2:])


class _Engines:
    """Schedulers side by side: who waits, who runs, and what they hold."""

    def __init__(self, limits: Limits, arrivals: _Arrivals) -> None:
        runs, count = arrivals.at.shape
        self._limits, self._arrivals = limits, arrivals
        self._rows = np.arange(runs)
        self._ring = int(arrivals.outputs.max()) + 1
        self._leaving = np.zeros((self._ring, runs), dtype=np.int64)
        """Requests that end with each of the coming steps, and (below) the tokens they hold."""
        self._leaving_context = np.zeros((self._ring, runs))
        self._head = np.zeros(runs, dtype=np.int64)
        """The first request that has not all of its prompt in the engine ..."""
        self._rest = arrivals.prompts[:, 0].copy()
        """... and what is missing of it."""
        self._step = 0
        self.first = np.full((runs, count), -1, dtype=np.int64)
        """The step of each request's first token; -1 = not yet."""
        self.running = np.zeros(runs, dtype=np.int64)
        self.context = np.zeros(runs)

    def let_go(self) -> None:
        """Take out what ended with the last step."""
        slot = self._step % self._ring
        self.running -= self._leaving[slot]
        self.context -= self._leaving_context[slot]
        self._leaving[slot], self._leaving_context[slot] = 0, 0.0

    def wake(self, now: Floats, *, latest: float) -> Floats:
        """Let engines that have nothing to do wait for their next request."""
        due = np.minimum(self._arrivals.at[self._rows, self._head], latest)
        return np.where((self.running == 0) & (due > now), due, now)

    def admit(self, now: Floats) -> tuple[Ints, Floats]:
        """Give prompts the rest of the step's budget; return their tokens and attending pairs."""
        at, prompts = self._arrivals.at, self._arrivals.prompts
        left = self._limits.max_num_batched_tokens - self.running
        tokens, attention = np.zeros(len(now), dtype=np.int64), np.zeros(len(now))
        seats = self._limits.max_num_seqs
        while True:
            takes = (at[self._rows, self._head] <= now) & (left > 0) & (self.running < seats)
            if not takes.any():
                return tokens, attention
            who = np.flatnonzero(takes)
            head = self._head[who]
            chunk = np.minimum(self._rest[who], left[who])
            attention[who] += chunk * (prompts[who, head] - self._rest[who] + chunk / 2)
            tokens[who] += chunk
            left[who] -= chunk
            self._rest[who] -= chunk
            done = self._rest[who] == 0
            self._begin(who[done], head[done])

    def _begin(self, who: Ints, request: Ints) -> None:
        """Count requests as running whose prompts are whole: their first token comes now."""
        prompts, outputs = self._arrivals.prompts, self._arrivals.outputs[who, request]
        self.first[who, request] = self._step
        slot = (self._step + outputs) % self._ring
        self._leaving[slot, who] += 1
        self._leaving_context[slot, who] += prompts[who, request] + outputs
        self.running[who] += 1
        self.context[who] += prompts[who, request]
        self._head[who] += 1
        self._rest[who] = prompts[who, self._head[who]]

    def generate(self) -> None:
        """End the step: every running request has one token more."""
        self.context += self.running
        self._step += 1


@dataclass(frozen=True, slots=True)
class _Arrivals:
    at: Floats
    """Runs by requests; the last one of each run never comes."""
    prompts: Ints
    outputs: Ints

    @classmethod
    def draw(
        cls, workload: Workload, rates: Floats, seconds: float, rng: np.random.Generator
    ) -> _Arrivals:
        most = float(rates.max()) * seconds
        count = int(most + 8 * np.sqrt(most / workload.burstiness)) + 10
        shape = (len(rates), count)
        gaps = rng.gamma(workload.burstiness, 1 / workload.burstiness, shape)
        at = np.cumsum(gaps, axis=1) / rates[:, None]
        at[:, -1] = np.inf
        return cls(
            at,
            _lengths(workload.input_tokens, shape, rng),
            _lengths(workload.output_tokens, shape, rng),
        )

    def seen(self, row: int, first: Ints, ends: Floats, until: float) -> Run:
        sent = self.at[row] <= until
        first, outputs = first[sent], self.outputs[row][sent]
        last = np.where(first >= 0, first + outputs - 1, len(ends))
        padded = np.append(ends, np.nan)
        return Run(
            self.at[row][sent],
            padded[np.where(first >= 0, np.minimum(first, len(ends)), len(ends))],
            padded[np.minimum(last, len(ends))],
            outputs,
        )


def _lengths(lengths: Lengths, shape: tuple[int, int], rng: np.random.Generator) -> Ints:
    if lengths.cv_percent == 0:
        return np.full(shape, lengths.mean, dtype=np.int64)
    mu, sigma = lognormal_parameters(lengths.mean, lengths.cv_percent / 100)
    most = lengths.maximum or 8 * lengths.mean
    return np.clip(np.rint(rng.lognormal(mu, sigma, shape)), 1, most).astype(np.int64)


class _Steps:
    """Durations of steps, with what makes windows differ."""

    def __init__(
        self,
        cost: StepCost,
        noise: Noise,
        spans: Sequence[Span],
        rng: np.random.Generator,
        spread: float,
    ) -> None:
        self._cost, self._noise, self._rng = cost, noise, rng
        runs = len(spans)
        self._warmup = np.array([span.warmup for span in spans])
        self._window = np.array([span.window for span in spans])
        self._last = 1 + int(max((span.total - span.warmup) / span.window for span in spans))
        shape = (self._last + 1, runs)
        self._factor = (
            np.exp(rng.normal(0.0, noise.window, shape)) if noise.window else np.ones(shape)
        )
        self._factor *= np.exp(rng.normal(0.0, spread, runs)) if spread else 1.0
        share = noise.slow_share
        self._share = rng.beta(1.5 * share, 1.5 * (1 - share), shape) if share else np.zeros(shape)
        self._slow = np.zeros(runs, dtype=np.bool_)
        self._toggle_at = np.zeros(runs)
        self._drift = np.zeros(runs)
        self._rows = np.arange(runs)

    def seconds(
        self, now: Floats, decoding: Ints, context: Floats, prompt_tokens: Ints, attention: Floats
    ) -> tuple[Floats, Floats]:
        """Return each engine's device and host time of a step that is scheduled at ``now``."""
        cost, noise = self._cost, self._noise
        window = ((now - self._warmup) // self._window + 1).clip(0, self._last).astype(np.int64)
        mixed = prompt_tokens > 0
        compute = (
            1e-3 * cost.per_token * (-(-prompt_tokens // cost.pad_tokens) * cost.pad_tokens)
            + 1e-6 * cost.per_attention * attention
        )
        device = np.where(
            mixed,
            cost.mixed_fixed
            + cost.mixed_request * decoding
            + 1e-3 * cost.mixed_context * context
            + compute * (1 + cost.throttle * MEAN_HEAT),
            cost.fixed
            + cost.per_request * decoding
            + 1e-3 * cost.per_request_squared * decoding**2
            + 1e-3 * cost.per_context * context,
        )
        factor = self._factor[window, self._rows] * (
            1 + noise.step * self._rng.standard_normal(len(now))
        )
        if noise.drift:
            rate = np.minimum(1.0, 1e-3 * device / noise.drift_seconds)
            self._drift += (
                noise.drift * np.sqrt(2 * rate) * self._rng.standard_normal(len(now))
                - rate * self._drift
            )
            factor = factor * (1 + self._drift)
        tokens = prompt_tokens + decoding
        launch: Floats = np.where(
            ~mixed,
            cost.launch_graph,
            np.where(
                tokens <= LARGEST_GRAPH,
                cost.launch_mixed + 1e-3 * cost.launch_mixed_per_token * tokens,
                self._eager(now, decoding, self._share[window, self._rows]),
            ),
        )
        seconds: Floats = 1e-3 * device * np.maximum(factor, 0.2)
        return seconds, 1e-3 * launch

    def _eager(self, now: Floats, decoding: Ints, share: Floats) -> Floats:
        cost, noise = self._cost, self._noise
        launch = (cost.launch_eager + cost.launch_eager_per_request * decoding).astype(np.float64)
        if not noise.slow_share:
            return launch
        due = now >= self._toggle_at
        if due.any():
            turns = self._rng.random(len(now)) < share + noise.slow_share_per_request * decoding
            self._slow = np.where(due, turns, self._slow)
            self._toggle_at = np.where(
                due, now + self._rng.exponential(noise.slow_seconds, len(now)), self._toggle_at
            )
        slowed: Floats = launch * np.where(self._slow, noise.slow_factor, 1.0)
        return slowed
