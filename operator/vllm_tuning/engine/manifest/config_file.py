"""Change values in the YAML of a ``--config`` file, comments and layout kept."""

from __future__ import annotations

from collections.abc import Mapping

from ruamel.yaml.nodes import MappingNode, ScalarNode

from vllm_tuning.engine.flags.model import Kind
from vllm_tuning.engine.flags.numbers import normalize
from vllm_tuning.engine.flags.scan import dashed
from vllm_tuning.engine.flags.table import FlagTable, Spelling
from vllm_tuning.engine.launch.edit import Value
from vllm_tuning.engine.launch.operations import Operation, ReplaceText
from vllm_tuning.engine.launch.text import Path
from vllm_tuning.engine.manifest.document import Stream
from vllm_tuning.engine.manifest.scalars import map_scalar, quoted
from vllm_tuning.engine.outcome import Refusal


def edit_config_file(
    text: str, changes: Mapping[str, Value], table: FlagTable, path: Path
) -> tuple[Operation, ...] | Refusal:
    """Replace the values of keys that are there; ``path`` is where ``text`` stands."""
    stream = Stream.parse(text)
    if isinstance(stream, Refusal):
        return stream
    root = stream.roots[0] if len(stream.roots) == 1 else None
    if not isinstance(root, MappingNode):
        return Refusal("InvalidConfigFile", "the config file is not one YAML map")
    operations: list[Operation] = []
    for name, value in changes.items():
        node = _value_of(root, name, table)
        found = node and map_scalar(
            text, node.start_mark.index, node.end_mark.index, node.style, node.value
        )
        if node is None or not found or found.style in ("|", ">") or stream.uses[id(node)] > 1:
            return Refusal("InvalidConfigFile", f"`{name}` is not a plain value of the config file")
        flag = table.get(name)
        kind = flag.kind if flag else Kind.STRING
        if normalize(node.value, kind) == normalize(str(value), kind):
            continue
        new = quoted(str(value), found.style) if found.style else str(value)
        operations.append(ReplaceText(path, found.start, found.end, new))
    return tuple(operations)


def _value_of(root: MappingNode, name: str, table: FlagTable) -> ScalarNode | None:
    """The last entry for a flag, whatever spelling it has."""
    flag = table.get(name)
    hit = None
    for key, value in root.value:
        match = table.match(dashed(f"--{key.value}"))
        if isinstance(match, Spelling) and match.flag == flag and isinstance(value, ScalarNode):
            hit = value
    return hit
