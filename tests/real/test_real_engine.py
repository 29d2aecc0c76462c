"""vLLM itself (CPU build, tiny model) under the launcher: live limits, exact starts, failures."""

import asyncio
import random
import subprocess
from pathlib import Path

import aiohttp
import pytest

from tests.unit.bench.simulated_engine import start_of, starter
from vllm_tuning.tuning.model import FailureKind, Limits

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(1800)]

ENGINE = Path(__file__).parents[2] / "hack" / "engine" / "engine"
START_SECONDS = 900.0
"""Importing vLLM takes most of a start; on a busy machine minutes."""


@pytest.fixture(scope="module")
def command() -> list[str]:
    """What a Deployment of the tiny model would run; installs the engine when it is missing."""
    subprocess.run([ENGINE, "install"], check=True)
    venv, model = (
        subprocess.check_output([ENGINE, what], text=True).strip() for what in ("venv", "model")
    )
    return [
        f"{venv}/bin/vllm", "serve", model, "--load-format=dummy", "--dtype=bfloat16",
        "--enforce-eager", "--max-model-len=2048", "--served-model-name=llama",
        "--max-num-seqs=2",
    ]  # fmt: skip


def real(command):
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return starter(command, timeout_seconds=START_SECONDS, **environment)


async def burst(server, seed: int, *, clients: int, prompt_tokens: int):
    """As many requests at once as ``clients``, with prompts that no other burst has."""
    tokens = random.Random(seed)

    async def one(http):
        body = {
            "model": server.model,
            "prompt": [tokens.randint(3, 200) for _ in range(prompt_tokens)],
            "max_tokens": 40,  # nobody ends before the last of a cap is admitted, budget or not
            "ignore_eos": True,
        }
        async with http.post(server.url("/v1/completions"), json=body) as response:
            assert response.status == 200, await response.text()

    async with aiohttp.ClientSession() as http:
        await asyncio.gather(*(one(http) for _ in range(clients)))


async def seen(launcher):
    """The present window of the hook's record, once the engine is idle."""
    steps = -1
    while True:
        record = (await launcher.records())[0]
        if record["steps"] == steps:
            return record["windows"][str(record["window"])], record
        steps = record["steps"]
        await asyncio.sleep(0.3)


async def test_limits_change_live_and_a_confirmation_starts_exactly(command):
    async with real(command) as (starts, launcher):
        start = start_of(Limits(16, 2048), hook=True)
        result, engine = await starts.start(start, starts.plan(start))
        assert result.failure is None, result.failure
        facts = result.facts
        assert facts.live_limits is None, "the burst did not prove the live limits"
        assert facts.version == "0.32.0"
        assert (facts.max_num_seqs, facts.max_num_batched_tokens) == (16, 2048)
        assert facts.kv_cache_tokens
        assert facts.block_size
        assert facts.max_model_len == 2048

        seen_tokens = []
        for number, limits in enumerate((Limits(3, 2048), Limits(12, 300), Limits(16, 2048))):
            assert await engine.live.apply(limits) is None
            await burst(engine.server, number, clients=40, prompt_tokens=250)
            window, record = await seen(launcher)
            assert record["error"] is None
            assert window["running_max"] == limits.max_num_seqs
            seen_tokens.append(window["scheduled_tokens_max"])
        assert seen_tokens[0] <= 3 * 250
        assert seen_tokens[1] == 300  # twelve prompts of 250 tokens are cut into full steps
        assert 300 < seen_tokens[2] <= 2048

        await launcher.set_limits({"window": 1000, "kv_blocks": 64})
        await burst(engine.server, 3, clients=1, prompt_tokens=1)
        _, record = await seen(launcher)
        assert record["applied"]["kv_blocks"] == 64

        start = start_of(Limits(5, 512), hook=False, number=2)
        result, engine = await starts.start(start, starts.plan(start))
        assert result.failure is None, result.failure
        assert "'max_num_seqs': 5" in result.facts.non_default_args
        assert "'max_num_batched_tokens': 512" in result.facts.non_default_args
        assert engine.live is None
        assert await launcher.records() == []


FAILURES = [
    # further flags, limits, kind, reason, hint
    ([], Limits(8, 4), FailureKind.INFEASIBLE, "BudgetBelowSeqs", 8),
    (["--swap-space=4"], Limits(8, 64), FailureKind.BAD_ARGUMENTS, "CommandLineRefused", None),
]


@pytest.mark.parametrize("case", FAILURES, ids=["an argument rule", "a flag that is gone"])
async def test_failed_starts_of_the_real_engine_are_typed(command, case):
    extra, limits, *expected = case
    async with real([*command, *extra]) as (starts, _):
        start = start_of(limits, hook=False)
        result, engine = await starts.start(start, starts.plan(start))
        assert engine is None
        failure = result.failure
        assert [failure.kind, failure.reason, failure.hint] == expected, failure
        assert failure.log_tail
