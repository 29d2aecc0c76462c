"""What is known before anything is measured: candidates, the envelope, bounds by KV capacity."""

from __future__ import annotations

from vllm_tuning.tuning.model import Bounds, EngineFacts, Limits, Problem, Workload

TOKEN_BUDGETS = (256, 512, 1024, 2048, 4096, 8192, 16384)
"""The race's values of ``max_num_batched_tokens``: SLA-feasible load is single-peaked in it, and a
factor of two is about as far as one can see beyond noise."""

QUICK_TOKEN_BUDGETS = (256, 1024, 4096)

ENVELOPE_SEQS = 512
"""Least ``max_num_seqs`` of the envelope: what runs at once near an SLA is seldom more."""

QUICK_ENVELOPE_SEQS = 256

BLOCK_TOKENS = 16
"""vLLM's usual KV block; a request's last block is half empty on average."""


def bucket_top(count: float) -> int:
    """Round up to a CUDA-graph capture size: 1, 2, 4, multiples of 8 to 256, of 16 above.

    A decode step costs the same anywhere inside a bucket, so a cap below its top wastes what the
    step pays for.
    """
    for small in (1, 2, 4):
        if count <= small:
            return small
    step = 8 if count <= 256 else 16
    return int(-(-count // step) * step)


def bucket_below(count: float) -> int:
    """Round down to a CUDA-graph capture size (at least 1)."""
    top = bucket_top(count)
    if top <= count:
        return top
    below = [size for size in (1, 2, 4) if size <= count]
    step = 8 if count <= 256 else 16
    return max([*below, int(count // step) * step, 1])


def graph_seqs(tokens: int, graph_tokens: int) -> int:
    """Least ``max_num_seqs`` whose start has CUDA graphs for all steps up to ``graph_tokens``.

    A start captures them for steps of up to twice its ``max_num_seqs``, and of no more than the
    token budget (vLLM's ``config``, ``_set_cudagraph_sizes``; with speculation for more). A smaller
    cap may be as idle, and still slow down every larger step.
    """
    return -(-min(tokens, graph_tokens) // 2)


def clip(value: int, bounds: Bounds | None) -> int:
    """Bring a value into its bounds."""
    if bounds is None:
        return value
    if bounds.minimum is not None:
        value = max(value, bounds.minimum)
    if bounds.maximum is not None:
        value = min(value, bounds.maximum)
    return value


def token_budgets(problem: Problem, largest: int | None = None) -> tuple[int, ...]:
    """Candidates for ``max_num_batched_tokens``, ascending, inside bounds, up to ``largest``."""
    current, bounds = problem.current.max_num_batched_tokens, problem.space.max_num_batched_tokens
    if bounds is None:
        return (current,)
    ladder = QUICK_TOKEN_BUDGETS if problem.quick else TOKEN_BUDGETS
    values = {clip(value, bounds) for value in (*ladder, current)}
    return tuple(sorted(value for value in values if largest is None or value <= largest))


def envelope(problem: Problem) -> Limits:
    """Choose the limits of the first start: at least the current ones and every candidate.

    Bounds that exclude the current value do not shrink the envelope below it: the baseline runs
    there too.
    """
    current, space = problem.current, problem.space
    seqs = current.max_num_seqs
    if space.max_num_seqs is not None:
        least = QUICK_ENVELOPE_SEQS if problem.quick else ENVELOPE_SEQS
        wanted = max(least, problem.workload.concurrency or 0)
        seqs = max(seqs, clip(wanted, space.max_num_seqs))
    tokens = max(current.max_num_batched_tokens, *token_budgets(problem), seqs)
    return Limits(
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        gpu_memory_utilization_percent=current.gpu_memory_utilization_percent,
    )


def with_limits(limits: Limits, *, seqs: int | None = None, tokens: int | None = None) -> Limits:
    """Change a pair, keeping vLLM's rule that the budget is at least ``max_num_seqs``."""
    tokens = limits.max_num_batched_tokens if tokens is None else tokens
    seqs = limits.max_num_seqs if seqs is None else seqs
    return Limits(
        max_num_seqs=min(seqs, tokens),
        max_num_batched_tokens=tokens,
        gpu_memory_utilization_percent=limits.gpu_memory_utilization_percent,
        enable_chunked_prefill=limits.enable_chunked_prefill,
        long_prefill_token_threshold=limits.long_prefill_token_threshold,
    )


def kv_concurrency(facts: EngineFacts | None, workload: Workload) -> tuple[int, int] | None:
    """Requests that the KV cache holds: at full length (no preemption), and at mean length.

    ``None`` when the engine does not tell its capacity. With prefix caching a shared prefix is
    counted once per request all the same: an under-estimate, on the safe side.
    """
    if facts is None or not facts.kv_cache_tokens:
        return None
    block = facts.block_size or BLOCK_TOKENS
    prompt, output = workload.input_tokens.mean, workload.output_tokens.mean
    full = prompt + output + block / 2
    mean = prompt + output / 2 + block / 2
    tokens = facts.kv_cache_tokens
    return max(1, int(tokens / full)), max(1, int(tokens / mean))
