"""What the flags of a command line mean to the engine, each value with where it came from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from vllm_tuning.engine.flags.model import Kind
from vllm_tuning.engine.flags.numbers import normalize
from vllm_tuning.engine.flags.scan import Occurrence, Scan, boolean_value, scan
from vllm_tuning.engine.flags.table import FlagTable
from vllm_tuning.engine.launch.forms import Launch
from vllm_tuning.engine.launch.text import UNKNOWN, Mark, Traced


class Source(StrEnum):
    """The kind of place that a value stands in."""

    ARGS = "Args"
    COMMAND = "Command"
    SHELL = "Shell"
    ENV = "Env"
    CONFIG_MAP = "ConfigMap"
    CONFIG_FILE = "ConfigFile"
    PROCESS = "Process"
    """The environment of the running process."""


@dataclass(frozen=True, slots=True)
class FlagValue:
    """The value that the engine will use for one flag."""

    value: str | None
    """Normalised: ``8k`` is ``8000``, switches are ``true`` / ``false``, list items are joined by
    a blank. ``None`` = set, but its value can't be known from the manifest."""
    source: Source
    where: str
    """For people, e.g. ``args[3]``, ``args[0]:118`` (offset in a script), ``env[SEQS]``."""
    raw: str | None = None
    """As written."""
    items: tuple[str, ...] = ()
    """The items of a list flag."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One launch, scanned with one flag table."""

    launch: Launch
    scan: Scan
    table: FlagTable

    def winners(self) -> dict[str, Occurrence]:
        """The occurrence of each flag that counts: the last; dotted JSON comes after plain."""
        ordered = sorted(self.scan.occurrences, key=lambda o: o.dotted is not None)
        return {o.name: o for o in ordered}

    def inline(self, occurrence: Occurrence) -> Traced | None:
        """The value behind ``=``, traced."""
        if occurrence.inline_at is None:
            return None
        return self.launch.words[occurrence.index].body[occurrence.inline_at :]

    def value_texts(self, occurrence: Occurrence) -> list[Traced]:
        """The value's words, traced."""
        inline = self.inline(occurrence)
        if inline is not None:
            return [inline]
        return [self.launch.words[i].body for i in occurrence.values]

    def opaque_after(self, index: int) -> str | None:
        """Name of something unknown behind word ``index`` that might hold flags too."""
        taken = {v for o in self.scan.occurrences for v in o.values}
        for at in range(index + 1, len(self.launch.words)):
            word = self.launch.words[at]
            if word.many and at not in taken:
                return next((m.variable for m in word.body.marks if m.variable), "?")
        return None


def read(launch: Launch, table: FlagTable) -> Reading:
    """Scan a launch with the flags of one release."""
    texts = [word.text for word in launch.words]
    barriers = frozenset(i for i, word in enumerate(launch.words) if word.many)
    return Reading(launch, scan(texts, table, barriers), table)


def flag_values(reading: Reading, container: Mapping[str, Any]) -> dict[str, FlagValue]:
    """The effective value of every flag on the command line, by canonical name."""
    values = {}
    for name, occurrence in reading.winners().items():
        texts = reading.value_texts(occurrence)
        mark = _origin(reading, occurrence, texts)
        value, raw = _value(reading, occurrence, texts)
        items = tuple(t.text for t in texts) if occurrence.flag and occurrence.flag.is_list else ()
        source, where = source_of(mark, container), describe(mark, container)
        values[name] = FlagValue(value, source, where, raw, items)
    return values


def _value(
    reading: Reading, occurrence: Occurrence, texts: Sequence[Traced]
) -> tuple[str | None, str | None]:
    flag = occurrence.flag
    if occurrence.dotted is not None:
        return _dotted_json(reading, occurrence.name), None
    if flag is not None and not flag.kind.takes_value:
        text = texts[0].text if texts else None
        return boolean_value(occurrence, text), text
    if any(not text.known for text in texts):
        return None, None
    if flag is not None and flag.is_list:
        raw = " ".join(text.text for text in texts)
        return raw, raw
    if not texts:
        return (None if occurrence.fault or flag is None else "true"), None
    kind = flag.kind if flag else Kind.STRING
    return normalize(texts[0].text, kind), texts[0].text


def _dotted_json(reading: Reading, name: str) -> str | None:
    """``--x.a.b 1 --x.c 2`` as the JSON that the parser makes of them."""
    merged: dict[str, Any] = {}
    for occurrence in reading.scan.occurrences:
        texts = reading.value_texts(occurrence)
        if occurrence.name != name or occurrence.dotted is None or not texts:
            continue
        if not texts[0].known:
            return None
        at = merged
        *parents, last = occurrence.dotted.removesuffix("+").split(".")
        for parent in parents:
            inner = at.setdefault(parent, {})
            if not isinstance(inner, dict):
                return None
            at = inner
        if occurrence.dotted.endswith("+"):
            at[last] = [*at.get(last, []), *texts[0].text.split(",")]
        else:
            at[last] = _json_or_text(texts[0].text)
    return json.dumps(merged)


def _json_or_text(text: str) -> Any:  # noqa: ANN401 - any JSON
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _origin(reading: Reading, occurrence: Occurrence, texts: Sequence[Traced]) -> Mark:
    for text in texts:
        if text.marks:
            return text.marks[0]
    word = reading.launch.words[occurrence.index]
    return word.body.marks[0] if word.body.marks else word.anchor


def source_of(mark: Mark, container: Mapping[str, Any]) -> Source:
    """The kind of place behind a mark; an unknown value counts as where its reference points."""
    if mark.path[0] == "env":
        return Source.ENV
    if mark.path[0] == "configMap":
        return Source.CONFIG_MAP
    if mark.path[0] == "environ":
        return Source.PROCESS
    if mark.variable is not None and _entry_named(container, mark.variable) is not None:
        return Source.ENV
    if mark.in_script:
        return Source.SHELL
    return Source.COMMAND if mark.path[0] == "command" else Source.ARGS


def describe(mark: Mark, container: Mapping[str, Any]) -> str:
    """A place for people: ``args[3]``, ``args[0]:118``, ``env[SEQS]``, ``configMap c/seqs``."""
    if mark.path[0] == "env":
        return f"env[{container['env'][mark.path[1]]['name']}]"
    if mark.path[0] == "configMap":
        return f"configMap {mark.path[1]}/{mark.path[2]}"
    if mark.path[0] == "environ":
        return f"environment variable {mark.path[1]}"
    if mark.variable is not None and _entry_named(container, mark.variable) is not None:
        return f"env[{mark.variable}]"
    place = f"{mark.path[0]}[{mark.path[1]}]"
    return f"{place}:{mark.start}" if mark.in_script else place


def _entry_named(container: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    entries = container.get("env") or ()
    return next((e for e in entries if isinstance(e, Mapping) and e.get("name") == name), None)


__all__ = ["UNKNOWN", "FlagValue", "Reading", "Source", "describe", "flag_values", "read"]
