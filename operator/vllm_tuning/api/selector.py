"""Label selectors as everywhere in Kubernetes."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from vllm_tuning.api.base import APIModel, Rule, schema_extra

LabelText = Annotated[str, Field(max_length=63)]
LabelKey = Annotated[str, Field(max_length=317)]


class SelectorOperator(StrEnum):
    """How a requirement compares a label."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class SelectorRequirement(APIModel):
    """One requirement on a label."""

    model_config = ConfigDict(
        json_schema_extra=schema_extra(
            Rule(
                "self.operator in ['In', 'NotIn'] ? has(self.values) : !has(self.values)",
                "In and NotIn need values; Exists and DoesNotExist take none",
            )
        )
    )

    key: LabelKey
    """The label."""
    operator: SelectorOperator
    """In, NotIn, Exists or DoesNotExist."""
    values: Annotated[tuple[LabelText, ...] | None, Field(min_length=1, max_length=32)] = None
    """For In and NotIn."""


class LabelSelector(APIModel):
    """A label selector as everywhere in Kubernetes; an empty one matches all."""

    match_labels: Annotated[dict[str, LabelText] | None, Field(max_length=32)] = None
    """Labels with exactly these values."""
    match_expressions: Annotated[tuple[SelectorRequirement, ...] | None, Field(max_length=32)] = (
        None
    )
    """Further requirements."""
