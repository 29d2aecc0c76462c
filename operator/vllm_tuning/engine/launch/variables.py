"""The container's environment, and ``$(VAR)`` as the kubelet expands it.

Rules (Kubernetes ``third_party/forked/golang/expansion``): ``$$`` is a literal ``$``; ``$(NAME)``
is replaced if the
container defines NAME and stays as it is if not; env values may refer to variables defined above
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vllm_tuning.engine.launch.text import UNKNOWN, Mark, Path, Traced


@dataclass(frozen=True, slots=True)
class Variable:
    """One entry of the container's environment."""

    name: str
    value: Traced | None
    """``None`` = not known from the manifest."""
    source: str
    """``literal``, ``ConfigMap x``, ``Secret x``, ``field``: for messages."""
    secret: bool = False
    literal: bool = False
    """Whether the entry has a literal ``value`` free of references: then it may be edited in
    place."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What a process in the container finds in its environment."""

    variables: Mapping[str, Variable] = field(default_factory=dict)
    open_ended: bool = False
    """Whether an ``envFrom`` adds names that are not known here."""

    def get(self, name: str) -> Variable | None:
        """The variable, or ``None`` if the manifest does not define it."""
        return self.variables.get(name)

    @classmethod
    def of_process(cls, env: Mapping[str, str]) -> Environment:
        """The environment of a running process: all known, nothing of it editable."""
        return cls(
            {
                name: Variable(name, Traced.plain(value, ("environ", name)), "process")
                for name, value in env.items()
            }
        )


def read_environment(
    container: Mapping[str, Any], config_maps: Mapping[str, Mapping[str, str]]
) -> Environment:
    """Resolve ``env`` and ``envFrom`` as far as the manifest and the given ConfigMaps tell."""
    variables: dict[str, Variable] = {}
    open_ended = False
    for source in container.get("envFrom") or ():
        name = ((source or {}).get("configMapRef") or {}).get("name")
        if name is None or name not in config_maps:
            open_ended = True
            continue
        prefix = source.get("prefix") or ""
        for key, text in config_maps[name].items():
            path: Path = ("configMap", name, key)
            variables[prefix + key] = Variable(
                prefix + key, Traced.plain(str(text), path), f"ConfigMap {name}"
            )
    for index, entry in enumerate(container.get("env") or ()):
        if isinstance(entry, Mapping) and isinstance(entry.get("name"), str):
            known = Environment(dict(variables), open_ended)
            variables[entry["name"]] = _entry(index, entry, known, config_maps)
    return Environment(variables, open_ended)


def _entry(
    index: int,
    entry: Mapping[str, Any],
    known: Environment,
    config_maps: Mapping[str, Mapping[str, str]],
) -> Variable:
    name = entry["name"]
    source = entry.get("valueFrom")
    if not isinstance(source, Mapping):
        text = entry.get("value")
        value = expand(text if isinstance(text, str) else "", ("env", index, "value"), known)
        literal = isinstance(text, str) and all(mark.reference is None for mark in value.marks)
        return Variable(name, value, "literal", literal=literal)
    if isinstance(ref := source.get("configMapKeyRef"), Mapping):
        data = config_maps.get(str(ref.get("name")), {})
        text = data.get(str(ref.get("key")))
        path = ("configMap", str(ref.get("name")), str(ref.get("key")))
        value_or_none = None if text is None else Traced.plain(text, path)
        return Variable(name, value_or_none, f"ConfigMap {ref.get('name')}")
    if isinstance(ref := source.get("secretKeyRef"), Mapping):
        return Variable(name, None, f"Secret {ref.get('name')}", secret=True)
    return Variable(name, None, "field")


def expand(text: str, path: Path, environment: Environment) -> Traced:
    """Expand ``$(VAR)``. An undefined name stays; an unknown value is `UNKNOWN`."""
    parts: list[Traced] = []
    plain = Traced.plain(text, path)
    start = at = 0
    while (at := text.find("$", at)) != -1:
        follower = text[at + 1 : at + 2]
        if follower == "$":
            parts += [plain[start:at], Traced("$", (Mark(path, at, at + 2),))]
            start = at = at + 2
        elif follower == "(" and (end := text.find(")", at)) != -1:
            name = text[at + 2 : end]
            variable = environment.get(name)
            if variable is not None or environment.open_ended:
                reference = Mark(path, at, end + 1, variable=name)
                parts += [plain[start:at], resolve(variable, reference)]
                start = end + 1
            at = end + 1
        else:
            at += 1
    parts.append(plain[start:])
    return Traced.join(parts)


def resolve(variable: Variable | None, reference: Mark) -> Traced:
    """The variable's text at the place of ``reference``; `UNKNOWN` if it is not known."""
    if variable is None or variable.value is None:
        return Traced(UNKNOWN, (reference,))
    return variable.value.via(reference)
