"""A YAML (or JSON) stream, changed in place: parsed for positions, never dumped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from vllm_tuning.engine.launch.operations import (
    InsertItems,
    Operation,
    RemoveItems,
    ReplaceText,
    get_at,
    merged,
)
from vllm_tuning.engine.launch.operations import apply as apply_operations
from vllm_tuning.engine.launch.text import Path
from vllm_tuning.engine.manifest import sequences
from vllm_tuning.engine.manifest.scalars import Scalar, encode, is_plain_safe, map_scalar, quoted
from vllm_tuning.engine.manifest.splice import Splice, splice
from vllm_tuning.engine.outcome import Refusal

Change: TypeAlias = tuple[int, Path, Sequence[Operation]]
"""A document, a path in it, and operations below that path."""


@dataclass(frozen=True)
class Stream:
    """All documents of one file."""

    text: str
    roots: tuple[Node | None, ...]
    values: tuple[Any, ...]
    """Each document as plain Python data."""
    newline: str = "\n"
    uses: Counter[int] = field(default_factory=Counter)
    """How often each node stands in the tree; more than once = an anchor with aliases."""

    @classmethod
    def parse(cls, text: str) -> Stream | Refusal:
        """Parse a multi-document YAML or JSON text."""
        try:
            roots, values = _compose(text)
        except (YAMLError, ValueError) as error:
            return Refusal(
                "InvalidYAML", f"the file is not valid YAML: {' '.join(str(error).split())}"
            )
        newline = "\r\n" if "\r\n" in text else "\n"
        stream = cls(text, roots, values, newline)
        for root in roots:
            stream.count(root)
        return stream

    def count(self, node: Node | None) -> None:
        """Note every use of a node."""
        if node is None:
            return
        self.uses[id(node)] += 1
        if self.uses[id(node)] > 1:
            return
        if isinstance(node, MappingNode):
            for key, value in node.value:
                self.count(key)
                self.count(value)
        elif isinstance(node, SequenceNode):
            for item in node.value:
                self.count(item)

    def find(self, document: int, path: Path) -> Node | Refusal:
        """The node at a path, if nothing else shares it."""
        node = self.roots[document]
        for key in path:
            if isinstance(node, MappingNode):
                node = next((v for k, v in node.value if k.value == key), None)
            elif isinstance(node, SequenceNode) and isinstance(key, int):
                node = node.value[key]
            else:
                node = None
            if node is None:
                return Refusal(
                    "MergedYAML",
                    f"`{_dots(path)}` comes from a YAML merge (`<<`); write it out where it is"
                    " used",
                )
            if self.uses[id(node)] > 1:
                return Refusal(
                    "SharedAnchor",
                    f"`{_dots(path)}` is shared by a YAML anchor, so that an edit would change"
                    " its other users too;"
                    " write it out where it is used",
                )
        assert node is not None
        return node

    def in_flow(self, document: int, path: Path) -> bool:
        """Whether the value stands in ``[...]`` or ``{...}``, where plain scalars may hold less."""
        parents = (self.find(document, path[:depth]) for depth in range(len(path)))
        return any(isinstance(p, CollectionNode) and bool(p.flow_style) for p in parents)

    def scalar(self, document: int, path: Path) -> Scalar | Refusal:
        """The scalar at a path, traced."""
        node = self.find(document, path)
        if isinstance(node, Refusal):
            return node
        if isinstance(node, ScalarNode):
            start, end = node.start_mark.index, node.end_mark.index
            found = map_scalar(self.text, start, end, node.style, node.value)
            if found is not None:
                return replace(found, in_flow=self.in_flow(document, path))
        return Refusal(
            "UntraceableScalar",
            f"the YAML of `{_dots(path)}` can't be traced to its characters; write it as a"
            " literal block (`|`)",
        )

    def edit(self, changes: Sequence[Change]) -> Stream | Refusal:
        """The stream with operations applied, read back to prove that nothing else changed."""
        splices: list[Splice] = []
        for document, prefix, operations in changes:
            found = self.splices(document, prefix, merged(operations))
            if isinstance(found, Refusal):
                return found
            splices += found
        changed = splice(self.text, splices)
        again = None if changed is None else Stream.parse(changed)
        if again is None or isinstance(again, Refusal) or not self.proves(again, changes):
            return Refusal(
                "NotProven",
                "the edited file would not read back as intended; change it by hand (see"
                " --json-patch)",
            )
        return again

    def splices(
        self, document: int, prefix: Path, operations: Sequence[Operation]
    ) -> list[Splice] | Refusal:
        """What the operations below ``prefix`` mean for the text."""
        splices: list[Splice] = []
        texts = [o for o in operations if isinstance(o, ReplaceText)]
        for path in dict.fromkeys(o.path for o in texts):
            same = [o for o in texts if o.path == path]
            found = self.replace(document, (*prefix, *path), same)
            if isinstance(found, Refusal):
                return found
            splices += found
        for operation in operations:
            if not isinstance(operation, ReplaceText):
                found = self.change_list(document, (*prefix, *operation.path), operation)
                if isinstance(found, Refusal):
                    return found
                splices += found
        return splices

    def change_list(
        self, document: int, path: Path, operation: InsertItems | RemoveItems
    ) -> list[Splice] | Refusal:
        """Put items into a list, or take them out."""
        node = self.find(document, path)
        if isinstance(node, Refusal):
            return node
        if not isinstance(node, SequenceNode):
            return Refusal("MalformedContainer", f"`{_dots(path)}` is not a list")
        if isinstance(operation, RemoveItems):
            return sequences.remove(self.text, node, operation.index, operation.count)
        return sequences.insert(self.text, node, operation.index, operation.items, self.newline)

    def replace(
        self, document: int, path: Path, operations: Sequence[ReplaceText]
    ) -> list[Splice] | Refusal:
        """Change parts of a scalar; a plain one that the change would break is quoted whole."""
        scalar = self.scalar(document, path)
        if isinstance(scalar, Refusal):
            return scalar
        value = str(get_at(self.values[document], path))
        parts = [Splice(o.start, o.end, o.text) for o in operations]
        new = splice(value, parts)
        if scalar.style == "" and new is not None and not is_plain_safe(new, flow=scalar.in_flow):
            return [Splice(scalar.start, scalar.end, quoted(new))]
        splices = []
        for part in parts:
            text = encode(part.text, scalar, self.newline)
            if text is None:
                return Refusal(
                    "ScalarStyle",
                    "the YAML string can't hold the new text; write it as a literal block (`|`)",
                )
            splices.append(Splice(*scalar.range(part.start, part.end), text))
        return splices

    def proves(self, again: Stream, changes: Sequence[Change]) -> bool:
        """Whether the changed stream holds the changed data, and nothing else differs."""
        wanted = list(self.values)
        for document, prefix, operations in changes:
            wanted[document] = _rebuilt(wanted[document], prefix, operations)
        return wanted == list(again.values)


def _compose(text: str) -> tuple[tuple[Node | None, ...], tuple[Any, ...]]:
    """Each document's nodes, for positions, and its plain data, in one pass."""
    constructor, parser = YAML(typ="safe", pure=True).get_constructor_parser(text)
    roots, values = [], []
    try:
        while constructor.composer.check_node():
            node = constructor.composer.get_node()
            roots.append(node)
            values.append(constructor.construct_document(node))
    finally:
        parser.dispose()
    return tuple(roots), tuple(values)


def _rebuilt(value: Any, prefix: Path, operations: Sequence[Operation]) -> Any:  # noqa: ANN401 - YAML data
    """The data with operations applied below ``prefix``; copies only what changes."""
    if not prefix:
        return apply_operations(value, operations)
    key, *rest = prefix
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = _rebuilt(copy[key], tuple(rest), operations)
    return copy


def _dots(path: Path) -> str:
    return "".join(f"[{k}]" if isinstance(k, int) else f".{k}" for k in path).lstrip(".")
