"""The three promises of the work queue, and its clock."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from vllm_tuning.controller.queue import FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, WorkQueue


@pytest.fixture
async def queue() -> AsyncIterator[WorkQueue[str]]:
    made: WorkQueue[str] = WorkQueue(random.Random(1))
    clock = asyncio.create_task(made.run_clock())
    yield made
    clock.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await clock


async def drain(queue: WorkQueue[str]) -> list[str]:
    """Everything that is ready now."""
    found = []
    while len(queue):
        key = await queue.get()
        found.append(key)
        queue.done(key)
    return found


async def test_a_key_that_waits_is_done_once(queue):
    for key in ("a", "b", "a", "a"):
        queue.add(key)
    assert await drain(queue) == ["a", "b"]


async def test_a_key_that_comes_while_it_is_worked_on_is_done_again_afterwards(queue):
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0  # never two at the same time
    queue.done("a")
    assert await drain(queue) == ["a"]


async def test_a_delayed_key_comes_when_it_is_due(queue):
    queue.add_after("a", 0.01)
    assert len(queue) == 0
    assert await asyncio.wait_for(queue.get(), 5) == "a"


async def test_of_two_delays_the_sooner_counts_and_once(queue):
    queue.add_after("a", 3600)
    queue.add_after("a", 0.01)
    queue.add_after("a", 1800)
    assert await asyncio.wait_for(queue.get(), 5) == "a"
    queue.done("a")
    assert len(queue) == 0


async def test_a_key_that_is_added_at_once_forgets_its_delay(queue):
    queue.add_after("a", 0.05)
    queue.add("a")
    assert await drain(queue) == ["a"]
    queue.add_after("b", 0.1)  # after a's delay would have passed
    assert await asyncio.wait_for(queue.get(), 5) == "b"


async def test_failures_back_off_up_to_a_limit_and_a_success_begins_anew(queue):
    delays = [queue.retry("a") for _ in range(12)]
    assert FIRST_BACKOFF_SECONDS <= delays[0] <= FIRST_BACKOFF_SECONDS * 1.2
    assert all(b > a for a, b in pairwise(delays[:6]))
    assert max(delays) <= MAX_BACKOFF_SECONDS * 1.2
    queue.forget_failures("a")
    assert queue.retry("a") <= FIRST_BACKOFF_SECONDS * 1.2


async def test_a_server_that_says_when_is_obeyed(queue):
    assert queue.retry("a", at_least=30.0) >= 30.0


async def test_keys_that_fail_together_do_not_come_back_together(queue):
    assert len({queue.retry(str(n)) for n in range(10)}) == 10
