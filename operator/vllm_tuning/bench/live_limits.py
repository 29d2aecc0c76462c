"""Live limits from the bench's side.

Put them in force, and prove by the hook's record that they are.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from vllm_tuning.bench.launcher_client import LauncherClient
from vllm_tuning.bench.load.server import ServerAddress
from vllm_tuning.tuning.model import Limits

PROOF_SEQS = 4
PROOF_TOKENS = 512
"""Budget of the proof: small enough to bind on a burst, large enough for any block alignment."""
_PROMPT_TOKENS = 256
_PROOF_OUTPUTS = (16, 64, 256)
"""Output tokens of the burst: more when it was over before all of it had arrived."""
_APPLY_SECONDS = 30.0
"""An idle engine applies limits at its next step; a request of ours makes that step."""
_REQUEST_SECONDS = 120.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class _NotYet:
    """The engine needs another step."""

    why: str


@dataclass(frozen=True, slots=True)
class Burst:
    """Largest numbers of one window over the ranks, by the hook's record."""

    running: int
    tokens: int


class LiveLimits:
    """Changes the limits of one running engine; between loads only."""

    def __init__(
        self,
        launcher: LauncherClient,
        server: ServerAddress,
        http: aiohttp.ClientSession,
        *,
        ranks: int,
        max_model_len: int | None,
    ) -> None:
        self._launcher = launcher
        self._server = server
        self._http = http
        self._ranks = ranks
        self._prompt_tokens = min(_PROMPT_TOKENS, (max_model_len or 2 * _PROMPT_TOKENS) // 2)
        self._window = 0
        self._random = random.Random(7)  # noqa: S311 - token ids, no secret

    async def prove(self) -> str | None:
        """Show with a small burst that both limits bind, or say why they cannot be relied on.

        The burst has more requests and more prompt tokens than the limits let through, so an engine
        that ignores them shows larger numbers in the hook's record, and one that honours them shows
        exactly the cap.
        """
        records = await self._launcher.records()
        if len(records) < self._ranks:
            return (
                f"the hook reported from {len(records)} of {self._ranks} engine cores: "
                "the engine did not load the plugin, or its scheduler is not vLLM's V1 scheduler"
            )
        started = min(int(record["started"].get("seqs", 1)) for record in records)
        budget = min(int(record["started"].get("tokens", 1)) for record in records)
        seqs = max(1, min(PROOF_SEQS, started - 1))
        tokens = max(seqs, min(PROOF_TOKENS, budget))
        problem = await self._put({"seqs": seqs, "tokens": tokens})
        if problem is not None:
            return problem
        for output_tokens in _PROOF_OUTPUTS:
            await self._send(
                3 * seqs * self._ranks,
                self._prompt_tokens,
                output_tokens=min(output_tokens, self._prompt_tokens),
            )
            seen = self._largest(await self._settled())
            if seen.running >= seqs:
                break
        return judge_burst(seen, seqs, tokens)

    async def apply(self, limits: Limits) -> str | None:
        """Put ``limits`` in force on every rank; ``None`` when they are, else why not."""
        return await self._put(
            {
                "seqs": limits.max_num_seqs,
                "tokens": limits.max_num_batched_tokens,
                "long_prefill_token_threshold": limits.long_prefill_token_threshold,
                "chunked": limits.enable_chunked_prefill,
            }
        )

    async def _put(self, wanted: Mapping[str, int | bool | None]) -> str | None:
        self._window += 1
        await self._launcher.set_limits({**wanted, "window": self._window})
        waiting = "no step was made"
        try:
            async with asyncio.timeout(_APPLY_SECONDS):
                while True:
                    outcome = self._compare(await self._launcher.records(), wanted)
                    if not isinstance(outcome, _NotYet):
                        return outcome
                    waiting = outcome.why
                    await self._send(self._ranks, 1, output_tokens=1)
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            return f"the limits were not in force after {_APPLY_SECONDS:g} s: {waiting}"

    def _compare(
        self, records: Sequence[Mapping[str, Any]], wanted: Mapping[str, int | bool | None]
    ) -> str | _NotYet | None:
        """``None`` = in force on every rank; a text = they never will be."""
        if len(records) < self._ranks:
            return _NotYet(f"the hook reports from {len(records)} of {self._ranks} engine cores")
        for record in records:
            where = f"rank {record['rank']} ({record['scheduler']})"
            if record["error"] is not None:
                return f"{where}: {record['error']}"
            if record["window"] != self._window:
                return _NotYet(f"{where} made no step through the wrapped method since")
            if record.get("pending"):
                return _NotYet(f"{where} still runs requests, so {record['pending']} cannot change")
            for name, value in wanted.items():
                if value is not None and record["applied"].get(name) != value:
                    return f"{where} has {name} {record['applied'].get(name)}, not {value}"
        return None

    def _largest(self, records: Sequence[Mapping[str, Any]]) -> Burst:
        windows = [record["windows"][str(self._window)] for record in records]
        return Burst(
            running=max(window["running_max"] for window in windows),
            tokens=max(window["scheduled_tokens_max"] for window in windows),
        )

    async def _settled(self) -> list[dict[str, Any]]:
        """The records once no step has been added for two looks.

        The hook writes them when it idles.
        """
        last: list[int] = []
        while True:
            records = await self._launcher.records()
            steps = [int(record["steps"]) for record in records]
            if steps == last:
                return records
            last = steps
            await asyncio.sleep(0.1)

    async def _send(self, count: int, prompt_tokens: int, *, output_tokens: int) -> None:
        """Run ``count`` requests at once to their end; their outcome is of no interest."""
        await asyncio.gather(
            *(self._request(prompt_tokens, output_tokens) for _ in range(count)),
            return_exceptions=True,
        )

    async def _request(self, prompt_tokens: int, output_tokens: int) -> None:
        body = {
            "model": self._server.model,
            "prompt": [self._random.randint(3, 200) for _ in range(prompt_tokens)],
            "max_tokens": output_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        async with self._http.post(
            self._server.url("/v1/completions"),
            json=body,
            headers=self._server.headers(),
            timeout=aiohttp.ClientTimeout(total=_REQUEST_SECONDS),
        ) as response:
            await response.read()


def judge_burst(seen: Burst, seqs: int, tokens: int) -> str | None:
    """Say why a burst under these limits proves nothing; ``None`` when it proves both."""
    if seen.running > seqs or seen.tokens > tokens:
        return (
            f"with max_num_seqs {seqs} and a budget of {tokens} the engine ran {seen.running} "
            f"requests and scheduled {seen.tokens} tokens in a step: it ignores live limits"
        )
    if seen.running < seqs:
        return (
            f"bursts of three times {seqs} requests never had more than {seen.running} running: "
            "whether the limit binds is not shown"
        )
    return None
