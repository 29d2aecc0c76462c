"""Bounds of a wish compared: which SLO is the stricter, which range lies in which."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from vllm_tuning.api.spec import Parameter, UpdateMode
from vllm_tuning.api.values import SLO
from vllm_tuning.reconcile import convert

_MODES: Final = (UpdateMode.RECOMMEND, UpdateMode.MANUAL, UpdateMode.AUTO)


def implies(strict: SLO, loose: SLO) -> bool:
    """Tell whether meeting ``strict`` means meeting ``loose``."""
    return convert.core_slo(strict).implies(convert.core_slo(loose))


def intersect(a: Parameter, b: Parameter) -> Parameter | None:
    """Return the bounds that both allow, or ``None`` if they exclude each other."""
    low, high = _pick(max, a.min, b.min), _pick(min, a.max, b.max)
    if low is not None and high is not None and low > high:
        return None
    return a.model_copy(update={"min": low, "max": high})


def narrow(wished: Parameter, bound: Parameter) -> Parameter:
    """Clamp a tuning's bounds into a policy's; of a wish outside, the nearest value is left."""
    common = intersect(wished, bound)
    if common is not None:
        return common
    below = wished.max is not None and bound.min is not None and wished.max < bound.min
    edge = bound.min if below else bound.max
    return wished.model_copy(update={"min": edge, "max": edge})


def _pick(choose: Callable[[Iterable[int]], int], *values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None


def same_subject(a: SLO, b: SLO) -> bool:
    """Tell whether two SLOs bound the same percentile of the same metric."""
    return a.metric is b.metric and a.percentile == b.percentile


def rank(mode: UpdateMode | None) -> int:
    """Order modes from harmless to bold."""
    return _MODES.index(mode or UpdateMode.RECOMMEND)


def range_of(parameter: Parameter) -> str:
    """Say bounds in a word, e.g. ``8…64``."""
    low = "" if parameter.min is None else parameter.min
    high = "" if parameter.max is None else parameter.max
    return f"{low}…{high}"


def describe(slo: SLO) -> str:
    """Say an SLO in a word or two, e.g. ``p95 TTFT ≤ 300 ms``."""
    return str(convert.core_slo(slo))
