"""vLLM's command line as the simulated engine reads it.

The parser is argparse over the flag table of the release that is simulated, with vLLM's habits:
underscores in flag names, unique prefixes, ``8k`` and ``8K``, dotted JSON keys, the last one wins,
exit code 2. Every flag of that release is accepted; those that change nothing here are ignored.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from vllm_tuning.bench.sim.memory import EngineSettings
from vllm_tuning.bench.sim.parameters import EngineParameters
from vllm_tuning.bench.sim.startlog import VERSION
from vllm_tuning.engine.defaults import default_limits
from vllm_tuning.engine.flags.model import Flag, Kind
from vllm_tuning.engine.flags.numbers import AUTO, parse_human_int
from vllm_tuning.engine.flags.scan import dashed
from vllm_tuning.engine.flags.table import table_for

_DEFAULTS: Final[Mapping[str, Any]] = {
    "port": 8000,
    "gpu_memory_utilization": 0.92,
    "long_prefill_token_threshold": 0,
    "tensor_parallel_size": 1,
}
"""Values that the start log leaves out of ``non-default args``; other flags default to none."""


class _Boolean(argparse.Action):
    """``--x`` and ``--no-x``."""

    def __init__(self, *, negatives: Sequence[str], **options: Any) -> None:  # noqa: ANN401 - argparse's
        super().__init__(nargs=0, **options)
        self._negatives = negatives

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        _values: object,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, option_string not in self._negatives)


def _human(text: str) -> int:
    value = parse_human_int(text)
    if value is None:
        raise argparse.ArgumentTypeError(f"invalid human-readable integer: {text!r}")
    return value


def _length(text: str) -> int:
    return AUTO if text.strip().lower() == "auto" else _human(text)


_TYPES: Final[Mapping[Kind, Callable[[str], Any]]] = {
    Kind.INT: int,
    Kind.HUMAN_INT: _human,
    Kind.HUMAN_INT_OR_AUTO: _length,
    Kind.FLOAT: float,
    Kind.STRING: str,
    Kind.JSON: str,
}


def parser() -> argparse.ArgumentParser:
    """Build the parser of ``vllm serve``."""
    build = argparse.ArgumentParser(prog="vllm serve", usage="vllm serve [model_tag] [options]")
    build.add_argument("model_tag", nargs="?")
    for flag in table_for(VERSION):
        _add(build, flag)
    build.set_defaults(**_DEFAULTS)
    return build


def _add(build: argparse.ArgumentParser, flag: Flag) -> None:
    if flag.kind is Kind.SWITCH:
        build.add_argument(*flag.options, dest=flag.name, action="store_true", default=None)
    elif flag.kind is Kind.BOOL:
        build.add_argument(
            *flag.options,
            *flag.negatives,
            dest=flag.name,
            action=_Boolean,
            negatives=flag.negatives,
        )
    else:
        build.add_argument(
            *flag.options,
            dest=flag.name,
            type=_TYPES[flag.kind],
            nargs=flag.arity,
            choices=flag.choices or None,
        )


def read(argv: Sequence[str]) -> argparse.Namespace:
    """Parse what stands behind ``vllm serve``; ``given`` of the result is what was not default.

    Raises:
        SystemExit: with code 2 and argparse's usage on stderr, as vLLM does.
    """
    words = _without_dotted([dashed(word) for word in _with_config(list(argv))])
    known = parser().parse_args(words)
    if known.model_tag is not None:
        known.model = known.model_tag
    known.given = {
        name: value
        for name, value in vars(known).items()
        if value is not None and value != _DEFAULTS.get(name) and name != "config"
    }
    if "api_key" in known.given:
        known.given["api_key"] = "***"
    return known


def _without_dotted(words: Sequence[str]) -> list[str]:
    """Leave out ``--x.key value`` and every spelling of ``-O``: nothing of it changes the twin."""
    kept: list[str] = []
    skip = False
    for word in words:
        name, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif name.startswith("-") and ("." in name or name.startswith("-O")):
            skip = not equals and ("." in name or name == "-O")
        else:
            kept.append(word)
    return kept


def _with_config(words: list[str]) -> list[str]:
    """Put the keys of a ``--config file.yaml`` in front of the other flags, so that these win."""
    if "--config" not in words:
        return words
    from ruamel.yaml import YAML

    at = words.index("--config")
    text = Path(words[at + 1]).read_text(encoding="utf-8")
    content: Mapping[str, Any] = YAML(typ="safe").load(text) or {}
    flags: list[str] = []
    for key, value in content.items():
        if value is True:
            flags.append(f"--{key}")
        elif isinstance(value, list):
            flags += [f"--{key}", *map(str, value)]
        elif value is not False:
            flags += [f"--{key}", json.dumps(value) if isinstance(value, dict) else str(value)]
    rest = words[:at] + words[at + 2 :]
    first = 1 if rest and not rest[0].startswith("-") else 0
    return [*rest[:first], *flags, *rest[first:]]


def resolve(known: argparse.Namespace, parameters: EngineParameters) -> EngineSettings:
    """Fill in the defaults as the API server does on the simulated device."""
    longest = known.max_model_len
    if longest is None or longest == AUTO:
        longest = parameters.model_max_len
    chunked = known.enable_chunked_prefill is not False
    limits = default_limits(
        VERSION,
        parameters.device_memory_bytes,
        parameters.device_name,
        max_model_len=longest,
        max_num_seqs=known.max_num_seqs,
        max_num_batched_tokens=known.max_num_batched_tokens,
        chunked_prefill=chunked,
    )
    return EngineSettings(
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=longest,
        gpu_memory_utilization=known.gpu_memory_utilization,
        enable_chunked_prefill=chunked,
        long_prefill_token_threshold=known.long_prefill_token_threshold,
        enable_prefix_caching=known.enable_prefix_caching is not False,
        async_scheduling=parameters.async_scheduling and known.async_scheduling is not False,
        block_size=known.block_size or parameters.block_size,
        max_num_active_seqs=known.max_num_active_seqs,
        num_gpu_blocks_override=known.num_gpu_blocks_override,
        kv_cache_memory_bytes=known.kv_cache_memory_bytes,
        tensor_parallel_size=known.tensor_parallel_size,
    )
