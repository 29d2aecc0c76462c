"""Set flags in a manifest's text."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_tuning.engine.args import EngineArgs, check_changes, edit_args, read_args
from vllm_tuning.engine.flags.model import Kind
from vllm_tuning.engine.flags.numbers import normalize
from vllm_tuning.engine.flags.table import FlagTable
from vllm_tuning.engine.launch.edit import Value
from vllm_tuning.engine.launch.operations import json_patch
from vllm_tuning.engine.launch.read import Source
from vllm_tuning.engine.manifest.config_file import edit_config_file
from vllm_tuning.engine.manifest.document import Change, Stream
from vllm_tuning.engine.manifest.workloads import (
    Engine,
    Misfit,
    config_maps,
    find_config_map,
    find_engines,
)
from vllm_tuning.engine.outcome import Refusal


@dataclass(frozen=True, slots=True)
class ObjectPatch:
    """The JSON patch of one object."""

    api_version: str
    kind: str
    name: str
    patch: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class ManifestEdit:
    """A proven edit of a manifest."""

    before: str
    text: str
    patches: tuple[ObjectPatch, ...]

    @property
    def diff(self) -> str:
        """A unified diff; empty = nothing to do."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            self.text.splitlines(keepends=True),
            "before",
            "after",
        )
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def parse(text: str) -> Stream | Refusal:
    """Parse a manifest, and name an unrendered template as what it is."""
    stream = Stream.parse(text)
    if isinstance(stream, Refusal) and "{{" in text:
        return Refusal(
            "UnrenderedTemplate",
            "the file is a template; change the chart's values, or render it first (`helm"
            " template ... |`)",
        )
    return stream


def read_engine(engine: Engine, values: Sequence[Any], version: str | None = None) -> EngineArgs:
    """The flags of one engine of a stream."""
    return read_args(
        engine.container,
        version=version or engine.version,
        config_maps=config_maps(values),
        volumes=engine.volumes,
        managed=engine.managed,
    )


def choose(stream: Stream, container: str | None) -> Engine | Refusal:
    """The one engine to edit; ``container`` = its container's name or ``Kind/name``."""
    findings = find_engines(stream.values)
    engines = [f for f in findings if isinstance(f, Engine)]
    if container is not None:
        engines = [
            e for e in engines if container in (e.name, f"{e.kind}/{e.object_name}", e.object_name)
        ]
    if len(engines) == 1:
        return engines[0]
    if engines:
        titles = ", ".join(e.title for e in engines)
        return Refusal(
            "AmbiguousContainer", f"several engines fit: {titles}; name one with --container"
        )
    misfit = next((f for f in findings if isinstance(f, Misfit)), None)
    if misfit is not None:
        return misfit.refusal
    if container is not None and findings:
        return Refusal("ContainerNotFound", f"no engine is called `{container}`")
    return Refusal("NoEngineContainer", "the manifest starts vLLM nowhere; is this the right file?")


def set_flags(
    text: str,
    changes: Mapping[str, Value],
    *,
    container: str | None = None,
    version: str | None = None,
) -> ManifestEdit | Refusal:
    """Set flags in a manifest; everything else in the text stays, to the byte."""
    stream = parse(text)
    if isinstance(stream, Refusal):
        return stream
    engine = choose(stream, container)
    if isinstance(engine, Refusal):
        return engine
    args = read_engine(engine, stream.values, version)
    if args.refusal is not None:
        return args.refusal
    edits = _plan(stream, engine, args, changes)
    if isinstance(edits, Refusal):
        return edits
    changed = stream.edit(edits)
    if isinstance(changed, Refusal):
        return changed
    unproven = _unproven(changed, engine, changes, version)
    return unproven or ManifestEdit(text, changed.text, tuple(_patches(stream, edits)))


