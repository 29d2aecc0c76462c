"""Faults that tests ask for, and what else is chosen by environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from vllm_tuning.bench.sim.cost import StepCost
from vllm_tuning.bench.sim.parameters import PRESETS, EngineParameters

NOT_TIMES = frozenset({"throttle", "heat_seconds", "expert_tokens", "pad_tokens"})
"""Coefficients of ``StepCost`` that are no milliseconds."""

FAIL_START = ("oom", "args", "env", "hang")


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong, and when. Counts start at the engine's start; ``None`` = never."""

    fail_start: str | None = None
    """``oom`` (graph capture), ``args`` (exit 2), ``env`` (device memory taken), ``hang`` (never
    ready).
    """
    crash_after_requests: int | None = None
    """The engine core dies when this many requests have finished."""
    hang_after: int | None = None
    """No step is made once this many requests have arrived; ``/health`` stays 200, as in vLLM."""

    def hangs(self, received: int) -> bool:
        """Whether the engine has hung by now."""
        return self.hang_after is not None and received >= self.hang_after

    def crashes(self, finished: int) -> bool:
        """Whether the engine dies now."""
        return self.crash_after_requests is not None and finished >= self.crash_after_requests


@dataclass(frozen=True, slots=True)
class Simulation:
    """What the environment chose."""

    parameters: EngineParameters
    faults: Faults
    start_seconds: float
    seed: int


def from_environment(environment: Mapping[str, str]) -> Simulation:
    """Read ``SIMULATE_*``.

    ``SIMULATE_PRESET`` names the physics, ``SIMULATE_CAPACITY_FACTOR`` divides every step's time,
    ``SIMULATE_START_SECONDS`` is the time until ready, ``SIMULATE_SEED`` draws the noise.

    Raises:
        ValueError: a value is not known or not a number.
    """
    preset = environment.get("SIMULATE_PRESET", "tiny")
    if preset not in PRESETS:
        msg = f"SIMULATE_PRESET={preset} is not one of {', '.join(PRESETS)}"
        raise ValueError(msg)
    parameters = PRESETS[preset]
    factor = float(environment.get("SIMULATE_CAPACITY_FACTOR", "1"))
    if factor <= 0:
        msg = f"SIMULATE_CAPACITY_FACTOR={factor} must be above 0"
        raise ValueError(msg)
    if factor != 1:
        parameters = replace(parameters, cost=_faster(parameters.cost, factor))
    fail = environment.get("SIMULATE_FAIL_START") or None
    if fail is not None and fail not in FAIL_START:
        msg = f"SIMULATE_FAIL_START={fail} is not one of {', '.join(FAIL_START)}"
        raise ValueError(msg)
    return Simulation(
        parameters=parameters,
        faults=Faults(
            fail_start=fail,
            crash_after_requests=_count(environment, "SIMULATE_CRASH_AFTER_REQUESTS"),
            hang_after=_count(environment, "SIMULATE_HANG_AFTER"),
        ),
        start_seconds=float(environment.get("SIMULATE_START_SECONDS", "0.3")),
        seed=int(environment.get("SIMULATE_SEED", "0")),
    )


def _count(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name)
    return int(text) if text else None


def _faster(cost: StepCost, factor: float) -> StepCost:
    slower = {
        field.name: getattr(cost, field.name) / factor
        for field in fields(cost)
        if field.name not in NOT_TIMES
    }
    return replace(cost, **slower)
