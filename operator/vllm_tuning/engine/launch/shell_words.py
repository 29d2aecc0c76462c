"""The words of one shell command, as the shell would pass them, each character with its origin.

POSIX rules: quotes are removed, a backslash escapes, unquoted expansions are split at blanks. What
only a running shell
can know (command substitution, globbing braces, undefined names) becomes `UNKNOWN`, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tree_sitter import Node

from vllm_tuning.engine.launch.text import UNKNOWN, Mark, Traced, Word

_BLANK: Final = " \t\n"
_DOUBLE_ESCAPABLE: Final = '$`"\\'
_PARAMETER: Final = re.compile(r"\$(?:\{(\w+|@)(?:(:?[-=+?])(.*))?\}|(\w+|@))", re.DOTALL)
_PLAIN_DEFAULT: Final = re.compile(r"""[^\s$`"'\\{}]*""")
_BRACES: Final = re.compile(r"\{[^{}\s\"']*(?:,|\.\.)[^{}\s\"']*\}")


@dataclass(frozen=True, slots=True)
class Source:
    """The script after the kubelet's expansion, and the byte-to-character map of its tree."""

    script: Traced
    offsets: Sequence[int]

    def span(self, node: Node) -> tuple[int, int]:
        """Character range of a node in the script."""
        return self.offsets[node.start_byte], self.offsets[node.end_byte]

    def mark(
        self, start: int, end: int, quote: str = "", region: tuple[int, int] | None = None
    ) -> Mark:
        """The origin, in the container, of the script's characters ``[start, end)``."""
        first, last = self.script.marks[start], self.script.marks[max(start, end - 1)]
        if first.reference is not None or first.path != last.path:
            return replace(first, in_script=True, quote=quote)
        bounds = region and (
            self.script.marks[region[0]].start,
            self.script.marks[region[1] - 1].end,
        )
        return Mark(first.path, first.start, last.end, quote, bounds, in_script=True)


@dataclass(frozen=True, slots=True)
class Scope:
    """What expansions see."""

    lookup: Callable[[str], Traced | None]
    """Value of a variable; ``None`` = not known."""
    defined: Callable[[str], bool]
    """Whether the variable may have a value at all."""
    arguments: Sequence[Word] | None = None
    """The script's own arguments (``"$@"``); ``None`` = not known."""


@dataclass(slots=True)
class _Fields:
    """Words under construction."""

    source: Source
    anchor: Mark
    done: list[Word] = field(default_factory=list)
    parts: list[Traced] = field(default_factory=list)
    quoted: bool = False
    many: bool = False

    def literal(self, part: Traced) -> None:
        self.parts.append(part)

    def finish(self) -> None:
        body = Traced.join(self.parts)
        if body.text or self.quoted or self.many:
            self.done.append(Word(body, self.anchor, self.many))
        self.parts, self.quoted, self.many = [], False, False

    def split(self, part: Traced) -> None:
        """Add an unquoted expansion: cut it at blanks."""
        if not part.known:
            self.many = True
        start = 0
        for index, char in enumerate(part.text):
            if char in _BLANK:
                self.parts.append(part[start:index])
                self.finish()
                start = index + 1
        self.parts.append(part[start:])


def read_words(nodes: Sequence[Node], source: Source, scope: Scope) -> list[Word]:
    """Evaluate argument nodes into the words that the program gets."""
    words: list[Word] = []
    for node in nodes:
        forwarded = _forwarded(node, source, scope)
        if forwarded is not None:
            words += forwarded
            continue
        fields = _Fields(source, source.mark(*source.span(node)))
        _evaluate(node, fields, scope)
        fields.finish()
        words += fields.done
    return words


def _forwarded(node: Node, source: Source, scope: Scope) -> list[Word] | None:
    """``"$@"`` and ``$@``: the script's arguments themselves."""
    start, end = source.span(node)
    if source.script.text[start:end].strip('"') not in ("$@", "${@}"):
        return None
    if scope.arguments is None:
        mark = source.mark(start, end)
        return [Word(Traced(UNKNOWN, (replace(mark, variable="@"),)), mark, many=True)]
    return list(scope.arguments)


def _evaluate(node: Node, fields: _Fields, scope: Scope) -> None:
    """Add what a node of the syntax tree stands for."""
    start, end = fields.source.span(node)
    text = fields.source.script.text[start:end]
    match node.type:
        case "command_name" | "concatenation" if not _BRACES.search(text):
            for child in node.children:
                _evaluate(child, fields, scope)
        case "word" | "number" | "variable_name":
            _bare(start, end, fields)
        case "raw_string":
            fields.quoted = True
            fields.literal(_literal(range(start + 1, end - 1), fields.source, "'", (start, end)))
        case "ansi_c_string" if "\\" not in text:
            fields.quoted = True
            fields.literal(_literal(range(start + 2, end - 1), fields.source, "$'", (start, end)))
        case "string":
            fields.quoted = True
            _double(node, fields, scope)
        case "simple_expansion" | "expansion":
            fields.split(_parameter(node, fields.source, scope, quote="", region=None))
        case _ if not node.is_named and node.type not in ("`", "$("):
            _bare(start, end, fields)
        case _:
            _unknown(start, end, fields)


def _unknown(start: int, end: int, fields: _Fields) -> None:
    mark = fields.source.mark(start, end)
    fields.split(Traced(UNKNOWN, (replace(mark, variable=fields.source.script.text[start:end]),)))


def _literal(
    positions: range, source: Source, quote: str, region: tuple[int, int] | None
) -> Traced:
    text = source.script.text[positions.start : positions.stop]
    return Traced(text, tuple(source.mark(i, i + 1, quote, region) for i in positions))


def _bare(start: int, end: int, fields: _Fields) -> None:
    """Unquoted text: a backslash keeps the next character, and with a newline it vanishes."""
    text, source = fields.source.script.text, fields.source
    if _BRACES.search(text[start:end]) or text[start:end] == "~" or text.startswith("~/", start):
        _unknown(start, end, fields)
        return
    chars: list[Traced] = []
    index = start
    while index < end:
        width = 2 if text[index] == "\\" and index + 1 < end else 1
        char = text[index + width - 1]
        if not (width == 2 and char == "\n"):
            chars.append(Traced(char, (source.mark(index, index + width),)))
        index += width
    fields.literal(Traced.join(chars))


def _double(node: Node, fields: _Fields, scope: Scope) -> None:
    """``"..."``: only expansions and five escapes are special; nothing is split."""
    source, text = fields.source, fields.source.script.text
    start, end = source.span(node)
    region = (start, end)
    index = start + 1
    expansions = [c for c in node.named_children if c.type != "string_content"]
    for child in [*expansions, None]:
        stop = source.span(child)[0] if child is not None else end - 1
        while index < stop:
            escaped = text[index] == "\\" and text[index + 1] in _DOUBLE_ESCAPABLE + "\n"
            width = 2 if escaped else 1
            char = text[index + width - 1]
            if not (escaped and char == "\n"):
                mark = source.mark(index, index + width, '"', region)
                fields.literal(Traced(char, (mark,)))
            index += width
        if child is None:
            break
        fields.many = fields.many or "@" in text[slice(*source.span(child))]  # "${LIST[@]}"
        if child.type in ("simple_expansion", "expansion"):
            fields.literal(_parameter(child, source, scope, quote='"', region=region))
        else:
            mark = source.mark(*source.span(child), '"', region)
            code = text[slice(*source.span(child))]
            fields.literal(Traced(UNKNOWN, (replace(mark, variable=code),)))
        index = source.span(child)[1]


def _parameter(
    node: Node, source: Source, scope: Scope, *, quote: str, region: tuple[int, int] | None
) -> Traced:
    """``$NAME``, ``${NAME}``, ``${NAME:-default}``, ``$1``."""
    start, end = source.span(node)
    match = _PARAMETER.fullmatch(source.script.text[start:end])
    mark = source.mark(start, end, quote, region)
    if match is None:
        return Traced(UNKNOWN, (replace(mark, variable=source.script.text[start:end]),))
    name, operator, default = match[1] or match[4], match[2], match[3]
    mark = replace(mark, variable=name)
    if name.isdigit():
        return _positional(int(name), scope, mark)
    value = scope.lookup(name)
    if operator in (":-", "-", ":=", "=") and not scope.defined(name):
        if not _PLAIN_DEFAULT.fullmatch(default):
            return Traced(UNKNOWN, (mark,))
        positions = range(end - 1 - len(default), end - 1)
        return _literal(positions, source, quote, region)
    usable = operator in (None, "?", ":?") or (operator in (":-", "-", ":=", "=") and value)
    if value is None or not usable:
        return Traced(UNKNOWN, (mark,))
    return value.via(mark)


def _positional(number: int, scope: Scope, mark: Mark) -> Traced:
    if scope.arguments is None or not 0 < number <= len(scope.arguments):
        return Traced(UNKNOWN, (mark,))
    return scope.arguments[number - 1].body.via(mark)
