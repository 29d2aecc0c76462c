"""KV-cache blocks: how many are free, and which blocks of earlier prompts can be used again.

Blocks are counted, not numbered: only a prefix cache needs to tell them apart, and it does so by
their hashes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class Lease:
    """The blocks that one request holds."""

    key: Hashable
    """Identifies the request's own blocks while they lie idle in the cache (after a preemption)."""
    hashes: Sequence[Hashable] = ()
    """Content hashes of the prompt's leading full blocks; other requests may share these."""
    shared: int = 0
    """How many leading ``hashes`` this request holds through the cache."""
    private: int = 0
    """Blocks of its own: prompt beyond ``hashes``, duplicates, generated tokens."""
    settled: bool = False
    """Set once a duplicate was met: blocks after it are private even if their hash is known."""

    @property
    def blocks(self) -> int:
        """All blocks held."""
        return self.shared + self.private


class BlockPool:
    """A pool of ``blocks`` usable blocks; least recently freed cached blocks are evicted first.

    vLLM keeps one block as a null block: a pool for a cache of N blocks has N - 1 usable ones.
    """

    __slots__ = ("_fresh", "_held", "_idle", "_idle_blocks", "_refs", "_total", "prefix_caching")

    def __init__(self, blocks: int, *, prefix_caching: bool) -> None:
        self._total = blocks
        self._fresh = blocks
        self._held = 0
        self._refs: dict[Hashable, int] = {}
        self._idle: OrderedDict[Hashable, int] = OrderedDict()
        self._idle_blocks = 0
        self.prefix_caching = prefix_caching

    @property
    def free(self) -> int:
        """Blocks that can be taken now, evictable cached ones included."""
        return self._fresh + self._idle_blocks

    @property
    def total(self) -> int:
        """Blocks of the pool, those held back included."""
        return self._total

    @property
    def held(self) -> int:
        """Blocks held back."""
        return self._held

    @property
    def used(self) -> int:
        """Blocks that requests hold."""
        return self._total - self._held - self.free

    @property
    def usage(self) -> float:
        """Share of the pool that is not free (0-1); blocks held back count as used, as in vLLM."""
        return 1.0 - self.free / self._total if self._total else 0.0

    def hold_back(self, blocks: int) -> None:
        """Keep ``blocks`` blocks from everybody (live limit ``kv_blocks``).

        Raises:
            RuntimeError: a request holds blocks.
        """
        blocks = max(0, min(blocks, self._total))
        if self.used:
            msg = "KV blocks can be held back only while the pool is unused"
            raise RuntimeError(msg)
        self._evict_all()
        self._held = blocks
        self._fresh = self._total - blocks

    def matched(self, lease: Lease, limit: int) -> int:
        """Leading blocks, at most ``limit``, that the cache still has for this request."""
        if not self.prefix_caching:
            return 0
        hits = 0
        for content in lease.hashes[:limit]:
            if content not in self._refs and content not in self._idle:
                return hits
            hits += 1
        if hits == len(lease.hashes):
            hits += min(self._idle.get(lease.key, 0), limit - hits)
        return hits

    def idle_among(self, lease: Lease, blocks: int) -> int:
        """How many of ``blocks`` matched leading blocks count as free now."""
        if not blocks:
            return 0
        hashed = lease.hashes[:blocks]
        return sum(content in self._idle for content in hashed) + blocks - len(hashed)

    def reuse(self, lease: Lease, blocks: int) -> None:
        """Give ``blocks`` matched leading blocks to the request."""
        for content in lease.hashes[:blocks]:
            if content in self._idle:
                self._idle_blocks -= self._idle.pop(content)
            self._refs[content] = self._refs.get(content, 0) + 1
            lease.shared += 1
        own = blocks - lease.shared
        if own > 0:
            rest = self._idle.pop(lease.key) - own
            self._idle_blocks -= own
            if rest:
                self._idle[lease.key] = rest
            lease.private += own

    def take(self, lease: Lease, blocks: int) -> None:
        """Give ``blocks`` new blocks to the request. The caller has checked ``free``."""
        fresh = min(blocks, self._fresh)
        self._fresh -= fresh
        self._evict(blocks - fresh)
        hashes = lease.hashes
        while blocks and not lease.settled and lease.shared < len(hashes):
            content = hashes[lease.shared]
            if lease.private or content in self._refs or content in self._idle:
                lease.settled = True
                break
            self._refs[content] = 1
            lease.shared += 1
            blocks -= 1
        lease.private += blocks

    def take_anonymous(self, blocks: int) -> None:
        """Take ``blocks`` for several requests; each lease learns its share when it is settled."""
        fresh = min(blocks, self._fresh)
        self._fresh -= fresh
        self._evict(blocks - fresh)

    def give_back(self, lease: Lease) -> None:
        """Free everything the request holds; its tail blocks are the first to be evicted."""
        private = lease.private
        if not self.prefix_caching:
            self._fresh += private + lease.shared
        else:
            if private:
                self._idle[lease.key] = self._idle.pop(lease.key, 0) + private
                self._idle_blocks += private
            for content in reversed(lease.hashes[: lease.shared]):
                count = self._refs[content] - 1
                if count:
                    self._refs[content] = count
                else:
                    del self._refs[content]
                    self._idle[content] = 1
                    self._idle_blocks += 1
        lease.shared = lease.private = 0
        lease.settled = False

    def reset_cache(self) -> bool:
        """Forget all cached blocks; refused (``False``) while blocks are in use, as vLLM does."""
        if self.used:
            return False
        self._evict_all()
        return True

    def _evict_all(self) -> None:
        self._idle.clear()
        self._fresh += self._idle_blocks
        self._idle_blocks = 0

    def _evict(self, blocks: int) -> None:
        self._idle_blocks -= blocks
        while blocks > 0:
            key, count = self._idle.popitem(last=False)
            if count > blocks:
                self._idle[key] = count - blocks
                self._idle.move_to_end(key, last=False)
                return
            blocks -= count
