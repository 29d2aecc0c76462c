"""The file behind ``--config``: flags as YAML, merged in front of the command line, which wins.

Source: ``FlexibleArgumentParser._pull_args_from_config`` and ``load_config_file`` of vLLM 0.8.5 to
0.33.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from vllm_tuning.engine.flags.model import Kind
from vllm_tuning.engine.flags.numbers import normalize
from vllm_tuning.engine.flags.scan import dashed
from vllm_tuning.engine.flags.table import FlagTable, Spelling
from vllm_tuning.engine.flags.version import at_least
from vllm_tuning.engine.launch.entry import Program
from vllm_tuning.engine.launch.read import FlagValue, Reading, Source

NESTED_SINCE = "0.16.0"
"""First release that turns nested maps into JSON."""
NO_FORM_SINCE = "0.28.0"
"""First release whose API server reads ``key: false`` as ``--no-key``."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A config file as the container sees it."""

    path: str
    """Path in the container."""
    config_map: str | None = None
    """The ConfigMap it is mounted from; ``None`` = not known."""
    key: str | None = None
    text: str | None = None
    """``None`` = not known from the manifest."""

    def values(self, table: FlagTable, program: Program) -> dict[str, FlagValue]:
        """The flags that the engine takes from the file; entries that it drops are left out."""
        values = {}
        for key, content in self.entries().items():
            match = table.match(dashed(f"--{key}"))
            spelling = match if isinstance(match, Spelling) else None
            text = _as_words(key, content, spelling, program, table)
            if text is None:
                continue
            name = spelling.flag.name if spelling else key.replace("-", "_")
            kind = spelling.flag.kind if spelling else Kind.STRING
            if not kind.takes_value and isinstance(content, bool):
                value: str | None = "false" if spelling and spelling.negative else "true"
                value = "false" if content is False else value
            else:
                value = normalize(text, kind)
            items = tuple(str(i) for i in content) if isinstance(content, list) else ()
            values[name] = FlagValue(value, Source.CONFIG_FILE, f"{self.path}:{key}", text, items)
        return values

    def entries(self) -> dict[str, Any]:
        """The file's keys and values; empty if unknown or not a map."""
        if self.text is None:
            return {}
        try:
            content = YAML(typ="safe", pure=True).load(self.text)
        except YAMLError:
            return {}
        return {str(k): v for k, v in content.items()} if isinstance(content, dict) else {}


def _as_words(
    key: str, content: object, spelling: Spelling | None, program: Program, table: FlagTable
) -> str | None:
    """The value as it would stand on the command line; ``None`` = the engine drops the entry."""
    if content is True:
        return "true"
    if content is False:
        kept = program is Program.API_SERVER and at_least(table.release, NO_FORM_SINCE)
        has_no_form = spelling is not None and bool(spelling.flag.negatives) and "_" not in key
        return "false" if kept and has_no_form else None
    if isinstance(content, list):
        return " ".join(str(item) for item in content) if content else None
    if isinstance(content, dict):
        return json.dumps(content) if at_least(table.release, NESTED_SINCE) else str(content)
    return str(content)


def find_config_file(
    reading: Reading,
    flags: Mapping[str, FlagValue],
    container: Mapping[str, Any],
    volumes: Sequence[Mapping[str, Any]],
    config_maps: Mapping[str, Mapping[str, str]],
) -> ConfigFile | None:
    """The file that ``--config FILE`` names; the engine ignores ``--config=FILE``."""
    given = [o for o in reading.scan.occurrences if o.option == "--config" and o.inline_at is None]
    value = flags.get("config")
    if not given or value is None or value.value is None:
        return None
    return locate(value.value, container, volumes, config_maps)


def locate(
    path: str,
    container: Mapping[str, Any],
    volumes: Sequence[Mapping[str, Any]],
    config_maps: Mapping[str, Mapping[str, str]],
) -> ConfigFile:
    """Follow a path in the container through its mounts to a key of a ConfigMap."""
    by_name = {v.get("name"): v for v in volumes if isinstance(v, Mapping)}
    for mount in container.get("volumeMounts") or ():
        base = str(mount.get("mountPath", "")).rstrip("/")
        if path != base and not path.startswith(base + "/"):
            continue
        source = (by_name.get(mount.get("name")) or {}).get("configMap")
        if not isinstance(source, Mapping):
            continue
        name = str(source.get("name"))
        inner = "/".join(p for p in (mount.get("subPath"), path[len(base) + 1 :]) if p)
        items = {str(i.get("path")): str(i.get("key")) for i in source.get("items") or ()}
        key = items.get(inner, inner)
        return ConfigFile(path, name, key, (config_maps.get(name) or {}).get(key))
    return ConfigFile(path)
