"""The parts of object metadata that the operator reads, and the standard condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from vllm_tuning.api.base import APIModel, Message, Timestamp, schema_extra


class ObjectMeta(APIModel):
    """``metadata`` of an object. In a CRD it is just ``type: object``: the API server knows it."""

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    generation: int = 0
    resource_version: str | None = None
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[Mapping[str, Any], ...] = ()


class Condition(APIModel):
    """The standard condition of Kubernetes (``metav1.Condition``)."""

    type: Annotated[
        str, Field(max_length=316, pattern=r"^[A-Za-z][A-Za-z0-9]*$", examples=["Ready"])
    ]
    """What the condition is about, e.g. Ready."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""
    reason: Annotated[
        str,
        Field(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ]
    """Stable word for programs; the list of all of them is in docs/reference/reasons.md."""
    message: Message = ""
    """Sentence for people: what was found, and what to do."""
    last_transition_time: Timestamp
    """When the status last changed."""
    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """metadata.generation of the object that this condition speaks about."""


Conditions = Annotated[
    tuple[Condition, ...],
    Field(max_length=32, json_schema_extra=schema_extra(list_type="map", list_map_keys=["type"])),
]
"""A list-map by type: several writers may own different conditions."""
