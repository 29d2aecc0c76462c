"""Items of a YAML list: put in and taken out in the list's own style."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ruamel.yaml.nodes import ScalarNode, SequenceNode

from vllm_tuning.engine.manifest.scalars import is_plain_safe, quoted
from vllm_tuning.engine.manifest.splice import Splice
from vllm_tuning.engine.outcome import Refusal

_DASH: Final = re.compile(r"[ \t]*-[ \t]+$")
_SEPARATOR: Final = re.compile(r",\s+")


def insert(
    text: str,
    node: SequenceNode,
    index: int,
    items: Sequence[str],
    newline: str,
) -> list[Splice] | Refusal:
    """Put items before position ``index``."""
    scalars = [_written(item, node, index) for item in items]
    if node.flow_style:
        return [_insert_flow(text, node, index, scalars)]
    neighbour = node.value[index - 1 if index else 0]
    line_start = text.rfind("\n", 0, neighbour.start_mark.index) + 1
    prefix = text[line_start : neighbour.start_mark.index]
    if not _DASH.fullmatch(prefix):
        return _odd_layout()
    lines = [prefix + scalar for scalar in scalars]
    if index == 0:
        return [Splice(line_start, line_start, newline.join([*lines, ""]))]
    at = _line_end(text, _content_end(text, neighbour))
    if at == len(text):
        return [Splice(at, at, newline + newline.join(lines))]
    at += len(newline)
    return [Splice(at, at, newline.join([*lines, ""]))]


def remove(text: str, node: SequenceNode, index: int, count: int) -> list[Splice] | Refusal:
    """Take out ``count`` items from position ``index``."""
    if node.flow_style:
        return [_remove_flow(node, index, count)]
    splices = []
    for item in node.value[index : index + count]:
        start = text.rfind("\n", 0, item.start_mark.index) + 1
        if not _DASH.fullmatch(text[start : item.start_mark.index]):
            return _odd_layout()
        end = _line_end(text, _content_end(text, item))
        end += 2 if text.startswith("\r\n", end) else 1
        splices.append(Splice(start, min(end, len(text)), ""))
    return splices


def _written(item: str, node: SequenceNode, index: int) -> str:
    """The item in the quoting of its neighbour."""
    neighbour = node.value[index - 1 if index else 0] if node.value else None
    style = neighbour.style if isinstance(neighbour, ScalarNode) else '"'
    if style == "'":
        return quoted(item, "'")
    if style == '"' or not is_plain_safe(item):
        return quoted(item)
    return item


def _insert_flow(text: str, node: SequenceNode, index: int, scalars: Sequence[str]) -> Splice:
    children = node.value
    if not children:
        at = node.start_mark.index + 1
        return Splice(at, at, ", ".join(scalars))
    separator = ", "
    if len(children) > 1:
        between = text[children[-2].end_mark.index : children[-1].start_mark.index]
        separator = between if _SEPARATOR.fullmatch(between) else separator
    if index == 0:
        at = children[0].start_mark.index
        return Splice(at, at, "".join(scalar + separator for scalar in scalars))
    at = children[index - 1].end_mark.index
    return Splice(at, at, "".join(separator + scalar for scalar in scalars))


def _remove_flow(node: SequenceNode, index: int, count: int) -> Splice:
    children = node.value
    after = index + count
    if after < len(children):
        return Splice(children[index].start_mark.index, children[after].start_mark.index, "")
    if index > 0:
        return Splice(children[index - 1].end_mark.index, children[after - 1].end_mark.index, "")
    return Splice(children[0].start_mark.index, children[-1].end_mark.index, "")


def _content_end(text: str, node: ScalarNode) -> int:
    """Behind an item's last character; a block scalar's mark lies behind its blank lines."""
    start, end = int(node.start_mark.index), int(node.end_mark.index)
    return start + len(text[start:end].rstrip()) if node.style in ("|", ">") else end


def _line_end(text: str, at: int) -> int:
    """The position of the line break that ends the line at ``at``."""
    end = text.find("\n", at)
    if end == -1:
        return len(text)
    return end - 1 if text[end - 1] == "\r" else end


def _odd_layout() -> Refusal:
    return Refusal(
        "ListLayout", "the list has more than its items on a line; put each item on its own line"
    )
