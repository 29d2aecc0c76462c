"""What every API model has in common: wire names, docstrings as field help, CEL rules.

A model is written once, in Python; ``crd`` turns it into the structural schema that the API server
enforces.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

GROUP: Final = "vllmtuning.io"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "vllmtuning.io/v1alpha1"

APPROVE_ANNOTATION = f"{GROUP}/approve"
"""On a VLLMTuning in mode Manual: the hash of the recommendation that may be applied."""

_ACRONYMS = {
    "id": "ID",
    "ids": "IDs",
    "sla": "SLA",
    "slo": "SLO",
    "slos": "SLOs",
    "uid": "UID",
    "gpu": "GPU",
}


def wire_name(name: str) -> str:
    """Turn ``run_id`` into ``runID``: camel case with Kubernetes' acronyms in capitals.

    A name's first word stays in lower case (``gpuSeconds``, ``uid``).
    """
    first, *rest = name.split("_")
    return first + "".join(_ACRONYMS.get(word, word.capitalize()) for word in rest)


def _pruned(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Leave empty lists out of maps: written, they would say nothing in ``kubectl describe``."""
    if isinstance(value, dict):
        return {name: _pruned(item) for name, item in value.items() if item != []}
    if isinstance(value, list):
        return [_pruned(item) for item in value]
    return value


class APIModel(BaseModel):
    """Base of all API types: frozen, camelCase on the wire, tolerant of newer CRDs' fields."""

    model_config = ConfigDict(
        alias_generator=wire_name,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )

    def to_object(self) -> dict[str, Any]:
        """Return the JSON object as the API server stores it, without empty lists."""
        body: dict[str, Any] = _pruned(
            self.model_dump(mode="json", by_alias=True, exclude_none=True)
        )
        return body

    @classmethod
    def from_object(cls, body: dict[str, Any]) -> Self:
        """Read an object of the API server.

        Raises ``pydantic.ValidationError`` if it was stored under a schema that this version does
        not understand.
        """
        return cls.model_validate(body)


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL expression over ``self`` that must hold, and what to write instead."""

    expression: str
    message: str
    field_path: str | None = None
    """Where the error is shown, relative to the object of the rule, e.g. ``.percentile``."""
    message_expression: str | None = None
    """CEL that yields the message with the offending value in it; ``message`` is its fallback."""

    def to_object(self) -> dict[str, str]:
        """Return the entry as it stands in a CRD."""
        body = {"rule": self.expression, "message": self.message}
        if self.message_expression is not None:
            body["messageExpression"] = self.message_expression
        if self.field_path is not None:
            body["fieldPath"] = self.field_path
        return body


def schema_extra(*rules: Rule, **keywords: object) -> dict[str, Any]:
    """Return schema additions of a model or field: CEL rules and ``x-kubernetes-`` keywords.

    Keywords are given without their prefix: ``list_type="map"`` becomes ``x-kubernetes-list-type``.
    """
    extra: dict[str, Any] = {
        f"x-kubernetes-{name.replace('_', '-')}": value for name, value in keywords.items()
    }
    if rules:
        extra["x-kubernetes-validations"] = [rule.to_object() for rule in rules]
    return extra


def _to_seconds(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Timestamp: TypeAlias = Annotated[datetime, PlainSerializer(_to_seconds, return_type=str)]
"""A moment, to the second, in UTC: what Kubernetes calls ``metav1.Time``."""

DecimalString: TypeAlias = Annotated[
    str, Field(max_length=24, pattern=r"^-?[0-9]+(\.[0-9]+)?$", examples=["12.5"])
]
"""A measured number. The API has no floating point fields (their text differs between
languages)."""

Seconds: TypeAlias = Annotated[int, Field(ge=1, le=2_592_000)]
"""At most thirty days."""

Message: TypeAlias = Annotated[str, Field(max_length=32768)]
ShortText: TypeAlias = Annotated[str, Field(max_length=1024)]
Name: TypeAlias = Annotated[str, Field(max_length=253)]


def decimal(value: float | None, digits: int = 3) -> str | None:
    """Write a measured number with at most ``digits`` decimals; ``None`` stays ``None``.

    >>> decimal(12.5), decimal(3.0), decimal(-0.0001)
    ('12.5', '3', '0')
    """
    if value is None:
        return None
    text = f"{value:.{digits}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
