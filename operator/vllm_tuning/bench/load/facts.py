"""What a server must be asked before it can be loaded: its longest request, its token ids."""

from __future__ import annotations

from dataclasses import dataclass

import aiohttp

from vllm_tuning.bench.load.prompts import Vocabulary
from vllm_tuning.bench.load.server import ServerAddress

LARGEST = 32_000
"""Every published model has so many tokens at least; more would make no prompt more random."""

SMALLEST = 64
"""Tiny models of demos and tests have a few hundred."""

TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What requests have to respect."""

    vocabulary: Vocabulary
    max_model_len: int | None = None
    """Prompt and output tokens that fit; ``None`` = not told."""


class ServerRefusedError(Exception):
    """The server does not take the requests of a benchmark; the message says what it answered."""


async def ask_facts(session: aiohttp.ClientSession, server: ServerAddress) -> ServerFacts:
    """Ask the server; raises ``ServerRefusedError`` if it takes no request at all."""
    vocabulary = await _vocabulary(session, server)
    return ServerFacts(vocabulary, await _max_model_len(session, server))


async def _max_model_len(session: aiohttp.ClientSession, server: ServerAddress) -> int | None:
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    try:
        async with session.get(server.url("/v1/models"), timeout=timeout) as response:
            models = (await response.json()).get("data", []) if response.status == 200 else []
    except (aiohttp.ClientError, TimeoutError, ValueError, AttributeError):
        return None
    told = [entry.get("max_model_len") for entry in models if entry.get("id") == server.model]
    return told[0] if told and isinstance(told[0], int) else None


async def _vocabulary(session: aiohttp.ClientSession, server: ServerAddress) -> Vocabulary:
    """Find a range of token ids that the server takes, by one-token requests.

    No endpoint says how large a vocabulary is. The lowest eighth is left out: special tokens live
    there, and byte tokens. An engine refuses an id beyond its vocabulary with 400 before it
    schedules anything.
    """
    end = LARGEST
    while True:
        status, said = await _try(session, server, end - 1)
        if status == 200:
            return Vocabulary(end // 8, end)
        if status != 400 or end // 2 < SMALLEST:
            raise ServerRefusedError(
                f"{server.url('/v1/completions')} answered {status} to a one-token request for "
                f"model {server.model!r}: {said[:300]}"
            )
        end //= 2


async def _try(
    session: aiohttp.ClientSession, server: ServerAddress, token: int
) -> tuple[int, str]:
    body = {"model": server.model, "prompt": [token], "max_tokens": 1, "stream": False}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    try:
        async with session.post(
            server.url("/v1/completions"), json=body, timeout=timeout
        ) as response:
            return response.status, await response.text()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ServerRefusedError(f"{server.base_url} does not answer: {error!r}") from error
