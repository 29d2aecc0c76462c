"""What each engine step holds: a twin of vLLM's V1 scheduler (first come, first served).

Facts (vLLM 0.24-0.32, ``v1/core/sched/scheduler.py``): running requests are scheduled before
waiting ones; a request's prompt is cut to the token budget (chunked prefill) and to the
long-prefill threshold; when KV blocks run out the last running request is preempted, loses its
blocks, and recomputes everything from the head of the queue; a step that preempts admits nobody; a
waiting request is admitted only if its whole prompt fits (since 0.19).

Decoding requests move in lockstep, one token a step, so a step costs O(1) and not O(requests): a
counter of decode steps (``tick``) stands for the position of all of them, requests wait in a bucket
for the tick of their last token, and ``_phases`` counts how many cross a block edge at each tick.

One simplification: decoding requests take their token before running prefills take their chunks.
vLLM goes strictly by age; the order differs only where a long-prefill threshold lets younger
requests decode beside an older prefill *and* the budget is exhausted in that step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from vllm_tuning.bench.sim.kv import BlockPool
from vllm_tuning.bench.sim.request import Batch, Request, SchedulerLimits

__all__ = ["Batch", "Request", "Scheduler", "SchedulerLimits"]

NO_THRESHOLD = 1 << 60


class Scheduler:
    """Queues, running set and KV pool of one engine core."""

    def __init__(
        self,
        limits: SchedulerLimits,
        pool: BlockPool,
        *,
        block_size: int = 16,
        reserve_full_prompt: bool = True,
        track_decoding: bool = False,
    ) -> None:
        self.limits = limits
        self.pool = pool
        self.block_size = block_size
        self.reserve_full_prompt = reserve_full_prompt
        self.track_decoding = track_decoding
        self.waiting: deque[Request] = deque()
        self.running: dict[Request, None] = {}
        self.steps = 0
        self.preemptions = 0
        self.prefix_queries = 0
        self.prefix_hits = 0
        self._prefilling: dict[Request, None] = {}
        self._decoding: dict[Request, None] = {}
        self._tick = 0
        self._context = 0
        self._phases = [0] * block_size
        self._finishing: dict[int, dict[Request, None]] = {}

    # --- what comes in and goes out -------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Queue a request."""
        self.waiting.append(request)

    def cancel(self, request: Request) -> None:
        """Drop a request wherever it is; its blocks are free at once."""
        if request.cancelled:
            return
        request.cancelled = True
        if request in self.running:
            self._leave_running(request)
        else:
            try:
                self.waiting.remove(request)
            except ValueError:
                return  # already finished

    def complete(self, batch: Batch) -> None:
        """Take a step's outputs in: requests that got their last token free their blocks."""
        for request in batch.last_tokens:
            if request in self.running:
                del self.running[request]
                self.pool.give_back(request.lease)

    def set_limits(self, limits: SchedulerLimits) -> bool:
        """Change limits live; ``False`` = ``seqs`` has to wait until no more than that many run."""
        if len(self.running) > limits.seqs:
            self.limits = replace(limits, seqs=self.limits.seqs)
            return False
        self.limits = limits
        return True

    @property
    def idle(self) -> bool:
        """True if nothing runs and nothing waits."""
        return not self.running and not self.waiting

    # --- one step -------------------------------------------------------------------------------

    def schedule(self, now: float) -> Batch | None:
        """Decide the next step; ``None`` if no request can get a token."""
        if not self._decoding and not self._prefilling and not self.waiting:
            return None
        preempted: list[Request] = []
        self._make_room_for_decodes(preempted)
        chunks = self._choose_chunks(preempted, now)
        if not self._decoding and not chunks:
            # The only running request preempted itself: it starts again with all blocks free.
            return self.schedule(now) if preempted else None
        batch = Batch(index=self.steps, preempted=preempted)
        if self._decoding:
            self._decode(batch)
        if chunks:
            self._prefill(batch, chunks)
        self.steps += 1
        batch.tokens = batch.decode_requests + batch.prefill_tokens
        batch.running = len(self.running)
        batch.waiting = len(self.waiting)
        batch.kv_blocks = self.pool.used
        return batch

    def _make_room_for_decodes(self, preempted: list[Request]) -> None:
        if len(self._decoding) > self.limits.tokens:
            self._starve(len(self._decoding) - self.limits.tokens)
        while self._decoding and self._phases[self._tick % self.block_size] > self.pool.free:
            self._preempt_last(preempted)

    def _choose_chunks(self, preempted: list[Request], now: float) -> list[tuple[Request, int]]:
        """Choose the prefills of this step: requests with the number of their tokens."""
        if not self._prefilling and not self.waiting:
            return []
        chunks: list[tuple[Request, int]] = []
        budget = self.limits.tokens - len(self._decoding)
        threshold = self.limits.long_prefill_token_threshold
        if threshold <= 0 or len(self.running) + len(self.waiting) <= 1:
            threshold = NO_THRESHOLD  # a lone request is never cut (0.31+)
        budget = self._continue_prefills(budget, threshold, chunks, preempted)
        if not preempted:
            self._admit(budget, threshold, chunks, now)
        # A prefill chosen above may have been the victim of one chosen after it.
        return [chunk for chunk in chunks if chunk[0] in self._prefilling]

    def _starve(self, count: int) -> None:
        """Leave the youngest ``count`` decoding requests without a token in this step."""
        for request in list(self._decoding)[-count:]:
            self._leave_decode(request)
            self._prefilling[request] = None

    def _continue_prefills(
        self,
        budget: int,
        threshold: int,
        chunks: list[tuple[Request, int]],
        preempted: list[Request],
    ) -> int:
        for request in list(self._prefilling):
            if budget <= 0:
                break
            if request not in self._prefilling:
                continue  # preempted a moment ago
            chunk = min(self._to_compute(request) - request.computed, threshold, budget)
            blocks = self._blocks(request.computed + chunk) - request.lease.blocks
            while blocks > self._free() and request in self._prefilling:
                self._preempt_last(preempted)
            if request not in self._prefilling:
                break
            self.pool.take(request.lease, blocks)
            chunks.append((request, chunk))
            budget -= chunk
        return budget

    def _admit(
        self, budget: int, threshold: int, chunks: list[tuple[Request, int]], now: float
    ) -> None:
        while budget > 0 and self.waiting and len(self.running) < self.limits.seqs:
            request = self.waiting[0]
            total = self._to_compute(request)
            # The last token is always computed: it gives the logits of the next one.
            hits = self.pool.matched(request.lease, (total - 1) // self.block_size)
            cached = hits * self.block_size
            chunk = min(total - cached, threshold)
            if chunk > budget:
                if not self.limits.chunked:
                    break
                chunk = budget
            blocks = self._blocks(cached + chunk) - hits
            wanted = self._blocks(total) - hits if self.reserve_full_prompt else blocks
            # Cached blocks that lie idle count as free until this request uses them again.
            if wanted + self.pool.idle_among(request.lease, hits) > self._free():
                break
            self.waiting.popleft()
            self.pool.reuse(request.lease, hits)
            self.pool.take(request.lease, blocks)
            request.computed = cached
            if self.pool.prefix_caching and not request.preemptions:
                self.prefix_queries += total
                self.prefix_hits += cached
                request.cached_tokens = cached
            if request.scheduled_at is None:
                request.scheduled_at = now
            self.running[request] = None
            self._prefilling[request] = None
            chunks.append((request, chunk))
            budget -= chunk

    def _decode(self, batch: Batch) -> None:
        count = len(self._decoding)
        self.pool.take_anonymous(self._phases[self._tick % self.block_size])
        self._context += count
        batch.decode_requests = count
        batch.decode_context = self._context
        if self.track_decoding:
            batch.decoding = list(self._decoding)
        last = self._finishing.get(self._tick)
        self._tick += 1
        if last:
            batch.last_tokens = list(last)
            for request in batch.last_tokens:
                self._leave_decode(request)

    def _prefill(self, batch: Batch, chunks: list[tuple[Request, int]]) -> None:
        firsts: list[Request] = []
        for request, chunk in chunks:
            before = request.computed
            request.computed = before + chunk
            batch.prefill_tokens += chunk
            batch.prefill_attention += chunk * (before + chunk / 2)
            if request.computed == self._to_compute(request):
                firsts.append(request)
        batch.prefill_requests = len(chunks)
        batch.first_tokens = firsts
        ended: list[Request] = []
        for request in firsts:
            del self._prefilling[request]
            request.generated += 1
            request.spans.append((batch.index, batch.index))
            if request.generated == request.output_tokens:
                ended.append(request)
            else:
                self._join_decode(request)
        if ended:
            batch.last_tokens = [*batch.last_tokens, *ended]

    # --- bookkeeping ----------------------------------------------------------------------------

    def _to_compute(self, request: Request) -> int:
        """Tokens to compute before the next new one; after a preemption also those generated."""
        return request.prompt_tokens + request.generated

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def _free(self) -> int:
        """Free blocks beyond those that this step's decodes need."""
        return self.pool.free - self._phases[self._tick % self.block_size]

    def _join_decode(self, request: Request) -> None:
        request.join_tick = self._tick
        request.finish_tick = self._tick + request.output_tokens - request.generated - 1
        self._decoding[request] = None
        self._phases[(self._tick - request.computed) % self.block_size] += 1
        self._context += request.computed
        self._finishing.setdefault(request.finish_tick, {})[request] = None

    def _leave_decode(self, request: Request) -> None:
        """Take a request out of the lockstep and write its position back into it."""
        done = self._tick - request.join_tick
        del self._decoding[request]
        self._phases[(request.join_tick - request.computed) % self.block_size] -= 1
        bucket = self._finishing[request.finish_tick]
        del bucket[request]
        if not bucket:
            del self._finishing[request.finish_tick]
        computed = request.computed + done
        self._context -= computed
        # Blocks taken anonymously while it decoded become its own.
        request.lease.private += self._blocks(computed) - request.lease.blocks
        request.computed = computed
        request.generated += done
        request.join_tick = -1
        first, last = request.spans[-1]
        request.spans[-1] = (first, last + done)

    def _leave_running(self, request: Request) -> None:
        if request in self._decoding:
            self._leave_decode(request)
        self._prefilling.pop(request, None)
        del self.running[request]
        self.pool.give_back(request.lease)

    def _preempt_last(self, preempted: list[Request]) -> None:
        """Preempt the youngest running request that still computes."""
        victim = next(
            r for r in reversed(self.running) if r in self._decoding or r in self._prefilling
        )
        self._leave_running(victim)
        victim.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(victim)
        preempted.append(victim)
