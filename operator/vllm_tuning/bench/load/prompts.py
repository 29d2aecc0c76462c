"""Request bodies: prompts of random token ids, new for every probe, rendered before they are due.

Token ids need no tokenizer and no network, and their number is exact. Reusing a seed would reuse
the prefix cache (vllm#54227 measured 2.3 x the throughput that way), so only lengths and arrivals
follow the probe's seed; the ids come from the system's entropy.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from vllm_tuning.bench.load.lengths import BLOCK_TOKENS, RequestShape

LOOK_AHEAD = 16
"""Bodies rendered before they are due, so that rendering never delays a send (0.1 ms per 1,000
tokens)."""


REMEMBERED_BLOCKS = 2048
"""Blocks of a trace whose tokens are kept; a forgotten one is drawn again, the same."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Token ids that prompts are drawn from: ``lowest <= id < end``."""

    lowest: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.lowest < self.end:
            msg = f"no token ids between {self.lowest} and {self.end}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """A request ready to be sent."""

    body: bytes
    input_tokens: int
    output_tokens: int
    shared_tokens: int
    """Leading prompt tokens that other requests of the probe may have too."""


class RequestSource:
    """The endless sequence of a probe's requests."""

    def __init__(
        self,
        shapes: Iterator[RequestShape],
        *,
        model: str,
        vocabulary: Vocabulary,
        shared_prefix_tokens: int = 0,
        max_model_len: int | None = None,
        entropy: int | None = None,
    ) -> None:
        """Make prompts of ``shapes``, shortened to ``max_model_len``.

        ``entropy`` fixes the token ids (for tests); by default they have never been seen before.
        """
        self.shortened = 0
        """Requests that were too long for the model."""
        self._shapes = shapes
        self._seeds = np.random.SeedSequence(entropy)
        self._rng = np.random.default_rng(self._seeds)
        self._vocabulary = vocabulary
        self._text = [str(token) for token in range(vocabulary.lowest, vocabulary.end)]
        self._prefix = self._draw(self._rng, shared_prefix_tokens)
        self._max_model_len = max_model_len
        self._model = json.dumps(model)
        self._ready: deque[PlannedRequest] = deque()
        self._block = lru_cache(REMEMBERED_BLOCKS)(self._draw_block)

    def next(self) -> PlannedRequest:
        """Return the next request."""
        return self._ready.popleft() if self._ready else self._plan()

    def prepare(self) -> bool:
        """Render one body ahead, when nothing is due; False = ``LOOK_AHEAD`` already wait."""
        if len(self._ready) >= LOOK_AHEAD:
            return False
        self._ready.append(self._plan())
        return True

    def _plan(self) -> PlannedRequest:
        recorded = next(self._shapes)
        shape = recorded.within(self._max_model_len)
        self.shortened += shape is not recorded
        # One token at least is a request's own: no engine answers a prompt from its cache alone.
        common = self._prefix or [token for block in shape.blocks for token in self._block(block)]
        shared = min(len(common), shape.input_tokens - 1)
        ids = common[:shared] + self._draw(self._rng, shape.input_tokens - shared)
        body = (
            f'{{"model":{self._model},"prompt":[{",".join(ids)}],'
            f'"max_tokens":{shape.output_tokens},"ignore_eos":true,"stream":true,'
            f'"stream_options":{{"include_usage":true}}}}'
        )
        return PlannedRequest(body.encode(), shape.input_tokens, shape.output_tokens, shared)

    def _draw(self, rng: np.random.Generator, count: int) -> list[str]:
        drawn = rng.integers(self._vocabulary.end - self._vocabulary.lowest, size=count)
        return [self._text[index] for index in drawn.tolist()]

    def _draw_block(self, block: int) -> list[str]:
        """Draw the tokens of a block: the same whenever its id comes again in this probe."""
        seeds = np.random.SeedSequence(self._seeds.entropy, spawn_key=(block,))
        return self._draw(np.random.default_rng(seeds), BLOCK_TOKENS)
