"""Pydantic models to the structural schemas of Kubernetes.

Pydantic writes JSON Schema 2020-12, Kubernetes takes a subset of OpenAPI 3.0. A closed list of
keywords is translated and every other one refused: a schema is never thinned out silently. What
Kubernetes would refuse, or accept and then be slow or wrong about, is refused here with the path
and the reason, so that a mistake in a model shows in a unit test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

JSON = dict[str, Any]

_KEPT = frozenset(
    {
        "additionalProperties",
        "default",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "pattern",
        "properties",
        "required",
        "type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-validations",
    }
)
_DROPPED = frozenset({"title", "examples"})
_RULES = "x-kubernetes-validations"
_MESSAGE_LIMIT = 2048
"""Bytes of a CEL rule's message; the API server's own limit."""


class SchemaError(ValueError):
    """A model that can not become a structural schema, with the path of the offending field."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path or '.'}: {problem}")
        self.path = path


def structural_schema(model: type[BaseModel], *, defaults: bool) -> JSON:
    """Return the structural schema of a model, checked by ``check``.

    ``defaults=False`` leaves out Python's defaults: those of a status are for reading objects that
    lack a field, and must not be written by the API server.

    Raises ``SchemaError`` for what Kubernetes can not express or would refuse.
    """
    raw = model.model_json_schema(by_alias=True, mode="validation")
    definitions = raw.pop("$defs", {})
    schema = _translate(raw, definitions, "", defaults=defaults)
    check(schema)
    return schema


def _translate(raw: Mapping[str, Any], definitions: JSON, path: str, *, defaults: bool) -> JSON:
    node = _resolve(raw, definitions, path)
    if "const" in node:
        node["enum"] = [node.pop("const")]
    unknown = node.keys() - _KEPT - _DROPPED
    if unknown:
        raise SchemaError(path, f"no translation for {', '.join(sorted(unknown))}")
    default = node.pop("default", None)
    if defaults and default is not None:
        node["default"] = default
    out = {key: value for key, value in node.items() if key not in _DROPPED}
    if "description" in out:
        out["description"] = _flow(out["description"])
    if "properties" in out:
        out["properties"] = {
            name: _translate(child, definitions, f"{path}.{name}", defaults=defaults)
            for name, child in out["properties"].items()
        }
        if "required" in out:
            out["required"] = sorted(out["required"])
    if "items" in out:
        out["items"] = _translate(out["items"], definitions, f"{path}[]", defaults=defaults)
    if isinstance(out.get("additionalProperties"), dict):
        out["additionalProperties"] = _translate(
            out["additionalProperties"], definitions, f"{path}.*", defaults=defaults
        )
    return out


def _resolve(raw: Mapping[str, Any], definitions: JSON, path: str) -> JSON:
    """Put references and "or null" in place; what stands beside a reference wins over it."""
    node = dict(raw)
    if "anyOf" in node:
        choices = [choice for choice in node.pop("anyOf") if choice != {"type": "null"}]
        if len(choices) != 1:
            raise SchemaError(path, "a union of types has no structural schema")
        node = _merge(_resolve(choices[0], definitions, path), node)
    if "$ref" in node:
        name = node.pop("$ref").removeprefix("#/$defs/")
        node = _merge(_resolve(definitions[name], definitions, path), node)
    return node


def _merge(below: JSON, above: JSON) -> JSON:
    merged = below | above
    rules = [*below.get(_RULES, ()), *above.get(_RULES, ())]
    if rules:
        merged[_RULES] = rules
    return merged


def _flow(text: str) -> str:
    """Join the lines of each paragraph: ``kubectl explain`` wraps anew."""
    return "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))


def walk(schema: JSON, path: str = "") -> Iterator[tuple[str, JSON]]:
    """Yield every node with its path: ``[]`` is a list's item, ``*`` a map's value."""
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk(schema["additionalProperties"], f"{path}.*")


def check(schema: JSON) -> None:
    """Refuse what the API server refuses, and what it accepts but a user would suffer from.

    Raises ``SchemaError``.
    """
    for path, node in walk(schema):
        kind = node.get("type")
        if kind is None:
            raise SchemaError(path, "has no type")
        if kind == "number":
            raise SchemaError(path, "floating point: use an integer with its unit in the name")
        if kind == "object" and "properties" in node and "additionalProperties" in node:
            raise SchemaError(path, "properties and additionalProperties exclude each other")
        if kind == "object" and "properties" not in node and "additionalProperties" not in node:
            raise SchemaError(path, "an object without properties would lose all its fields")
        _check_bounds(path, node)
        _check_list(path, node)
        _check_rules(path, node)
        for name in node.get("required", ()):
            if name not in node["properties"]:
                raise SchemaError(path, f"requires {name}, which it does not have")
        if not path.endswith(("[]", "*")) and not node.get("description"):
            raise SchemaError(path, "has no description: add a docstring below the field")


def _check_bounds(path: str, node: JSON) -> None:
    """Bounds keep objects small and CEL's estimated cost below the API server's limit."""
    match node["type"]:
        case "string" if not {"maxLength", "enum", "format"} & node.keys():
            raise SchemaError(path, "a string needs a maximum length")
        case "array" if "maxItems" not in node:
            raise SchemaError(path, "a list needs a maximum length")
        case "object" if "additionalProperties" in node and "maxProperties" not in node:
            raise SchemaError(path, "a map needs a maximum size")
        case "integer" if "minimum" not in node and "maximum" in node:
            raise SchemaError(path, "an integer with a maximum needs a minimum")


def _check_list(path: str, node: JSON) -> None:
    list_type = node.get("x-kubernetes-list-type")
    if list_type is None:
        return
    if node["type"] != "array":
        raise SchemaError(path, "only lists have a list type")
    keys = node.get("x-kubernetes-list-map-keys", [])
    if (list_type == "map") != bool(keys):
        raise SchemaError(path, "a map list, and only that, names its keys")
    item = node["items"]
    for key in keys:
        child = item.get("properties", {}).get(key)
        if child is None or child["type"] not in {"string", "integer", "boolean"}:
            raise SchemaError(path, f"key {key} is no scalar field of the items")
        if key not in item.get("required", ()) and "default" not in child:
            raise SchemaError(path, f"key {key} must be required or have a default")


def _check_rules(path: str, node: JSON) -> None:
    for rule in node.get(_RULES, ()):
        message = rule.get("message", "")
        if not message or "\n" in message or len(message.encode()) > _MESSAGE_LIMIT:
            raise SchemaError(path, f"rule {rule['rule']!r} needs a message of one line")
        field = rule.get("fieldPath")
        if field is not None and field.removeprefix(".") not in node.get("properties", {}):
            raise SchemaError(path, f"rule {rule['rule']!r} points at {field}, which is not there")
        if path.endswith("[]") and "oldSelf" in rule["rule"]:
            raise SchemaError(path, "items of a list have no old self to compare with")
