"""How long prompts and outputs are: endless seeded draws from what a workload declares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vllm_tuning.tuning.lengths import lognormal_parameters
from vllm_tuning.tuning.model import Lengths


@dataclass(frozen=True, slots=True)
class RequestShape:
    """How long one request is, and which blocks of its prompt other requests may share."""

    input_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    """Ids of the prompt's leading blocks of ``BLOCK_TOKENS``: equal ids, equal tokens."""

    def within(self, max_model_len: int | None) -> RequestShape:
        """Shorten to what a model takes: the output first gives way, then the prompt."""
        if max_model_len is None or self.input_tokens + self.output_tokens <= max_model_len:
            return self
        inputs = min(self.input_tokens, max_model_len - 1)
        return RequestShape(inputs, min(self.output_tokens, max_model_len - inputs), self.blocks)


BLOCK_TOKENS = 512
"""Prompt tokens behind one block id: Mooncake's."""

BLOCK = 1024
"""Lengths drawn at a time; a constant, so that draws do not depend on how far they are read."""


def draw_lengths(lengths: Lengths, *, seed: int, stream: int) -> Iterator[int]:
    """Yield token counts of at least 1, without end; ``stream`` tells inputs from outputs."""
    rng = np.random.default_rng([seed, stream, 0x1E96])
    while True:
        yield from _block(lengths, rng).tolist()


def _block(lengths: Lengths, rng: np.random.Generator) -> NDArray[np.int64]:
    if lengths.histogram:
        return _from_histogram(lengths, rng)
    if lengths.cv_percent == 0:
        return np.full(BLOCK, max(1, lengths.mean), dtype=np.int64)
    mu, sigma = lognormal_parameters(lengths.mean, lengths.cv_percent / 100)
    drawn = np.rint(rng.lognormal(mu, sigma, BLOCK))
    return np.clip(drawn, 1, lengths.maximum or np.inf).astype(np.int64)


def _from_histogram(lengths: Lengths, rng: np.random.Generator) -> NDArray[np.int64]:
    edges = np.array([0, *(edge for edge, _ in lengths.histogram)], dtype=np.int64)
    weights = np.array([weight for _, weight in lengths.histogram], dtype=np.float64)
    bucket = rng.choice(len(weights), BLOCK, p=weights / weights.sum())
    # Within a bucket nothing is known, so every count between its edges is as likely as any other.
    return np.minimum(
        rng.integers(edges[bucket], edges[bucket + 1]) + 1, lengths.maximum or edges[-1]
    )
