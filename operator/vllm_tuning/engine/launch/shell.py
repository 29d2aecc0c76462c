"""Find the one engine command in a shell script, with its words; or say why it can't be had."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from typing import Final

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from vllm_tuning.engine.launch.entry import SHELLS, Entry, find_entry
from vllm_tuning.engine.launch.shell_scope import read_scope
from vllm_tuning.engine.launch.shell_words import Source, read_words
from vllm_tuning.engine.launch.text import Mark, Traced, Word
from vllm_tuning.engine.launch.variables import Environment
from vllm_tuning.engine.outcome import Refusal

_MENTION: Final = re.compile(r"vllm\s+serve|vllm\.entrypoints|dynamo\.vllm")
_TALKERS: Final = frozenset(
    {"echo", "printf", "grep", "egrep", "pgrep", "pkill", "which", "type", "test", "[", "pip", "ls"}
)
_GAP: Final = re.compile(r"(?:[ \t]|\\\r?\n)*")
"""What may stand between two words of a command."""
_NO_GAP: Final = re.compile(r"(?:\\\n)*")
"""What does not end a word: a shell takes line continuations out first."""
_HIDDEN: Final = frozenset({"command_substitution", "process_substitution"})


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """The engine's command inside a script."""

    words: tuple[Word, ...]
    """All words of the command, the program's name first."""
    entry: Entry
    tail: Mark
    """The last argument; a new flag goes behind it."""
    separator: str
    """What stands between the last flags: a blank, or a line continuation with its indent."""
    forwards: bool
    """Whether ``"$@"`` brings the script's arguments into the command."""


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_bash.language()))


def read_script(
    script: Traced, environment: Environment, arguments: Sequence[Word] | None
) -> ShellCommand | Refusal:
    """Read a shell script. ``arguments`` are its ``$1``, ``$2``...; ``None`` = unknown."""
    encoded = script.text.encode("utf-8", "surrogatepass")
    root = _parser().parse(encoded).root_node
    if root.has_error:
        return _no_certainty()
    source = Source(script, _offsets(script.text))
    found: list[tuple[Node, ShellCommand]] = []
    for node in _commands(root):
        scope = read_scope(root, node, source, environment, arguments)
        words = read_words(_argument_nodes(node), source, scope)
        entry = find_entry([word.text for word in words])
        if entry is not None and words[0].text not in _TALKERS:
            found.append((node, _command(node, source, words, entry)))
    if len(found) == 1:
        node, command = found[0]
        return _hidden(node) or _unparsed(node, source) or command
    if found:
        return Refusal(
            "AmbiguousCommand",
            f"the script starts the engine in {len(found)} places; keep one, or give each its own"
            " container",
        )
    return _why_none(root, source)


def _offsets(text: str) -> list[int]:
    """Character index of each byte offset of the UTF-8 form, one past the end included."""
    widths = [len(char.encode("utf-8", "surrogatepass")) for char in text]
    offsets = [0] * (sum(widths) + 1)
    for index, start in enumerate(accumulate([0, *widths])):
        offsets[start] = index
    return offsets


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _walk(child)


def _commands(root: Node) -> Iterator[Node]:
    return (node for node in _walk(root) if node.type == "command")


def _argument_nodes(command: Node) -> list[Node]:
    """The command's own words in order, also those that stand behind a redirection."""
    nodes = [
        child
        for child in command.named_children
        if child.type != "variable_assignment" and not child.type.endswith("redirect")
    ]
    holders = [command]
    if command.parent is not None and command.parent.type == "redirected_statement":
        holders.append(command.parent)
    for holder in holders:
        for redirect in holder.named_children:
            if redirect.type == "file_redirect":
                nodes += redirect.children_by_field_name("destination")[1:]
    return sorted(nodes, key=lambda node: node.start_byte)


def _command(node: Node, source: Source, words: list[Word], entry: Entry) -> ShellCommand:
    nodes = _argument_nodes(node)
    spans = [source.span(n) for n in nodes]
    text = source.script.text
    separator = " "
    for (_, previous_end), (start, _) in pairwise(spans):
        gap = text[previous_end:start]
        if text[start] == "-" and re.fullmatch(r"[ \t]+|[ \t]*\\\n[ \t]*", gap):
            separator = gap
    forwards = any(text[start:end].strip('"') in ("$@", "${@}") for start, end in spans)
    return ShellCommand(tuple(words), entry, source.mark(*spans[-1]), separator, forwards)


def _unparsed(node: Node, source: Source) -> Refusal | None:
    """Text that the grammar passed over or cut: then the words are not what a shell would see."""
    siblings: list[Node] = []
    if node.parent is not None and node.parent.type == "redirected_statement":
        siblings = [child for child in node.parent.children if child.id != node.id]
    parts: list[Node] = []
    for part in (*node.children, *siblings):
        parts += part.children if part.type == "file_redirect" else [part]
    parts.sort(key=lambda part: part.start_byte)
    complete = all(child.is_named for child in node.children)  # a bare `$` is no node of its own
    if complete and all(_apart(a, b, source) for a, b in pairwise(parts)):
        return None
    return _no_certainty()


def _apart(before: Node, after: Node, source: Source) -> bool:
    """Whether two parts are two to a shell too: the grammar cuts words at some backslashes."""
    text = source.script.text
    (start, end), (follower, _) = source.span(before), source.span(after)
    if not _is_word(before) or not _NO_GAP.fullmatch(text[end:follower]):
        return _GAP.fullmatch(text[end:follower]) is not None
    is_descriptor = text[start:end].isdigit() and text[follower] in "<>"
    return not is_descriptor and not _is_word(after)


def _is_word(part: Node) -> bool:
    """Whether the part is a word, or where a redirection goes: no operator, no descriptor."""
    before = part.prev_sibling
    duplicated = before is not None and before.type in (">&", "<&")
    return part.is_named and not part.type.endswith(("redirect", "descriptor")) and not duplicated


def _no_certainty() -> Refusal:
    return Refusal(
        "ShellSyntax",
        "the shell script could not be parsed with certainty; write the engine's command as a"
        " plain list of args",
    )


def _hidden(node: Node) -> Refusal | None:
    parent = node.parent
    while parent is not None:
        if parent.type in _HIDDEN:
            return Refusal(
                "CommandSubstitution",
                "the engine runs inside a command substitution; call it as a plain command",
            )
        parent = parent.parent
    return None


def _why_none(root: Node, source: Source) -> Refusal:
    """No plain command starts the engine: name the construct that hides it."""
    for node in _walk(root):
        text = source.script.text[slice(*source.span(node))]
        if not _MENTION.search(text):
            continue
        if node.type == "heredoc_body":
            return Refusal(
                "HereDocument",
                "the engine's command stands in a here-document; call `vllm serve` in the script"
                " itself",
            )
        if node.type == "command" and (name := node.child_by_field_name("name")) is not None:
            program = source.script.text[slice(*source.span(name))].rsplit("/", 1)[-1]
            if program == "eval":
                return Refusal(
                    "EvalCommand",
                    "`eval` builds the engine's command at run time; replace it by a plain `exec"
                    " vllm serve ...`",
                )
            if program in SHELLS or program in ("su", "ssh", "sudo", "env", "exec", "xargs"):
                return Refusal(
                    "NestedShell",
                    f"`{program}` starts another shell for the engine; call `vllm serve` in the"
                    " outer script",
                )
    return Refusal(
        "NoEngineCommand",
        "the script has no plain `vllm serve` or `python -m vllm.entrypoints.openai.api_server`"
        " command",
    )
