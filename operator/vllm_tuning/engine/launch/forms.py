"""From a container to the words that the engine's parser gets, whatever their form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from vllm_tuning.engine.launch.entry import Entry, Program, find_entry, shell_script
from vllm_tuning.engine.launch.shell import read_script
from vllm_tuning.engine.launch.text import Mark, Path, Traced, Word
from vllm_tuning.engine.launch.variables import Environment, expand, read_environment
from vllm_tuning.engine.outcome import Refusal


class Form(StrEnum):
    """Where the flags stand."""

    COMMAND = "Command"
    """All in ``command``."""
    ARGS = "Args"
    """``command`` names the program, ``args`` holds flags."""
    IMAGE_ARGS = "ImageArgs"
    """``args`` only: the image's entrypoint is the program."""
    SHELL = "Shell"
    """A script behind ``sh -c``."""
    FORWARDED = "Forwarded"
    """A script that passes ``"$@"`` on: the flags are plain items behind it."""


@dataclass(frozen=True, slots=True)
class ListEnd:
    """New flags become items of this list, before ``index``."""

    path: Path
    index: int


@dataclass(frozen=True, slots=True)
class ScriptEnd:
    """New flags go into the script, behind ``tail``, set off by ``separator``."""

    tail: Mark
    separator: str


@dataclass(frozen=True, slots=True)
class Launch:
    """How a container starts the engine."""

    form: Form
    program: Program
    words: tuple[Word, ...]
    """The engine's own arguments, in order."""
    head: Word | None
    """The word before them (``serve``, the module's name); ``None`` = they are the first."""
    insertion: ListEnd | ScriptEnd
    environment: Environment
    ignored: tuple[Word, ...] = ()
    """Words behind a script that it does not pass on."""
    kubelet: bool = True
    """Whether ``$(VAR)`` is expanded in list items and env values; false for an argv taken from a
    process."""


_LISTS: Final = ("command", "args")
_GO_TEMPLATE: Final = re.compile(
    r"\{\{-?\s*(?:[.$]|/\*|(?:if|else|end|range|with|include|template|define|block|tpl|toYaml|default|printf|"
    r"required|lookup|quote|int|not|and|or|eq|ne)\b)"
)


def read_launch(
    container: Mapping[str, Any],
    config_maps: Mapping[str, Mapping[str, str]],
    *,
    environment: Environment | None = None,
    kubelet: bool = True,
    managed: bool = False,
) -> Launch | Refusal:
    """Read the container's command line.

    ``managed`` = a fragment whose controller adds the program itself (a KServe or KubeAI model).
    """
    if environment is None:
        environment = read_environment(container, config_maps)
    refusal = _malformed(container) or _template(container)
    if refusal is not None:
        return refusal
    words = [
        _word(text, (key, index), environment, kubelet=kubelet)
        for key in _LISTS
        for index, text in enumerate(container.get(key) or ())
    ]
    if managed:
        return _plain(container, words, Entry(Program.IMAGE, 0), environment, kubelet=kubelet)
    texts = [word.text for word in words]
    if (at := shell_script(texts)) is not None:
        return _script(container, words, at, environment, kubelet=kubelet)
    entry = find_entry(texts)
    if entry is None and not container.get("command") and words:
        entry = Entry(Program.IMAGE, 0)
    if entry is None:
        return _unreadable(texts)
    return _plain(container, words, entry, environment, kubelet=kubelet)


def _malformed(container: Mapping[str, Any]) -> Refusal | None:
    for key in _LISTS:
        items = container.get(key) or []
        if not isinstance(items, list | tuple) or any(not isinstance(i, str) for i in items):
            return Refusal(
                "MalformedContainer",
                f"`{key}` must be a list of strings; quote numbers and booleans",
            )
    return None


def _template(container: Mapping[str, Any]) -> Refusal | None:
    """Unrendered Go or Helm templates; Jinja (``{%``) in a value is no template of the manifest."""
    for text in (text for key in _LISTS for text in container.get(key) or ()):
        if "{%" not in text and (match := _GO_TEMPLATE.search(text)):
            start = match.start()
            return Refusal(
                "UnrenderedTemplate",
                f"`{text[start : start + 40]}` is a template; change the chart's values or the"
                " object that renders it, or give the rendered manifest",
            )
    return None


def _word(text: str, path: Path, environment: Environment, *, kubelet: bool) -> Word:
    body = expand(text, path, environment) if kubelet else Traced.plain(text, path)
    return Word(body, Mark(path, 0, len(text)))


def _plain(
    container: Mapping[str, Any],
    words: Sequence[Word],
    entry: Entry,
    environment: Environment,
    *,
    kubelet: bool,
) -> Launch:
    own = tuple(words[entry.first :])
    has_args = bool(container.get("args")) or not container.get("command")
    form = Form.COMMAND if not has_args else Form.ARGS
    if entry.program is Program.IMAGE:
        form = Form.IMAGE_ARGS
    key = "args" if has_args else "command"
    end = ListEnd((key,), len(container.get(key) or ()))
    head = words[entry.first - 1] if entry.first else None
    return Launch(form, entry.program, own, head, end, environment, kubelet=kubelet)


def _script(
    container: Mapping[str, Any],
    words: Sequence[Word],
    at: int,
    environment: Environment,
    *,
    kubelet: bool,
) -> Launch | Refusal:
    arguments = words[at + 2 :]  # words[at + 1] is $0
    found = read_script(words[at].body, environment, arguments)
    if isinstance(found, Refusal):
        return found
    own = found.words[found.entry.first :]
    head = found.words[found.entry.first - 1]
    forwarded = found.forwards and len(arguments) > 0 and any(word in own for word in arguments)
    if forwarded:
        key = str(arguments[-1].anchor.path[0])
        end: ListEnd | ScriptEnd = ListEnd((key,), len(container[key]))
        form = Form.FORWARDED
    else:
        end, form = ScriptEnd(found.tail, found.separator), Form.SHELL
    ignored = () if forwarded else tuple(words[at + 1 :])
    return Launch(form, found.entry.program, own, head, end, environment, ignored, kubelet)


def _unreadable(texts: Sequence[str]) -> Refusal:
    line = " ".join(texts)
    if re.search(r"\bray\b.*\bstart\b", line) or "serve run" in line:
        return Refusal(
            "RayManaged",
            "Ray starts the engine; change the engine arguments in the Ray Serve config"
            " (serveConfigV2)",
        )
    if not texts:
        return Refusal(
            "NoArguments",
            "the container has neither command nor args; write the engine's args into the manifest",
        )
    return Refusal(
        "UnknownEntrypoint",
        f"`{line[:60]}` is not known to start vLLM's server; call `vllm serve` in command or args",
    )
