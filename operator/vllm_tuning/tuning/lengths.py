"""How long requests are, and how long the engine lets them be."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log, log1p, sqrt
from typing import Final

from vllm_tuning.tuning.model import Lengths, Workload

OUTPUT_SHARE: Final = 4
"""Where a workload does not fit the context, the output keeps at least one part in so many."""

TAIL_DEVIATIONS: Final = 3.09
"""Standard deviations below which 99.9 % of a normal distribution lie."""


def lognormal_parameters(mean: float, cv: float) -> tuple[float, float]:
    """Return (mu, sigma) of the lognormal with that mean and coefficient of variation.

    The mean is that of the unclipped distribution: a ``maximum`` near it makes the real mean less.
    """
    variance = log1p(cv * cv)
    return log(mean) - variance / 2, sqrt(variance)


def longest(lengths: Lengths) -> int:
    """Tokens that no request exceeds; of an open-ended distribution, that one in 1,000 exceeds."""
    if lengths.histogram:
        last = lengths.histogram[-1][0]
        return min(last, lengths.maximum or last)
    if not lengths.cv_percent:
        return lengths.mean
    if lengths.maximum is not None:
        return lengths.maximum
    mu, sigma = lognormal_parameters(lengths.mean, lengths.cv_percent / 100)
    return int(exp(mu + TAIL_DEVIATIONS * sigma))


def fit_context(workload: Workload, max_model_len: int | None) -> Workload:
    """Cut a workload's lengths to the context: vLLM refuses a request that does not fit.

    A workload that fits comes back as it is. Else the output keeps what the prompts leave, a
    quarter of the context at least, and the prompts get the rest. ``max_model_len`` in tokens,
    ``None`` = not known.
    """
    prompt, output = longest(workload.input_tokens), longest(workload.output_tokens)
    if max_model_len is None or prompt + output <= max_model_len:
        return workload
    room = max(max_model_len - prompt, max_model_len // OUTPUT_SHARE, 1)
    outputs = _cut(workload.output_tokens, room)
    room = max(max_model_len - min(output, room), 1)
    return replace(workload, input_tokens=_cut(workload.input_tokens, room), output_tokens=outputs)


def tell_cut(declared: Workload, fitted: Workload, max_model_len: int | None) -> str:
    """Say what ``fit_context`` cut, in one sentence for people; empty if nothing."""
    if declared == fitted:
        return ""
    cuts = [
        f"{name} to {longest(after)} tokens"
        for name, before, after in (
            ("prompts", declared.input_tokens, fitted.input_tokens),
            ("outputs", declared.output_tokens, fitted.output_tokens),
        )
        if before != after
    ]
    return (
        f"The workload does not fit the engine's max_model_len of {max_model_len}: "
        f"{' and '.join(cuts)} were cut."
    )


def _cut(lengths: Lengths, most: int) -> Lengths:
    if longest(lengths) <= most:
        return lengths
    fixed = not lengths.histogram and not lengths.cv_percent and lengths.maximum is None
    return replace(lengths, mean=min(lengths.mean, most), maximum=None if fixed else most)
