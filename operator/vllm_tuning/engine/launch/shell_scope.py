"""What variables hold when a command of a script runs, by the script and the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from tree_sitter import Node

from vllm_tuning.engine.launch.shell_words import Scope, Source, read_words
from vllm_tuning.engine.launch.text import Traced, Word
from vllm_tuning.engine.launch.variables import Environment

_WILD: Final = frozenset({"eval", "source", "."})
"""Commands that may change any variable."""
_SETTERS: Final = frozenset({"read", "mapfile", "readarray", "getopts", "printf"})
"""Commands that set the variables they name."""
_ASSIGNING: Final = re.compile(r"\$\{(\w+):?=")
_TRANSPARENT: Final = frozenset({"program", "declaration_command"})


@dataclass(slots=True)
class _Survey:
    """Everything in a script that may set a variable or change its arguments."""

    source: Source
    assignments: dict[str, list[Node]] = field(default_factory=dict)
    disturbed: set[str] = field(default_factory=set)
    """Variables that are set in ways that are not followed."""
    wild: bool = False
    """Whether any variable may have been set."""
    keeps_arguments: bool = True

    def text(self, node: Node) -> str:
        return self.source.script.text[slice(*self.source.span(node))]

    def note(self, node: Node, command: Node) -> None:
        """Take one node of the tree into account."""
        match node.type:
            case "variable_assignment":
                if (name := node.child_by_field_name("name")) is not None:
                    self.note_assignment(self.text(name), node)
            case "for_statement":
                if (name := node.child_by_field_name("variable")) is not None:
                    self.disturbed.add(self.text(name))
            case "unset_command":
                self.disturbed.update(self.text(node).split()[1:])
            case "expansion":
                if (match := _ASSIGNING.match(self.text(node))) is not None:
                    self.disturbed.add(match[1])
            case "command":
                self.note_command(self.text(node).split(), is_engine=node.id == command.id)

    def note_assignment(self, name: str, node: Node) -> None:
        """An assignment before a command is for that command alone, unless the grammar cut it."""
        if not _is_prefix(node):
            self.assignments.setdefault(name, []).append(node)
        elif (after := node.next_sibling) is not None and after.start_byte == node.end_byte:
            self.disturbed.add(name)

    def note_command(self, words: Sequence[str], *, is_engine: bool) -> None:
        """A builtin may set variables or the script's arguments."""
        first, *rest = words or [""]
        self.wild = self.wild or (first in _WILD and not is_engine)
        if first in _SETTERS:
            self.disturbed.update(rest)
        if first == "shift" or (first == "set" and _sets_arguments(rest)):
            self.keeps_arguments = False


@dataclass(slots=True)
class _Variables:
    """Values of variables at one command."""

    survey: _Survey
    command: Node
    environment: Environment
    known: dict[str, Traced | None] = field(default_factory=dict)

    def lookup(self, name: str) -> Traced | None:
        """The value, or ``None`` if it is not known."""
        if name not in self.known:
            self.known[name] = None  # a variable that refers to itself stays unknown
            self.known[name] = self.find(name)
        return self.known[name]

    def find(self, name: str) -> Traced | None:
        if self.survey.wild or name in self.survey.disturbed:
            return None
        nodes = self.survey.assignments.get(name)
        if nodes is None:
            variable = self.environment.get(name)
            return None if variable is None else variable.value
        if len(nodes) > 1 or not _always_runs(nodes[0], self.command):
            return None
        value = nodes[0].child_by_field_name("value")
        if value is None:
            return Traced("", ())
        words = read_words([value], self.survey.source, Scope(self.lookup, self.defined))
        return words[0].body if len(words) == 1 and words[0].known else None

    def defined(self, name: str) -> bool:
        """Whether the variable may have a value."""
        if self.survey.wild or name in self.survey.disturbed or name in self.survey.assignments:
            return True
        return self.environment.open_ended or self.environment.get(name) is not None


def read_scope(
    root: Node,
    command: Node,
    source: Source,
    environment: Environment,
    arguments: Sequence[Word] | None,
) -> Scope:
    """The scope in which ``command``'s words are expanded."""
    survey = _Survey(source)
    for node in _walk(root):
        survey.note(node, command)
    variables = _Variables(survey, command, environment)
    if not survey.keeps_arguments or _inside(command, "function_definition"):
        arguments = None
    return Scope(variables.lookup, variables.defined, arguments)


def _walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from _walk(child)


def _is_prefix(assignment: Node) -> bool:
    """``A=1 command``: holds for that command's environment, not for its words."""
    return assignment.parent is not None and assignment.parent.type == "command"


def _sets_arguments(words: Sequence[str]) -> bool:
    return "--" in words or any(w[:1] not in "-+" and w != "pipefail" for w in words)


def _inside(node: Node, kind: str) -> bool:
    parent = node.parent
    while parent is not None:
        if parent.type == kind:
            return True
        parent = parent.parent
    return False


def _always_runs(assignment: Node, command: Node) -> bool:
    """Whether the assignment has surely been made when the command runs."""
    if assignment.start_byte >= command.start_byte:
        return False
    node = assignment
    while (parent := node.parent) is not None:
        if parent.type == "list":
            if parent.children[0].id != node.id and not _chained(parent, command):
                return False
        elif parent.type not in _TRANSPARENT:
            return False
        node = parent
    return True


def _chained(part: Node, command: Node) -> bool:
    """Whether both stand in one chain of ``&&``: the command runs only if all before it did."""
    chain: Node | None = part
    while chain is not None and chain.type == "list":
        if not any(child.type == "&&" for child in chain.children):
            return False
        if chain.start_byte <= command.start_byte < chain.end_byte:
            return True
        chain = chain.parent
    return False
