"""Change flags and nothing else: operations on exactly the strings that hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from vllm_tuning.engine.flags.model import Flag, Kind
from vllm_tuning.engine.flags.numbers import normalize
from vllm_tuning.engine.flags.scan import Fault, Occurrence, boolean_value
from vllm_tuning.engine.launch.insert import insert_flags
from vllm_tuning.engine.launch.operations import Operation, RemoveItems, ReplaceText
from vllm_tuning.engine.launch.read import FlagValue, Reading, flag_values
from vllm_tuning.engine.launch.replace import replace_range
from vllm_tuning.engine.launch.style import Style, style_of
from vllm_tuning.engine.outcome import Refusal

Value: TypeAlias = str | Sequence[str] | None
"""A flag's new value: text, the items of a list flag, or ``None`` to remove the flag."""


@dataclass(slots=True)
class _Editor:
    reading: Reading
    container: Mapping[str, Any]
    style: Style
    operations: list[Operation] = field(default_factory=list)
    additions: list[tuple[str, ...]] = field(default_factory=list)
    """Words of flags that are not on the command line yet."""

    def set(self, flag: Flag, value: Value) -> Refusal | None:
        """Plan one change."""
        occurrences = [o for o in self.reading.scan.occurrences if o.name == flag.name]
        refusal = self.unclear_line(flag) or self.unclear_flag(flag, occurrences)
        if refusal is not None:
            return refusal
        if value is None or (flag.kind is Kind.SWITCH and value == "false"):
            return self.remove(occurrences)
        if not occurrences:
            self.additions.append(self.style.words(flag, value))
            return None
        return self.change(flag, occurrences[-1], value)

    def change(self, flag: Flag, winner: Occurrence, value: str | Sequence[str]) -> Refusal | None:
        """Change the occurrence that counts."""
        if not flag.kind.takes_value:
            return self.set_boolean(flag, winner, str(value))
        items = [value] if isinstance(value, str) else list(value)
        if self.unchanged(flag, winner, items):
            return None
        if flag.is_list and winner.inline_at is None:
            return self.set_items(winner, items)
        return self.set_value(winner, " ".join(items))

    def unclear_line(self, flag: Flag) -> Refusal | None:
        """What makes the line as a whole unsafe for this flag."""
        for occurrence in self.reading.scan.occurrences:
            if occurrence.fault is Fault.AMBIGUOUS_FLAG and flag.long in occurrence.candidates:
                return Refusal(
                    "AmbiguousFlag",
                    f"`{occurrence.option}` may mean {', '.join(occurrence.candidates)};"
                    " write the name in full",
                )
        for index in self.reading.scan.positionals:
            text = self.reading.launch.words[index].text
            if text.startswith("--") and " " in text:
                return Refusal(
                    "FlagAndValueInOneItem",
                    f"`{text}` is one item and the engine does not read it as a flag;"
                    " make it two items",
                )
        return None

    def unclear_flag(self, flag: Flag, occurrences: Sequence[Occurrence]) -> Refusal | None:
        """What makes an edit of the flag's own occurrences unsafe."""
        if not occurrences:
            return None
        winner = occurrences[-1]
        opaque = self.reading.opaque_after(winner.index)
        if any(o.dotted is not None for o in occurrences):
            return Refusal("DottedJSON", f"`{flag.long}` is set by dotted keys; edit those keys")
        if winner.fault is Fault.MISSING_VALUE:
            return Refusal("MissingValue", f"`{winner.option}` has no value in the manifest")
        if opaque is not None:
            return Refusal(
                "LaterUnknown",
                f"`{opaque}` comes after `{winner.option}` and is not known from the manifest:"
                " it may set the flag again; define it in `env`, even if empty, or move the flag"
                " behind it",
            )
        return None

    def unchanged(self, flag: Flag, winner: Occurrence, items: Sequence[str]) -> bool:
        texts = self.reading.value_texts(winner)
        if any(not text.known for text in texts) or len(texts) != len(items):
            return False
        return all(
            normalize(old.text, flag.kind) == normalize(new, flag.kind)
            for old, new in zip(texts, items, strict=True)
        )

    def set_boolean(self, flag: Flag, winner: Occurrence, value: str) -> Refusal | None:
        texts = self.reading.value_texts(winner)
        current = boolean_value(winner, texts[0].text if texts else None)
        if current == value and winner.fault is None:
            return None
        word = self.reading.launch.words[winner.index]
        option = self.style.boolean_option(flag, value, underscores="_" in winner.option)
        end = len(word.body) if winner.inline_at is not None else len(winner.option)
        return self.replace(winner.index, 0, end, option) or self.drop(winner.values)

    def set_value(self, winner: Occurrence, text: str) -> Refusal | None:
        if winner.inline_at is not None:
            end = len(self.reading.launch.words[winner.index].body)
            return self.replace(winner.index, winner.inline_at, end, text)
        index = winner.values[0]
        return self.replace(index, 0, len(self.reading.launch.words[index].body), text)

    def set_items(self, winner: Occurrence, items: Sequence[str]) -> Refusal | None:
        """Replace a list item by item; one of another length is written anew at the end."""
        if len(items) != len(winner.values):
            refusal = self.remove([winner])
            assert winner.flag is not None
            self.additions.append(self.style.words(winner.flag, tuple(items)))
            return refusal
        for index, text in zip(winner.values, items, strict=True):
            word = self.reading.launch.words[index]
            if word.text != text and (refusal := self.replace(index, 0, len(word.body), text)):
                return refusal
        return None

    def replace(self, index: int, start: int, end: int, text: str) -> Refusal | None:
        word = self.reading.launch.words[index]
        operation = replace_range(self.reading.launch, self.container, word, (start, end), text)
        if isinstance(operation, Refusal):
            return operation
        self.operations.append(operation)
        return None

    def remove(self, occurrences: Sequence[Occurrence]) -> Refusal | None:
        for occurrence in occurrences:
            refusal = self.drop((occurrence.index, *occurrence.values))
            if refusal is not None:
                return refusal
        return None

    def drop(self, indexes: Sequence[int]) -> Refusal | None:
        """Take whole words out, with the gap before them."""
        words = self.reading.launch.words
        for index in indexes:
            anchor = words[index].anchor
            if sum(1 for word in words if word.anchor == anchor) > 1:
                return Refusal(
                    "SharedVariable",
                    f"`{words[index].text}` comes from a variable that holds more than this flag;"
                    " change that variable",
                )
            if not anchor.in_script:
                self.operations.append(RemoveItems(anchor.path[:1], int(anchor.path[1]), 1))
                continue
            before = words[index - 1] if index else self.reading.launch.head
            if before is None or before.anchor.top.path != anchor.path:
                return Refusal("SplitCommand", f"`{words[index].text}` can't be cut out safely")
            start = before.anchor.top.end
            self.operations.append(ReplaceText(anchor.path, start, anchor.end, ""))
        return None


