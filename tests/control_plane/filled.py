"""Objects that use every field of a schema, as far as its rules let one object use them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

JSON = dict[str, Any]

_SAMPLES = ("12.5", "chat", "Ready", "abc123")
"""Texts of which one fits each pattern of the CRDs."""
_RATE = {"metric": "ErrorRate", "maxPercent": 1}


def filled(schema: JSON, name: str = "") -> Any:
    """Return a value with every property, of the first of its words and its smallest numbers."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema["type"]:
        case "object":
            return _object(schema, name)
        case "array":
            return _array(filled(schema["items"], name))
        case "integer":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
        case _:
            return _text(schema, name)


def _object(schema: JSON, name: str) -> JSON:
    if "properties" not in schema:
        return {"team": filled(schema["additionalProperties"], name)}
    return {key: filled(part, key) for key, part in schema["properties"].items()}


def _array(item: Any) -> list[Any]:
    """An SLO has one bound, so a list of them has one of each kind."""
    if not isinstance(item, dict):
        return [item]
    if "maxPercent" in item:
        return [_latency(item), _RATE]
    if "slo" in item:
        return [item | {"slo": _latency(item["slo"])}, item | {"slo": _RATE}]
    return [item]


def _latency(slo: JSON) -> JSON:
    return {key: value for key, value in slo.items() if key != "maxPercent"}


def _text(schema: JSON, name: str) -> str:
    if schema.get("format") == "date-time":
        return "2026-01-02T03:04:05Z"
    if "pattern" not in schema:
        return f"some {name}"
    return next(text for text in _SAMPLES if re.search(schema["pattern"], text))


def with_arrival(value: Any, arrival: str) -> Any:
    """Leave out of every workload in it what does not go with an arrival."""
    if isinstance(value, list):
        return [with_arrival(item, arrival) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: with_arrival(item, arrival) for key, item in value.items()}
    if {"concurrency", "requestsPerMinute"} <= found.keys():
        found.pop("concurrency" if arrival == "Open" else "requestsPerMinute")
        found["arrival"] = arrival
    return found


def fields_of_schema(schema: JSON, path: str = "") -> Iterator[str]:
    """Yield the path of every field; items of a list are ``[]``."""
    for key, part in schema.get("properties", {}).items():
        yield (here := f"{path}.{key}")
        yield from fields_of_schema(part, here)
    yield from fields_of_schema(schema["items"], f"{path}[]") if "items" in schema else ()


def fields_of(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of every field of an object, written like those of a schema."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (here := f"{path}.{key}")
            yield from fields_of(item, here)
    elif isinstance(value, list):
        for item in value:
            yield from fields_of(item, f"{path}[]")


def without(value: Any, removed: frozenset[str], path: str = "") -> Any:
    """Leave out the fields at these paths."""
    if isinstance(value, list):
        return [without(item, removed, f"{path}[]") for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: without(item, removed, here)
        for key, item in value.items()
        if (here := f"{path}.{key}") not in removed
    }
