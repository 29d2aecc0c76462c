"""What a started engine says about itself in its log, in all spellings of vLLM 0.8 to 0.33.

Absent lines give ``None``. Values of data-parallel ranks are per rank; where ranks differ the
smallest is taken, since a limit has to hold on every rank.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_GIB = 1 << 30

_VERSION = re.compile(
    r"Initializing a V\d LLM engine \(v(?P<engine>[^\s)]+)\)"
    r"|vLLM (?:API )?server version (?P<server>[^\s,]+)"
    r"|\bversion (?P<banner>\d+\.\d+\.\d\S*)"
)
_NON_DEFAULT = re.compile(r"non-default args: (?P<args>\{.*\})\s*$", re.MULTILINE)
_KV_TOKENS = re.compile(r"KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
_KV_MEMORY = re.compile(r"Available KV cache memory: ([\d.]+) GiB")
_BUDGET = re.compile(r"Chunked prefill is enabled with max_num_batched_tokens=(\d+)")
_INIT = re.compile(r"init engine \([^)]*\) took ([\d.]+) s")
_COMPILATION = re.compile(
    r"init engine \([^)]*\) took [\d.]+ s (?:econds )?\(compilation: ([\d.]+) s"
)
_LOADING = re.compile(r"Model loading took ([\d.]+) (?:GiB|GB)(?: memory)? and ([\d.]+) seconds")
_GRAPHS = re.compile(r"Graph capturing finished in ([\d.]+) secs?, took ([\d.-]+) GiB")
_GRAPH_SIZES = re.compile(r"cudagraph_capture_sizes[\"']: ?\[([\d, ]*)\]")
_OFFERED_KV_BYTES = re.compile(r"--kv-cache-memory(?:-bytes)?=(\d+)")
_RANKS = re.compile(r"data_parallel_size=(\d+)")
_MODEL_LENGTH = re.compile(r"max_seq_len=(\d+)")
_PREFIX_CACHING = re.compile(r"enable_prefix_caching=(True|False)")
_CHUNKED = re.compile(r"(?:enable_chunked_prefill|chunked_prefill_enabled)=(True|False)")


@dataclass(frozen=True, slots=True)
class StartFacts:
    """Facts of one start. Sizes in tokens, times in seconds."""

    version: str | None = None
    non_default_args: str | None = None
    """The engine's own line, as it stands."""
    args: Mapping[str, object] = field(default_factory=dict)
    """The same, parsed; values that are no literals are left out."""
    kv_cache_tokens: int | None = None
    kv_cache_memory_bytes: int | None = None
    offered_kv_cache_memory_bytes: int | None = None
    """The engine's ready-made proposal for ``--kv-cache-memory-bytes``."""
    max_concurrency: float | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    """Only when it was given: a default stands in no line."""
    max_num_batched_tokens: int | None = None
    chunked_prefill: bool | None = None
    prefix_caching: bool | None = None
    data_parallel_ranks: int = 1
    load_seconds: float | None = None
    init_seconds: float | None = None
    compilation_seconds: float | None = None
    """Near zero = warm compile cache."""
    graph_capture_seconds: float | None = None
    graph_tokens: int | None = None
    """Largest step, in tokens, that has a CUDA graph; ``None`` = none has, or it is not told."""


def read_start_log(log: str) -> StartFacts:
    """Read a start's log, or as much of it as there is."""
    given = _NON_DEFAULT.search(log)
    line = given["args"] if given else None
    args = parse_args_line(line) if line else {}
    concurrency = _CONCURRENCY.findall(log)
    budget = _last_int(_BUDGET, log)
    return StartFacts(
        version=_version(log),
        non_default_args=line,
        args=args,
        kv_cache_tokens=_smallest(_KV_TOKENS, log),
        kv_cache_memory_bytes=_bytes(_KV_MEMORY, log),
        offered_kv_cache_memory_bytes=_last_int(_OFFERED_KV_BYTES, log),
        max_concurrency=min((float(c) for _, c in concurrency), default=None),
        max_model_len=_number(concurrency[-1][0]) if concurrency else _last_int(_MODEL_LENGTH, log),
        max_num_seqs=_as_int(args.get("max_num_seqs")),
        max_num_batched_tokens=budget
        if budget is not None
        else _as_int(args.get("max_num_batched_tokens")),
        chunked_prefill=_last_bool(_CHUNKED, log),
        prefix_caching=_last_bool(_PREFIX_CACHING, log),
        data_parallel_ranks=_last_int(_RANKS, log) or 1,
        load_seconds=_last_float(_LOADING, log, 2),
        init_seconds=_last_float(_INIT, log),
        compilation_seconds=_last_float(_COMPILATION, log),
        graph_capture_seconds=_last_float(_GRAPHS, log),
        graph_tokens=_largest_graph(log),
    )


def parse_args_line(line: str) -> dict[str, object]:
    """The ``non-default args`` dictionary.

    An object's repr in it (a config class) makes that one value absent.
    """
    try:
        parsed = ast.literal_eval(line)
    except (ValueError, SyntaxError):
        return _parse_simple_values(line)
    return parsed if isinstance(parsed, dict) else {}


def _parse_simple_values(line: str) -> dict[str, object]:
    """Numbers, strings, booleans and lists of them.

    Used when some value of the line is no literal.
    """
    simple = re.compile(
        r"'(\w+)': (\[[^\[\]()]*\]|'[^']*'|-?[\d.]+(?:e-?\d+)?|True|False|None)(?=[,}])"
    )
    found: dict[str, object] = {}
    for name, text in simple.findall(line):
        try:
            found.setdefault(name, ast.literal_eval(text))
        except (ValueError, SyntaxError):
            continue
    return found


def _version(log: str) -> str | None:
    matches = list(_VERSION.finditer(log))
    for group in ("engine", "server", "banner"):
        for match in matches:
            if match[group]:
                return str(match[group]).rstrip(".,")
    return None


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _largest_graph(log: str) -> int | None:
    """Of the engine's own list: with eager mode it is empty, whatever its largest may be called."""
    lists = _GRAPH_SIZES.findall(log)
    return max(map(int, lists[-1].replace(",", " ").split()), default=None) if lists else None


def _smallest(pattern: re.Pattern[str], log: str) -> int | None:
    return min((_number(text) for text in pattern.findall(log)), default=None)


def _bytes(pattern: re.Pattern[str], log: str) -> int | None:
    return min((int(float(text) * _GIB) for text in pattern.findall(log)), default=None)


def _last_int(pattern: re.Pattern[str], log: str) -> int | None:
    found = pattern.findall(log)
    return int(found[-1]) if found else None


def _last_float(pattern: re.Pattern[str], log: str, group: int = 1) -> float | None:
    matches = list(pattern.finditer(log))
    return float(matches[-1][group]) if matches else None


def _last_bool(pattern: re.Pattern[str], log: str) -> bool | None:
    found = pattern.findall(log)
    return found[-1] == "True" if found else None


def _as_int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