def plan(
    reading: Reading, container: Mapping[str, Any], changes: Mapping[Flag, Value]
) -> tuple[Operation, ...] | Refusal:
    """The operations that make the changes. Values must have been checked against their flags."""
    editor = _Editor(reading, container, style_of(reading))
    for flag, value in changes.items():
        if (refusal := editor.set(flag, value)) is not None:
            return refusal
    if editor.additions:
        added = insert_flags(reading, editor.additions)
        if isinstance(added, Refusal):
            return added
        editor.operations.append(added)
    return tuple(editor.operations)


def difference(
    before: Reading,
    after: Reading,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    changes: Mapping[Flag, Value],
) -> str | None:
    """What is not as asked, or not as before; ``None`` = the edit is proven."""
    was, now = flag_values(before, old), flag_values(after, new)
    for flag, value in changes.items():
        got = now.pop(flag.name, None)
        was.pop(flag.name, None)
        if not _as_asked(flag, value, got):
            return f"{flag.name} would read as {got and got.value!r}, not as {value!r}"
    strangers = sorted(set(was) ^ set(now))
    if strangers:
        return f"{', '.join(strangers)} would change too"
    for name, old_value in was.items():
        if (old_value.value, old_value.items) != (now[name].value, now[name].items):
            return f"{name} would change too"
    if _rest(before) != _rest(after):
        return "other words of the command line would change"
    return None


def _as_asked(flag: Flag, value: Value, got: FlagValue | None) -> bool:
    if value is None or (flag.kind is Kind.SWITCH and value == "false"):
        return got is None
    if got is None:
        return False
    if flag.is_list:
        return got.items == ((value,) if isinstance(value, str) else tuple(value))
    wanted = normalize(str(value), flag.kind) if flag.kind.takes_value else value
    return got.value == wanted


def _rest(reading: Reading) -> list[str]:
    return [reading.launch.words[i].text for i in reading.scan.positionals]
