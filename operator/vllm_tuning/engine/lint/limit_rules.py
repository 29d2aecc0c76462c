"""Rules about limits that contradict each other, or the engine."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_tuning.engine.defaults import default_limits
from vllm_tuning.engine.flags.version import at_least
from vllm_tuning.engine.lint.model import Context, Issue, Severity, rule

SMALLEST_DEFAULT_TOKENS = 2048
"""The default budget of devices that are not in the large tier."""
MEMORY_SHARE_MARGIN = 0.98
"""From here on, start-up estimates have been seen to leave too little (vllm#57475, vllm#19186)."""


@rule(
    "tokens-below-seqs", Severity.ERROR, "`max_num_batched_tokens` must be at least `max_num_seqs`."
)
def tokens_below_seqs(context: Context) -> Iterator[Issue]:
    """Both set, in the wrong order."""
    tokens, seqs = context.number("max_num_batched_tokens"), context.number("max_num_seqs")
    if tokens is not None and seqs is not None and tokens < seqs:
        yield Issue(
            f"max_num_batched_tokens ({tokens}) is below max_num_seqs ({seqs}): the engine exits",
            f"--max-num-batched-tokens {max(seqs, 2048)} or --max-num-seqs {tokens}",
            context.mark_of("max_num_batched_tokens"),
        )


@rule(
    "seqs-above-default-tokens", Severity.WARNING, "`max_num_seqs` may be above the default budget."
)
def seqs_above_default_tokens(context: Context) -> Iterator[Issue]:
    """Only ``max_num_seqs`` is set, above what the budget's default may be."""
    seqs = context.number("max_num_seqs")
    if seqs is None or context.args.get("max_num_batched_tokens") is not None:
        return
    if seqs > SMALLEST_DEFAULT_TOKENS:
        yield Issue(
            f"max_num_seqs ({seqs}) is above the default max_num_batched_tokens of many devices"
            f" ({SMALLEST_DEFAULT_TOKENS}): the engine exits there",
            f"--max-num-batched-tokens {seqs} or more",
            context.mark_of("max_num_seqs"),
        )


@rule(
    "seqs-lowered-by-tokens", Severity.WARNING, "A small budget lowers the default `max_num_seqs`."
)
def seqs_lowered_by_tokens(context: Context) -> Iterator[Issue]:
    """Only the budget is set, below what ``max_num_seqs`` would be."""
    tokens = context.number("max_num_batched_tokens")
    if tokens is None or context.args.get("max_num_seqs") is not None:
        return
    big = default_limits(context.version, 80 * 2**30, "h100").max_num_seqs
    if tokens < big and at_least(context.version, "0.10.1") is not False:
        yield Issue(
            f"max_num_batched_tokens ({tokens}) silently lowers the default max_num_seqs to"
            f" {tokens} where that is"
            f" higher (up to {big})",
            "--max-num-seqs as well, so that the batch limit is a choice",
            context.mark_of("max_num_batched_tokens"),
        )


@rule(
    "tokens-cap-batch", Severity.NOTE, "The budget admits fewer prompts a step than `max_num_seqs`."
)
def tokens_cap_batch(context: Context) -> Iterator[Issue]:
    """``max_num_seqs`` x prompt length against the budget, for a burst of new requests."""
    tokens, seqs = context.number("max_num_batched_tokens"), context.number("max_num_seqs")
    if tokens is None or seqs is None or tokens < seqs:
        return
    need = seqs * context.prompt_tokens
    if need > tokens:
        yield Issue(
            f"{seqs} prompts of {context.prompt_tokens} tokens are {need:,} tokens;"
            " max_num_batched_tokens of"
            f" {tokens:,} admits {max(1, tokens // context.prompt_tokens)} a step, so a burst"
            " fills the batch in"
            f" {-(-need // tokens)} steps",
            "measure whether a larger budget shortens TTFT within the TPOT target",
            context.mark_of("max_num_batched_tokens"),
        )


@rule(
    "chunked-prefill-off", Severity.WARNING, "Generation without chunked prefill is not supported."
)
def chunked_prefill_off(context: Context) -> Iterator[Issue]:
    """Off where the release honours it; the budget must then hold a whole prompt."""
    value = context.args.get("enable_chunked_prefill")
    if value is None or value.value != "false":
        return
    mark = context.mark_of("enable_chunked_prefill")
    if at_least(context.version, "0.11.1") is False:
        yield Issue(
            "this release turns chunked prefill on for generation, whatever the flag says",
            "leave the flag out",
            mark,
        )
        return
    tokens, length = context.number("max_num_batched_tokens"), context.number("max_model_len")
    if tokens is not None and length is not None and tokens < length:
        yield Issue(
            f"with chunked prefill off, max_num_batched_tokens ({tokens}) must be at least"
            f" max_model_len ({length}):"
            " the engine exits",
            f"--max-num-batched-tokens {length}, or leave chunked prefill on",
            mark,
            severity=Severity.ERROR,
        )
    else:
        yield Issue(
            "vLLM warns that turning chunked prefill off may crash or give wrong output",
            "leave the flag out",
            mark,
        )


@rule("partial-prefills", Severity.ERROR, "Concurrent partial prefills never worked in V1.")
def partial_prefills(context: Context) -> Iterator[Issue]:
    """Any value but 1 is refused up to 0.26, and the flag is gone after."""
    for name in ("max_num_partial_prefills", "max_long_partial_prefills"):
        number = context.number(name)
        if number is not None and number != 1 and name in context.args.table.flags:
            yield Issue(
                f"{name} = {number} is not supported by the V1 engine: it exits (before 0.11:"
                " falls back to V0)",
                "--long-prefill-token-threshold",
                context.mark_of(name),
            )


@rule(
    "memory-share-too-high", Severity.WARNING, "No room is left for what start-up estimates miss."
)
def memory_share_too_high(context: Context) -> Iterator[Issue]:
    """``gpu_memory_utilization`` at or above 0.98, or outside (0, 1]."""
    share = context.fraction("gpu_memory_utilization")
    if share is None:
        return
    mark = context.mark_of("gpu_memory_utilization")
    if not 0 < share <= 1:
        percent = 1 < share <= 100
        yield Issue(
            f"gpu_memory_utilization is a share of 1, {share:g} is refused",
            f"--gpu-memory-utilization {share / 100:g}" if percent else "a value in (0, 1]",
            mark,
            severity=Severity.ERROR,
        )
    elif share >= MEMORY_SHARE_MARGIN:
        yield Issue(
            f"gpu_memory_utilization {share:g} leaves no room for graph capture and activations:"
            " it may start and then"
            " fail under load",
            "--gpu-memory-utilization 0.95 or less",
            mark,
        )


@rule(
    "memory-share-ignored",
    Severity.WARNING,
    "`--kv-cache-memory-bytes` overrides the memory share.",
)
def memory_share_ignored(context: Context) -> Iterator[Issue]:
    """Both are set."""
    both = ("kv_cache_memory_bytes", "gpu_memory_utilization")
    if all(context.args.get(name) is not None for name in both):
        yield Issue(
            "gpu_memory_utilization has no effect beside kv_cache_memory_bytes",
            "one of the two",
            context.mark_of("gpu_memory_utilization"),
        )


@rule(
    "prefill-threshold-too-high", Severity.ERROR, "The threshold must not be above `max_model_len`."
)
def prefill_threshold_too_high(context: Context) -> Iterator[Issue]:
    """``long_prefill_token_threshold`` against ``max_model_len``; the engine checks since 0.27."""
    threshold = context.number("long_prefill_token_threshold")
    length = context.number("max_model_len")
    checked = at_least(context.version, "0.27.0") is not False
    if threshold is not None and length is not None and 0 < length < threshold and checked:
        yield Issue(
            f"long_prefill_token_threshold ({threshold}) is above max_model_len ({length}): the"
            " engine exits",
            f"--long-prefill-token-threshold {length} or less",
            context.mark_of("long_prefill_token_threshold"),
        )
