"""Whether windows that are compared with each other were measured on the same GPU, so to speak."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from vllm_tuning.tuning.model import GPUActivity, ProbeResult

CLOCK_SHARE = 0.05
"""An SM clock this much lower needs a reason of its own. What draws more power is clocked down by
the power cap, by 10 % between two token budgets at one load of an H200 (1742 and 1583 MHz): that is
what the limits cost, and no reason to repeat.
"""

POWER_SHARE = 0.10
"""Windows that both run into the power cap draw the same power but for this: 4.5 % at most between
the paired windows of that card (``benchmarks/data/h200/activity.csv``). More means that the cap
moved.
"""


def unlike_clocks(results: Sequence[ProbeResult]) -> str | None:
    """Say why the clocks of these windows at one load do not belong together.

    ``None`` = they do, or are not known.
    """
    measured = [(result.probe.id, result.gpu) for result in results if result.gpu]
    for (one, first), (other, second) in combinations(measured, 2):
        why = _capped_differently(first, second) or _clocked_down(first, second)
        if why is not None:
            return f"{one} and {other}: {why}"
    return None


def _clocked_down(first: GPUActivity, second: GPUActivity) -> str | None:
    if first.sm_clock_megahertz is None or second.sm_clock_megahertz is None:
        return None
    low, high = sorted((first, second), key=lambda gpu: gpu.sm_clock_megahertz or 0.0)
    slow, fast = low.sm_clock_megahertz or 0.0, high.sm_clock_megahertz or 0.0
    if _capped(low) or slow >= (1.0 - CLOCK_SHARE) * fast:
        return None
    return f"SM clock {slow:.0f} against {fast:.0f} MHz, and no power cap to explain it"


def _capped_differently(first: GPUActivity, second: GPUActivity) -> str | None:
    if not (_capped(first) and _capped(second) and first.power_watts and second.power_watts):
        return None
    low, high = sorted((first.power_watts, second.power_watts))
    if low >= (1.0 - POWER_SHARE) * high:
        return None
    return f"the power cap held at {low:.0f} W in one and at {high:.0f} W in the other"


def _capped(gpu: GPUActivity) -> bool:
    return "SwPowerCap" in (gpu.throttled or "")
