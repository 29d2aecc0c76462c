"""Laws of the scheduler twin that hold for every load, limits and pool."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from vllm_tuning.bench.sim.kv import BlockPool
from vllm_tuning.bench.sim.scheduler import Batch, Request, Scheduler, SchedulerLimits

BLOCK = 4


@dataclass(frozen=True)
class Case:
    requests: list[tuple[int, int, int]]
    """Prompt tokens, output tokens, step before which it arrives."""
    seqs: int
    tokens: int
    threshold: int
    blocks: int
    caching: bool
    depth: int
    shared: int
    """Leading blocks that all prompts share."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    requests = draw(
        st.lists(
            st.tuples(st.integers(1, 60), st.integers(1, 40), st.integers(0, 30)),
            min_size=1,
            max_size=14,
        )
    )
    longest = max(-(-(prompt + output) // BLOCK) for prompt, output, _ in requests)
    return Case(
        requests=requests,
        seqs=draw(st.integers(1, 8)),
        tokens=draw(st.integers(1, 64)),
        threshold=draw(st.sampled_from([0, 1, 5, 16])),
        # vLLM refuses to start unless the longest request fits.
        blocks=longest + draw(st.integers(0, 40)),
        caching=draw(st.booleans()),
        depth=draw(st.sampled_from([1, 2])),
        shared=draw(st.integers(0, 6)),
    )


def run(case: Case) -> tuple[list[Batch], list[Request], Scheduler]:
    """Run a case to its end, with ``depth`` steps in flight, checking every step."""
    pool = BlockPool(case.blocks, prefix_caching=case.caching)
    limits = SchedulerLimits(case.seqs, case.tokens, case.threshold)
    scheduler = Scheduler(limits, pool, block_size=BLOCK, track_decoding=True)
    requests = [
        Request(
            number,
            prompt,
            output,
            hashes=[("prefix", block) for block in range(min(case.shared, prompt // BLOCK))],
        )
        for number, (prompt, output, _) in enumerate(case.requests)
    ]
    upcoming = sorted(zip((at for _, _, at in case.requests), range(len(requests)), strict=True))
    batches: list[Batch] = []
    in_flight: list[Batch] = []
    for step in range(20_000):
        while upcoming and upcoming[0][0] <= step:
            scheduler.add(requests[upcoming.pop(0)[1]])
        batch = scheduler.schedule(float(step)) if len(in_flight) < case.depth else None
        if batch is not None:
            check_step(case, scheduler, batch)
            batches.append(batch)
            in_flight.append(batch)
        elif in_flight:
            scheduler.complete(in_flight.pop(0))
        if scheduler.idle and not upcoming and not in_flight:
            return batches, requests, scheduler
    raise AssertionError("the load never ended")


def check_step(case: Case, scheduler: Scheduler, batch: Batch) -> None:
    assert 1 <= batch.tokens <= case.tokens
    assert batch.running <= case.seqs
    assert batch.kv_blocks <= case.blocks
    assert 0 <= scheduler.pool.free <= case.blocks
    assert scheduler.pool.used + scheduler.pool.free == case.blocks
    assert len(batch.decoding) == batch.decode_requests
    assert not batch.preempted or batch.running < case.seqs


@given(cases())
@settings(max_examples=150, deadline=None)
def test_every_request_gets_its_tokens_and_every_block_comes_back(case: Case) -> None:
    batches, requests, scheduler = run(case)
    tokens = dict.fromkeys(requests, 0)
    for batch in batches:
        for request in (*batch.first_tokens, *batch.decoding):
            tokens[request] += 1
    for request in requests:
        assert tokens[request] == request.output_tokens
        assert sum(last - first + 1 for first, last in request.spans) == request.output_tokens
    assert scheduler.pool.used == 0


@given(cases())
@settings(max_examples=150, deadline=None)
def test_a_preempted_request_computes_again_what_it_had(case: Case) -> None:
    batches, requests, scheduler = run(case)
    preemptions = sum(len(batch.preempted) for batch in batches)
    assert preemptions <= scheduler.preemptions == sum(r.preemptions for r in requests)
    computed = sum(batch.tokens for batch in batches)
    # Every token but the last output of a request is computed once if nothing is lost or found.
    least = sum(r.prompt_tokens + r.output_tokens - 1 for r in requests)
    if not case.caching:
        assert computed >= least
        if not scheduler.preemptions:
            assert computed == least


@given(cases())
@settings(max_examples=150, deadline=None)
def test_first_tokens_come_in_order_of_arrival_when_nothing_cuts_in(case: Case) -> None:
    if case.threshold:
        return  # then a short prompt may overtake a long one, as it is meant to
    batches, _, scheduler = run(case)
    if scheduler.preemptions:
        return
    arrival = {number: (at, number) for number, (_, _, at) in enumerate(case.requests)}
    order = [
        arrival[request.id]
        for batch in batches
        for request in batch.first_tokens
        if request.spans and request.spans[0][0] == batch.index
    ]
    assert order == sorted(order)


@given(cases())
@settings(max_examples=100, deadline=None)
def test_the_same_load_gives_the_same_steps(case: Case) -> None:
    first, _, _ = run(case)
    second, _, _ = run(case)
    assert [(b.tokens, b.running, b.kv_blocks) for b in first] == [
        (b.tokens, b.running, b.kv_blocks) for b in second
    ]