def _plan(
    stream: Stream, engine: Engine, args: EngineArgs, changes: Mapping[str, Value]
) -> list[Change] | Refusal:
    """Operations on the ConfigMap, on the container, or on both."""
    in_file, on_line = _route(args, changes)
    edits: list[Change] = []
    if in_file:
        operations = _config_map_edit(stream, args, in_file)
        if isinstance(operations, Refusal):
            return operations
        edits.append(operations)
    if on_line or not in_file:
        edit = edit_args(
            engine.container,
            on_line,
            version=args.version,
            config_maps=config_maps(stream.values),
            managed=engine.managed,
        )
        if isinstance(edit, Refusal):
            return edit
        edits.append((engine.document, (*engine.object_path, *engine.path), edit.operations))
    return edits


def _route(
    args: EngineArgs, changes: Mapping[str, Value]
) -> tuple[dict[str, Value], dict[str, Value]]:
    """Values of a known config file are changed there; all else on the command line, which wins."""
    in_file: dict[str, Value] = {}
    on_line: dict[str, Value] = {}
    for name, value in changes.items():
        current = args.get(name)
        flag = args.table.get(name)
        known = args.config_file is not None and args.config_file.text is not None
        fits = flag is not None and flag.kind.takes_value and isinstance(value, str)
        from_file = current is not None and current.source is Source.CONFIG_FILE
        (in_file if known and fits and from_file else on_line)[name] = value
    return in_file, on_line


def _config_map_edit(
    stream: Stream, args: EngineArgs, changes: Mapping[str, Value]
) -> Change | Refusal:
    checked = check_changes(changes, args.table)
    if isinstance(checked, Refusal):
        return checked
    config = args.config_file
    assert config is not None
    assert config.text is not None
    assert config.config_map is not None
    assert config.key is not None
    found = find_config_map(stream.values, config.config_map)
    if found is None:
        return Refusal(
            "ConfigMapNotFound", f"ConfigMap `{config.config_map}` is not in the manifest"
        )
    operations = edit_config_file(config.text, changes, args.table, ("data", config.key))
    return operations if isinstance(operations, Refusal) else (*found, operations)


def _unproven(
    stream: Stream, engine: Engine, changes: Mapping[str, Value], version: str | None
) -> Refusal | None:
    """Read the changed manifest as a whole once more: each flag must have its new value."""
    again = next(
        e
        for e in find_engines(stream.values)
        if isinstance(e, Engine)
        and (e.document, e.object_path, e.path)
        == (engine.document, engine.object_path, engine.path)
    )
    args = read_engine(again, stream.values, version)
    for name, value in changes.items():
        if not _reads_as(args, args.table, name, value):
            return Refusal(
                "NotProven", f"`{name}` would not read back as {value!r}; change it by hand"
            )
    return None


def _reads_as(args: EngineArgs, table: FlagTable, name: str, value: Value) -> bool:
    flag, got = table.get(name), args.get(name)
    if value is None or (flag is not None and flag.kind is Kind.SWITCH and value == "false"):
        return got is None
    if got is None or flag is None:
        return False
    if flag.is_list:
        return list(got.items) == ([value] if isinstance(value, str) else list(value))
    return got.value == (normalize(str(value), flag.kind) if flag.kind.takes_value else value)


def _patches(stream: Stream, edits: Sequence[Change]) -> list[ObjectPatch]:
    patches = []
    for document, path, operations in edits:
        if not operations:
            continue
        item = stream.values[document]
        below = list(path)
        while below and below[0] == "items":
            item = item["items"][below[1]]
            below = below[2:]
        fragment = item
        for key in below:
            fragment = fragment[key]
        prefix = "".join(f"/{str(k).replace('~', '~0').replace('/', '~1')}" for k in below)
        patches.append(
            ObjectPatch(
                str(item.get("apiVersion", "")),
                str(item["kind"]),
                str((item.get("metadata") or {}).get("name", "")),
                json_patch(fragment, operations, prefix),
            )
        )
    return patches


def patches_as_json(edit: ManifestEdit) -> str:
    """One object: its patch. Several: a list of objects with their patches."""
    if len(edit.patches) == 1:
        return json.dumps(edit.patches[0].patch, indent=2)
    return json.dumps(
        [
            {"apiVersion": p.api_version, "kind": p.kind, "name": p.name, "patch": p.patch}
            for p in edit.patches
        ],
        indent=2,
    )
