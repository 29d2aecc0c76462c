"""Replace a range of a word, in the source that the range came from, in the style it has there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from vllm_tuning.engine.launch.forms import Launch
from vllm_tuning.engine.launch.operations import ReplaceText, get_at
from vllm_tuning.engine.launch.text import UNKNOWN, Mark, Word
from vllm_tuning.engine.outcome import Refusal

_NAME: Final = re.compile(r"\w+")
_BARE: Final = re.compile(r"[\w@%+=:,./-]+", re.ASCII)
_QUOTES: Final = re.compile(r"""(?:\$?'|"|\\\n)*""")
"""What a script's word is written with and does not hold: quotes, line continuations."""


def replace_range(
    launch: Launch, container: Mapping[str, Any], word: Word, bounds: tuple[int, int], text: str
) -> ReplaceText | Refusal:
    """Make the characters ``[start, end)`` of ``word`` read ``text``.

    A literal env value or a variable of the script that is used nowhere else is edited itself; any
    other reference is replaced by the literal text.
    """
    start, end = bounds
    marks = word.body.marks[start:end]
    if (refusal := _unknowable(launch, word, start, end)) is not None:
        return refusal
    if not marks:
        return _fill_empty(launch, word, start, text)
    operation = _in_variable(launch, container, marks, text)
    if operation is not None:
        return operation
    if not _covers_references(launch, word, start, end):
        return Refusal(
            "SharedVariable",
            "the value comes from a variable that holds more than this value; change"
            f" `{marks[0].top.variable}` itself",
        )
    return _on_top(launch, container, word, bounds, text)


def _unknowable(launch: Launch, word: Word, start: int, end: int) -> Refusal | None:
    for char, mark in zip(word.body.text[start:end], word.body.marks[start:end], strict=True):
        if char != UNKNOWN:
            continue
        name = mark.top.variable or ""
        variable = launch.environment.get(name)
        if variable is not None and variable.secret:
            return Refusal(
                "SecretValue",
                f"the value comes from {variable.source}; write it as a plain value to have it"
                " tuned",
            )
        if not _NAME.fullmatch(name):
            return Refusal(
                "ComputedValue",
                f"the value is computed by `{name}` when the container starts; write a number"
                " there",
            )
    return None


def _fill_empty(launch: Launch, word: Word, start: int, text: str) -> ReplaceText:
    """An empty value: ``--x=`` or ``""``."""
    before = word.body.marks[start - 1].top if start else None
    if before is not None:
        quoted = _quote(text, before, launch)
        return ReplaceText(before.path, before.end, before.end, quoted)
    anchor = word.anchor.top
    bare = Mark(anchor.path, anchor.start, anchor.end, in_script=anchor.in_script)
    return ReplaceText(anchor.path, anchor.start, anchor.end, _quote(text, bare, launch))


def _in_variable(
    launch: Launch, container: Mapping[str, Any], marks: tuple[Mark, ...], text: str
) -> ReplaceText | None:
    """Edit the value where the variable is set, if nothing else reads it."""
    reference, path = marks[0].reference, marks[0].path
    if reference is None or any(m.reference != reference for m in marks):
        return None
    if path[0] not in ("env", "args", "command") or any(m.path != path for m in marks):
        return None
    names = {reference.variable or ""}
    if path[0] == "env":
        names.add(str(container["env"][path[1]]["name"]))
    if any(_uses(container, name) != 1 for name in names):
        return None
    contiguous = all(a.end == b.start for a, b in pairwise(marks))
    if not contiguous or len({m.region for m in marks}) > 1:
        return None
    unquoted = reference.in_script and reference.quote == ""
    if unquoted and not _BARE.fullmatch(text):
        return None
    new = _quote(text, marks[0], launch)
    return ReplaceText(path, marks[0].start, marks[-1].end, new)


def _uses(container: Mapping[str, Any], name: str) -> int:
    pattern = re.compile(rf"\$(?:[({{]?){re.escape(name)}\b")
    return sum(len(pattern.findall(text)) for text in _strings(container))


def _strings(container: Mapping[str, Any]) -> Iterator[str]:
    for key in ("command", "args"):
        yield from container.get(key) or ()
    for entry in container.get("env") or ():
        if isinstance(entry.get("value"), str):
            yield entry["value"]


def _covers_references(launch: Launch, word: Word, start: int, end: int) -> bool:
    """Whether every reference in the range stands for nothing outside it."""
    inside = {m.reference for m in word.body.marks[start:end] if m.reference is not None}
    outside = [*word.body.marks[:start], *word.body.marks[end:]]
    outside += [m for other in launch.words if other is not word for m in other.body.marks]
    return not any(m.reference in inside for m in outside)


def _on_top(
    launch: Launch, container: Mapping[str, Any], word: Word, bounds: tuple[int, int], text: str
) -> ReplaceText | Refusal:
    """Replace the range in args or command, references and all."""
    start, end = bounds
    tops = [m.top for m in word.body.marks[start:end]]
    first, last = tops[0], tops[-1]
    if any(top.path != first.path for top in tops):
        return Refusal(
            "SplitValue", "the value is pieced together from several places; write it in one"
        )
    regions = {top.region for top in tops}
    if len(regions) == 1:
        return ReplaceText(first.path, first.start, last.end, _quote(text, first, launch))
    begin = first.region[0] if first.region else first.start
    finish = last.region[1] if last.region else last.end
    whole = [t for t in (m.top for m in word.body.marks) if t.region in regions and t.region]
    if len(whole) != sum(1 for t in tops if t.region):
        if not _is_literal(container, word):
            return Refusal(
                "SplitValue", "the value shares a quoted string with other text; quote it apart"
            )
        begin, finish = word.anchor.start, word.anchor.end
        text = word.text[:start] + text + word.text[end:]
    bare = Mark(first.path, begin, finish, in_script=first.in_script)
    return ReplaceText(first.path, begin, finish, _quote(text, bare, launch))


def _is_literal(container: Mapping[str, Any], word: Word) -> bool:
    """Whether the word stands in one string as its text and quotes: then it may be quoted afresh.

    Marks alone do not tell: a reference to an empty text leaves none.
    """
    anchor, marks = word.anchor, word.body.marks
    if any(m.path != anchor.path or m.reference or m.variable for m in marks):
        return False
    places = [anchor.start, *(at for m in marks for at in (m.start, m.end)), anchor.end]
    script = str(get_at(container, anchor.path))
    gaps = zip(places[::2], places[1::2], strict=True)
    return places == sorted(places) and all(_QUOTES.fullmatch(script[a:b]) for a, b in gaps)


def _quote(text: str, context: Mark, launch: Launch) -> str:
    """The text as it must be written where ``context`` stands."""
    if context.in_script:
        text = quote_for_shell(text, context.quote)
    return escape_for_kubelet(text) if launch.kubelet else text


def quote_for_shell(text: str, quote: str = "") -> str:
    """The text as a shell reads it inside the given quotes (none, ``'``, ``"`` or ``$'``)."""
    if quote == "'":
        return text.replace("'", "'\\''")
    if quote == '"':
        return re.sub(r'([$`"\\])', r"\\\1", text)
    if quote == "$'":
        return text.replace("\\", "\\\\").replace("'", "\\'")
    return text if _BARE.fullmatch(text) else shlex.quote(text)


def escape_for_kubelet(text: str) -> str:
    """``$(`` and ``$$`` are the kubelet's: doubled, they reach the process as they are."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text
