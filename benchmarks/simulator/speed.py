"""How much faster than real time the twin runs on one core: virtual seconds per CPU second.

python benchmarks/simulator/speed.py
"""

from __future__ import annotations

import time
from itertools import repeat

from vllm_tuning.bench.sim.assemble import assemble
from vllm_tuning.bench.sim.memory import EngineSettings, MemoryPlan
from vllm_tuning.bench.sim.parameters import PRESETS
from vllm_tuning.bench.sim.virtual import VirtualLoad

VIRTUAL_SECONDS = 120.0
BLOCKS = 57_512


def run(concurrency: int, rounds: int = 3) -> tuple[float, float]:
    """Return virtual seconds per CPU second, and CPU microseconds per step; the best of rounds."""
    parameters = PRESETS["h200-8b"]
    settings = EngineSettings(256, 8192, 4096, enable_prefix_caching=False)
    best, per_step = 0.0, 0.0
    for seed in range(rounds):
        core = assemble(
            parameters,
            settings,
            MemoryPlan(0, BLOCKS, BLOCKS * 16),
            seed=seed,
            track_decoding=False,
        )
        load = VirtualLoad(core, repeat((512, 128)), frontend=parameters.frontend, origin=0.0)
        load.start_closed(concurrency)
        began = time.process_time()
        load.run_until(VIRTUAL_SECONDS)
        took = time.process_time() - began
        if VIRTUAL_SECONDS / took > best:
            best, per_step = VIRTUAL_SECONDS / took, 1e6 * took / core.scheduler.steps
    return best, per_step


def measure_speed() -> str:
    """A table for the results page."""
    lines = ["| running requests | times real time | µs per step |", "|---|---|---|"]
    for concurrency in (16, 64, 256):
        ratio, per_step = run(concurrency)
        lines.append(f"| {concurrency} | {ratio:.0f} | {per_step:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(measure_speed())
