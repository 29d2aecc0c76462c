"""An edit as a short list of operations, each on one string or one list of the container."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from vllm_tuning.engine.launch.text import Path


@dataclass(frozen=True, slots=True)
class ReplaceText:
    """Characters ``[start, end)`` of the string at ``path`` become ``text``."""

    path: Path
    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class InsertItems:
    """``items`` stand before position ``index`` of the list at ``path``."""

    path: Path
    index: int
    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveItems:
    """``count`` items from position ``index`` of the list at ``path`` go."""

    path: Path
    index: int
    count: int


Operation: TypeAlias = ReplaceText | InsertItems | RemoveItems
"""All positions are those of the unchanged container."""


def _order(operation: Operation) -> tuple[int, int]:
    """Later positions first, so that earlier ones stay valid; text before list changes."""
    if isinstance(operation, ReplaceText):
        return (0, -operation.start)
    return (1, -operation.index)


def in_order(operations: Sequence[Operation]) -> list[Operation]:
    """The operations in an order in which they can be applied one by one."""
    return sorted(operations, key=_order)


def merged(operations: Sequence[Operation]) -> list[Operation]:
    """The same operations with runs of removed items joined into one."""
    kept: list[Operation] = [o for o in operations if not isinstance(o, RemoveItems)]
    removed = sorted(
        {
            (o.path, i)
            for o in operations
            if isinstance(o, RemoveItems)
            for i in range(o.index, o.index + o.count)
        }
    )
    runs: list[RemoveItems] = []
    for path, index in removed:
        last = runs[-1] if runs else None
        if last is not None and last.path == path and last.index + last.count == index:
            runs[-1] = RemoveItems(path, last.index, last.count + 1)
        else:
            runs.append(RemoveItems(path, index, 1))
    return [*kept, *runs]


def get_at(document: Any, path: Path) -> Any:  # noqa: ANN401 - JSON data
    """The value at ``path``."""
    for key in path:
        document = document[key]
    return document


def apply(document: Mapping[str, Any], operations: Sequence[Operation]) -> dict[str, Any]:
    """A deep copy of the document with the operations applied."""
    changed: dict[str, Any] = copy.deepcopy(dict(document))
    for operation in in_order(operations):
        if isinstance(operation, ReplaceText):
            parent = get_at(changed, operation.path[:-1])
            text = parent[operation.path[-1]]
            parent[operation.path[-1]] = (
                text[: operation.start] + operation.text + text[operation.end :]
            )
            continue
        if operation.path[0] not in changed and len(operation.path) == 1:
            changed[str(operation.path[0])] = []
        items = get_at(changed, operation.path)
        if isinstance(operation, InsertItems):
            items[operation.index : operation.index] = list(operation.items)
        else:
            del items[operation.index : operation.index + operation.count]
    return changed


def pointer(prefix: str, path: Path) -> str:
    """A JSON pointer (RFC 6901)."""
    return prefix + "".join("/" + str(k).replace("~", "~0").replace("/", "~1") for k in path)


def json_patch(
    document: Mapping[str, Any], operations: Sequence[Operation], prefix: str = ""
) -> list[dict[str, Any]]:
    """A JSON patch (RFC 6902) that tests every list and string it touches before it changes one."""
    tests: dict[str, Any] = {}
    if isinstance(document.get("name"), str):
        tests[pointer(prefix, ("name",))] = document["name"]
    for operation in operations:
        path = operation.path
        if path[0] == "env":
            tests[pointer(prefix, (*path[:-1], "name"))] = get_at(document, (*path[:-1], "name"))
        elif path[0] in ("args", "command"):
            path = path[:1]  # an atomic list: guarded whole
        if path[0] in document:
            tests[pointer(prefix, path)] = get_at(document, path)
    texts = [o for o in operations if isinstance(o, ReplaceText)]
    changed = apply(document, texts)
    changes = [
        _op("replace", pointer(prefix, path), get_at(changed, path))
        for path in dict.fromkeys(o.path for o in texts)
    ]
    for operation in in_order([o for o in operations if not isinstance(o, ReplaceText)]):
        changes += _list_changes(operation, document, prefix)
    return [*(_op("test", path, value) for path, value in tests.items()), *changes]


def _list_changes(
    operation: Operation, document: Mapping[str, Any], prefix: str
) -> list[dict[str, Any]]:
    if isinstance(operation, RemoveItems):
        where = pointer(prefix, (*operation.path, operation.index))
        return [{"op": "remove", "path": where}] * operation.count
    assert isinstance(operation, InsertItems)
    if operation.path[0] not in document:
        return [_op("add", pointer(prefix, operation.path), list(operation.items))]
    return [
        _op("add", pointer(prefix, (*operation.path, operation.index + offset)), item)
        for offset, item in enumerate(operation.items)
    ]


def _op(op: str, path: str, value: object) -> dict[str, Any]:
    return {"op": op, "path": path, "value": copy.deepcopy(value)}
