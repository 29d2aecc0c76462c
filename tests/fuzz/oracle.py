"""Independent checks of an edit: bytes, a real shell, vLLM's own parser, YAML, broken input."""

from __future__ import annotations

import copy
import io
import json
import random
from collections import Counter

from ruamel.yaml import YAML

from tests.launch_generator import Line
from vllm_tuning.engine.args import Edit, edit_args, read_args
from vllm_tuning.engine.flags.model import Kind
from vllm_tuning.engine.flags.numbers import normalize
from vllm_tuning.engine.flags.table import table_for
from vllm_tuning.engine.manifest.edit import set_flags
from vllm_tuning.engine.outcome import Refusal

JUNK = (
    "'", '"', "\\", "$", "$(", "${", "`", "(", ")", "{", "}", "<<EOF", "\n", ";", "&&", "|", "#",
    "",
    "{{ .Values.x }}", "$(id)", "\x00", "é", "--", "-", "=", " ", "\ufffc", "*", "eval ",
)  # fmt: skip
"""What is thrown into a command line to break it."""


def engine_words(container: dict, version: str) -> list[str]:
    """The engine's words, by the reader."""
    args = read_args(container, version=version)
    assert args.refusal is None, args.refusal
    return [word.text for word in args.reading.launch.words]


def check_bytes(line: Line, edit: Edit, wanted: dict) -> None:
    """Only words of the changed flags differ."""
    args = read_args(line.container, version=line.version)
    touched: set[int] = set()
    for occurrence in args.occurrences:
        if occurrence.name in wanted:
            touched |= {occurrence.index, *occurrence.values}
    kept = [w for i, w in enumerate(line.words) if i not in touched]
    after = read_args(edit.container, version=line.version)
    again: set[int] = set()
    for occurrence in after.occurrences:
        if occurrence.name in wanted:
            again |= {occurrence.index, *occurrence.values}
    now = [w.text for i, w in enumerate(after.reading.launch.words) if i not in again]
    assert now == kept, f"{kept} became {now}"
    for operation in edit.json_patch("/c"):
        assert operation["op"] in ("test", "add", "replace", "remove")


def check_shell(container: dict, version: str, stub) -> None:
    """A real shell passes the words that the reader says."""
    argv = stub.run_container(container, stub.literal_env(container))
    assert argv is not None, "the engine was not started"
    words = engine_words(container, version)
    assert argv[2:] == words, f"{words} were read, {argv} were passed"


def check_parser(parser, line: Line, wanted: dict, counts: Counter) -> None:
    """vLLM's own parser: every value as before, but the changed ones as asked."""
    before = parser.parse(line.words)
    edit = edit_args(line.container, wanted, version=line.version)
    if before is None:
        counts["parser refused the line itself"] += 1
        return
    check_reading(before, line)
    if isinstance(edit, Refusal):
        counts["parser: edit refused"] += 1
        return
    words = engine_words(edit.container, line.version)
    after = parser.parse(words)
    assert after is not None, f"the parser refuses the edited line: {words}"
    table = table_for(line.version)
    for name, value in wanted.items():
        old, new = before.pop(name), after.pop(name)
        flag = table.get(name)
        if value is None:
            assert new in (None, default(parser, name)), (
                f"{name} = {new!r} after its removal (was {old!r})"
            )
        elif flag.is_list:
            assert new == [value], f"{name} = {new!r}"
        elif not flag.kind.takes_value:
            assert str(new).lower() == value or (value == "false" and not new), f"{name} = {new!r}"
        else:
            assert str(new) == normalize(value, flag.kind), f"{name} = {new!r}, not {value!r}"
    assert after == before, {
        k: (before.get(k), after.get(k)) for k in before if before[k] != after.get(k)
    }
    counts["judged by vLLM's own parser"] += 1


def check_reading(before: dict, line: Line) -> None:
    """The reader's values are the parser's."""
    read = read_args(line.container, version=line.version)
    for name, flag in read.flags.items():
        kind = read.table.get(name).kind
        if name not in before or read.table.get(name).is_list or kind is Kind.JSON:
            continue
        if not kind.takes_value:
            assert str(before[name]).lower() == flag.value, f"{name}: {before[name]}, {flag.value}"
        elif isinstance(before[name], str | int | float):
            assert str(before[name]) == flag.value, f"{name}: {before[name]!r}, not {flag.value!r}"


_DEFAULTS: dict[int, dict] = {}


def default(parser, name: str):
    """The parser's default of a flag."""
    if id(parser) not in _DEFAULTS:
        _DEFAULTS[id(parser)] = parser.parse(["m"])
    return _DEFAULTS[id(parser)][name]


def check_yaml(rng: random.Random, line: Line, wanted: dict, edit: Edit, counts: Counter) -> None:
    """The same edit in a YAML text: same data, and nothing but the container differs."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [line.container]},
    }
    text = dumped(rng, pod)
    if YAML(typ="safe", pure=True).load(text) != pod:
        counts["YAML dumped wrongly by the library"] += 1
        return
    changed = set_flags(text, wanted, version=line.version)
    if isinstance(changed, Refusal):
        assert changed.reason in ("ScalarStyle", "UntraceableScalar", "ListLayout"), changed
        counts[f"YAML refused {changed.reason}"] += 1
        return
    pod["spec"]["containers"] = [edit.container]
    assert YAML(typ="safe", pure=True).load(changed.text) == pod
    head = "# a comment that stays\n"
    assert changed.text.startswith(head)
    counts["edited in YAML"] += 1


def dumped(rng: random.Random, pod: dict) -> str:
    """The object as YAML in a random style, or as JSON."""
    head = "# a comment that stays\n"
    if rng.random() < 0.3:
        return head + json.dumps(pod, indent=rng.choice([None, 2]), ensure_ascii=rng.random() < 0.5)
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = rng.choice([None, False, True])
    yaml.width = rng.choice([40, 80, 4000])
    yaml.default_style = rng.choice([None, None, '"', "'", "|"])
    out = io.StringIO()
    yaml.dump(pod, out)
    return head + out.getvalue()


def check_mutation(rng: random.Random, line: Line, wanted: dict, counts: Counter) -> None:
    """Broken input: any outcome but a crash or an unproven edit."""
    container = copy.deepcopy(line.container)
    key = rng.choice([k for k in ("command", "args") if container.get(k)])
    items = container[key]
    at = rng.randrange(len(items))
    text = items[at]
    position = rng.randrange(len(text) + 1)
    junk = rng.choice(JUNK)
    items[at] = text[:position] + junk + text[position + rng.randint(0, 3) :]
    edit = edit_args(container, wanted, version=line.version)
    if isinstance(edit, Refusal):
        counts["broken: refused"] += 1
        return
    counts["broken: edited"] += 1
    table = table_for(line.version)
    flags = read_args(edit.container, version=line.version).flags
    for name, value in wanted.items():
        flag = table.get(name)
        got = flags.get(name)
        if value is None:
            assert got is None
        elif flag.is_list:
            assert got.items == (value,)
        else:
            expected = normalize(value, flag.kind) if flag.kind.takes_value else value
            assert (got.value if got else None) == expected or (got is None and value == "false")
