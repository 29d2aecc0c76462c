"""Launch args of vLLM: read what the engine will use, edit it without harming a byte.

The façade of the room: callers need this module, `containers` and `defaults`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_tuning.engine.flags.checks import check_value
from vllm_tuning.engine.flags.model import Flag, Kind
from vllm_tuning.engine.flags.scan import Occurrence
from vllm_tuning.engine.flags.table import FlagTable, table_for
from vllm_tuning.engine.launch import operations as ops
from vllm_tuning.engine.launch.config_file import ConfigFile, find_config_file
from vllm_tuning.engine.launch.edit import Value, difference, plan
from vllm_tuning.engine.launch.entry import Program
from vllm_tuning.engine.launch.forms import Form, Launch, read_launch
from vllm_tuning.engine.launch.read import FlagValue, Reading, Source, describe, flag_values, read
from vllm_tuning.engine.launch.variables import Environment
from vllm_tuning.engine.outcome import Refusal


@dataclass(frozen=True)
class EngineArgs:
    """The flags of one container as its engine will use them."""

    form: Form | None
    """``None`` = the command line could not be read; see ``refusal``."""
    program: Program | None
    flags: Mapping[str, FlagValue]
    """By canonical name, e.g. ``max_num_seqs``; defaults are not in it."""
    model: FlagValue | None
    table: FlagTable
    version: str | None = None
    """The version that was asked for."""
    occurrences: tuple[Occurrence, ...] = ()
    config_file: ConfigFile | None = None
    unknown: str | None = None
    """Something unknown that may hold more flags, e.g. the name of an undefined variable."""
    refusal: Refusal | None = None
    reading: Reading | None = field(default=None, repr=False)

    def get(self, name: str) -> FlagValue | None:
        """The value of a flag by its canonical name or an alias; ``None`` = not set."""
        flag = self.table.get(name)
        return self.flags.get(flag.name if flag else name)


@dataclass(frozen=True, slots=True)
class Edit:
    """A proven edit: ``container`` reads as the new values, and everything else as before."""

    before: Mapping[str, Any]
    container: dict[str, Any]
    operations: tuple[ops.Operation, ...]

    def json_patch(self, prefix: str = "") -> list[dict[str, Any]]:
        """RFC 6902 operations; what changes is tested first, so that a raced patch fails whole.

        ``prefix`` points at the container, e.g. ``/spec/template/spec/containers/0``.
        """
        return ops.json_patch(self.before, self.operations, prefix)

    @property
    def diff(self) -> str:
        """A unified diff of the strings that changed, for people; empty = nothing to do."""
        return "\n".join(
            difflib.unified_diff(_lines(self.before), _lines(self.container), lineterm="", n=1)
        )


def read_args(
    container: Mapping[str, Any],
    *,
    version: str | None = None,
    config_maps: Mapping[str, Mapping[str, str]] | None = None,
    volumes: Sequence[Mapping[str, Any]] = (),
    env: Mapping[str, str] | None = None,
    managed: bool = False,
) -> EngineArgs:
    """Read a container's flags.

    ``config_maps`` (name to data) and the pod's ``volumes`` resolve ``envFrom``,
    ``configMapKeyRef`` and ``--config``
    files; ``env`` is the environment of a running process, if known; ``managed`` = a fragment
    (KServe, KubeAI) whose controller adds the program.
    """
    config_maps = config_maps or {}
    table = table_for(version)
    environment = None if env is None else Environment.of_process(env)
    launch = read_launch(container, config_maps, environment=environment, managed=managed)
    if isinstance(launch, Refusal):
        return EngineArgs(None, None, {}, None, table, version, refusal=launch)
    reading = read(launch, table)
    flags = flag_values(reading, container)
    config = find_config_file(reading, flags, container, volumes, config_maps)
    if config is not None:
        flags = {**config.values(table, launch.program), **flags}
    return EngineArgs(
        form=launch.form,
        program=launch.program,
        flags=flags,
        model=_model(reading, flags, container),
        table=table,
        version=version,
        occurrences=reading.scan.occurrences,
        config_file=config,
        unknown=reading.opaque_after(-1),
        reading=reading,
    )


def _model(
    reading: Reading, flags: Mapping[str, FlagValue], container: Mapping[str, Any]
) -> FlagValue | None:
    """``--model``, or the first positional of ``vllm serve`` (the API server module ignores it)."""
    if (named := flags.get("model")) is not None or not reading.scan.positionals:
        return named
    if reading.launch.program not in (Program.SERVE, Program.IMAGE):
        return None
    word = reading.launch.words[reading.scan.positionals[0]]
    mark = word.body.marks[0] if word.body.marks else word.anchor
    source = Source.SHELL if mark.in_script else Source.ARGS
    return FlagValue(
        word.text if word.known else None, source, describe(mark, container), word.text
    )


def edit_args(
    container: Mapping[str, Any],
    changes: Mapping[str, Value],
    *,
    version: str | None = None,
    config_maps: Mapping[str, Mapping[str, str]] | None = None,
    managed: bool = False,
) -> Edit | Refusal:
    """Set (or with ``None`` remove) flags by canonical name; booleans are ``"true"`` / ``"false"``.

    The winning occurrence is edited in its own style; a flag that is not there is added at the end.
    """
    launch = read_launch(container, config_maps or {}, managed=managed)
    return _edit(launch, container, changes, table_for(version), config_maps or {}, managed=managed)


def edit_argv(
    argv: Sequence[str],
    changes: Mapping[str, Value],
    *,
    version: str | None = None,
    env: Mapping[str, str] | None = None,
) -> list[str] | Refusal:
    """The same for the argv of a process, ``["sh", "-c", "vllm serve ..."]`` included.

    ``$(VAR)`` has been expanded by then. ``env`` is the process's environment; without it, shell
    variables are unknown.
    """
    container = {"command": list(argv)}
    environment = Environment(open_ended=True) if env is None else Environment.of_process(env)
    launch = read_launch(container, {}, environment=environment, kubelet=False)
    edit = _edit(launch, container, changes, table_for(version), {})
    return edit if isinstance(edit, Refusal) else list(edit.container["command"])


def _edit(  # noqa: PLR0911 - every step may refuse
    launch: Launch | Refusal,
    container: Mapping[str, Any],
    changes: Mapping[str, Value],
    table: FlagTable,
    config_maps: Mapping[str, Mapping[str, str]],
    *,
    managed: bool = False,
) -> Edit | Refusal:
    if isinstance(launch, Refusal):
        return launch
    if launch.program is Program.DYNAMO:
        return Refusal(
            "DynamoManaged",
            "Dynamo's own worker reads these args; change them in the DynamoGraphDeployment",
        )
    checked = check_changes(changes, table)
    if isinstance(checked, Refusal):
        return checked
    before = read(launch, table)
    operations = plan(before, container, checked)
    if isinstance(operations, Refusal):
        return operations
    changed = ops.apply(container, operations)
    again = read_launch(
        changed,
        config_maps,
        environment=None if launch.kubelet else launch.environment,
        kubelet=launch.kubelet,
        managed=managed,
    )
    if isinstance(again, Refusal):
        return Refusal("NotProven", f"the edited command line can't be read back: {again.message}")
    wrong = difference(before, read(again, table), container, changed, checked)
    if wrong is not None:
        return Refusal(
            "NotProven", f"the edit was dropped because {wrong}; change the flag by hand"
        )
    return Edit(container, changed, operations)


def check_changes(changes: Mapping[str, Value], table: FlagTable) -> dict[Flag, Value] | Refusal:
    """Resolve names and check values before anything is touched."""
    checked: dict[Flag, Value] = {}
    for name, value in changes.items():
        canonical = name.removeprefix("--").replace("-", "_")
        flag = table.get(canonical)
        if flag is None and value is None:
            # What a release does not know may still be taken out.
            flag = Flag(canonical, ("--" + canonical.replace("_", "-"),), Kind.STRING)
        if flag is None:
            return Refusal("UnknownFlag", f"vLLM {table.release} has no flag `{name}`")
        if (refusal := check_value(flag, value)) is not None:
            return refusal
        checked[flag] = value
    return checked


def _lines(container: Mapping[str, Any]) -> list[str]:
    lines = []
    for key in ("command", "args"):
        for index, text in enumerate(container.get(key) or ()):
            lines += [f"{key}: {line}" for line in text.splitlines() or [""]] or [f"{key}[{index}]"]
    for entry in container.get("env") or ():
        if isinstance(entry.get("value"), str):
            lines.append(f"env {entry.get('name')}: {entry['value']}")
    return lines


__all__ = [
    "Edit", "EngineArgs", "FlagValue", "Form", "Program", "Refusal", "Source",
    "edit_args", "edit_argv", "read_args",
]  # fmt: skip
