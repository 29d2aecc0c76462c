"""The words of the linter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from vllm_tuning.engine.args import EngineArgs
from vllm_tuning.engine.flags.numbers import parse_float, parse_int
from vllm_tuning.engine.flags.scan import Occurrence
from vllm_tuning.engine.launch.text import Mark
from vllm_tuning.engine.manifest.workloads import Engine


class Severity(StrEnum):
    """How bad; the names are SARIF's levels."""

    ERROR = "error"
    """The engine does not start, or serves something else."""
    WARNING = "warning"
    """It starts, but a setting is ignored or will hurt."""
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to change."""

    rule: str
    """Stable id in kebab-case."""
    severity: Severity
    where: str
    """For people: ``Deployment/chat[vllm] args[3]``."""
    message: str
    instead: str
    """What to write instead."""
    line: int | None = None
    """Line of the file, from 1."""


@dataclass(frozen=True, slots=True)
class Issue:
    """A rule's answer: its message, what to write, and the place."""

    message: str
    instead: str
    mark: Mark | None = None
    place: str = ""
    """A place that is no word of the command line, e.g. ``livenessProbe``."""
    severity: Severity | None = None
    """``None`` = the rule's own."""


@dataclass(frozen=True)
class Context:
    """What a rule may look at."""

    engine: Engine
    args: EngineArgs
    values: Sequence[Any]
    """All documents of the file."""
    version: str | None
    prompt_tokens: int

    def number(self, name: str) -> int | None:
        """The whole number a flag is set to; ``None`` = not set, or not known."""
        value = self.args.get(name)
        return None if value is None or value.value is None else parse_int(value.value)

    def fraction(self, name: str) -> float | None:
        """The number a flag is set to."""
        value = self.args.get(name)
        return None if value is None or value.value is None else parse_float(value.value)

    def mark(self, occurrence: Occurrence) -> Mark | None:
        """Where an occurrence stands."""
        reading = self.args.reading
        return reading.launch.words[occurrence.index].anchor if reading else None

    def mark_of(self, name: str) -> Mark | None:
        """Where the flag that counts stands."""
        reading = self.args.reading
        winner = reading.winners().get(name) if reading else None
        return self.mark(winner) if winner else None

    def text(self, occurrence: Occurrence) -> str:
        """The option with its value, as the engine sees them."""
        reading = self.args.reading
        assert reading is not None
        words = (reading.launch.words[i].text for i in (occurrence.index, *occurrence.values))
        return " ".join(words)


Check: TypeAlias = Callable[[Context], Iterator[Issue]]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    id: str
    severity: Severity
    summary: str
    check: Check


RULES: dict[str, Rule] = {}
"""Every rule by id; filled by the rule modules."""


def rule(rule_id: str, severity: Severity, summary: str) -> Callable[[Check], Check]:
    """Register a check as a rule."""

    def register(check: Check) -> Check:
        assert rule_id not in RULES, f"two rules called {rule_id}"
        RULES[rule_id] = Rule(rule_id, severity, summary, check)
        return check

    return register
