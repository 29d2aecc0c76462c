"""Starts of the simulated engine under the real launcher: args, live limits, failures."""

import aiohttp
import pytest

from tests.unit.bench.simulated_engine import start_of, starter, vllm_command
from vllm_tuning.bench.live_limits import LiveLimits
from vllm_tuning.tuning.model import FailureKind, Limits

ENVELOPE = Limits(32, 2048)


async def run(starter, limits, *, hook):
    start = start_of(limits, hook=hook)
    return await starter.start(start, starter.plan(start))


async def test_an_envelope_start_with_proven_live_limits(tmp_path):
    command = [vllm_command(tmp_path), "serve", "model", "--max-model-len", "2048"]
    async with starter(command) as (starts, launcher):
        result, engine = await run(starts, ENVELOPE, hook=True)
        assert result.failure is None
        facts = result.facts
        assert facts.live_limits is None  # proven
        assert (facts.max_num_seqs, facts.max_num_batched_tokens) == (32, 2048)
        assert facts.kv_cache_tokens
        assert facts.block_size
        assert facts.max_model_len == 2048
        assert engine.server.model == "model"

        assert await engine.live.apply(Limits(5, 700)) is None
        record = (await launcher.records())[0]
        assert (record["applied"]["seqs"], record["applied"]["tokens"]) == (5, 700)
        why_not = await engine.live.apply(Limits(33, 2048))
        assert "seqs 32, not 33" in why_not  # never above the envelope


async def test_a_confirmation_start_is_the_targets_command_with_the_limits_and_no_hook(tmp_path):
    command = [vllm_command(tmp_path), "serve", "model", "--max-num-seqs=4"]
    async with starter(command) as (starts, launcher):
        result, engine = await run(starts, Limits(7, 512), hook=False)
        assert result.facts.live_limits is not None
        assert engine.live is None
        assert await launcher.records() == []
        assert "'max_num_seqs': 7" in result.facts.non_default_args
        again, _ = await run(starts, Limits(8, 512), hook=False)  # one after the other
        assert again.facts.max_num_seqs == 8


async def test_a_hook_that_the_engine_does_not_load_is_told(tmp_path):
    """Live limits of an engine without hook: no record, so nothing is proven."""
    async with starter([vllm_command(tmp_path), "serve", "m"]) as (starts, launcher):
        _, engine = await run(starts, ENVELOPE, hook=False)
        async with aiohttp.ClientSession() as http:
            live = LiveLimits(launcher, engine.server, http, ranks=1, max_model_len=2048)
            assert "0 of 1 engine cores" in await live.prove()


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("oom", FailureKind.INFEASIBLE),
        ("args", FailureKind.BAD_ARGUMENTS),
        ("env", FailureKind.ENVIRONMENT),
    ],
)
async def test_failed_starts_are_typed(tmp_path, fault, kind):
    command = [vllm_command(tmp_path), "serve", "m"]
    async with starter(command, SIMULATE_FAIL_START=fault) as (starts, _):
        result, engine = await run(starts, ENVELOPE, hook=True)
        assert engine is None
        assert result.failure.kind is kind, result.failure
        assert result.failure.reason != "Unclassified"
        assert result.failure.log_tail


async def test_an_argument_rule_gives_its_number(tmp_path):
    async with starter([vllm_command(tmp_path), "serve", "m"]) as (starts, _):
        result, _ = await run(starts, Limits(64, 32), hook=False)
        assert (result.failure.kind, result.failure.reason, result.failure.hint) == (
            FailureKind.INFEASIBLE,
            "BudgetBelowSeqs",
            64,
        )


async def test_a_start_that_hangs_ends_at_its_time_out(tmp_path):
    command = [vllm_command(tmp_path), "serve", "m"]
    async with starter(command, timeout_seconds=3, SIMULATE_FAIL_START="hang") as (starts, _):
        result, _ = await run(starts, ENVELOPE, hook=False)
        assert result.failure.kind is FailureKind.TIMEOUT


async def test_a_wrapper_that_loses_a_flag_is_found_out(tmp_path):
    command = [vllm_command(tmp_path, drop="--max-num-seqs"), "serve", "m"]
    async with starter(command) as (starts, _):
        result, engine = await run(starts, Limits(7, 512), hook=False)
        assert engine is None
        assert result.failure.reason == "ArgumentsNotTaken"


async def test_a_command_that_cannot_be_edited_is_refused(tmp_path):
    async with starter(["ray", "start", "--head"]) as (starts, _):
        result, _ = await run(starts, ENVELOPE, hook=False)
        assert result.failure.kind is FailureKind.BAD_ARGUMENTS
