"""What becomes of a pydantic model on its way to the API server, and what is refused."""

from typing import Annotated, Any

import pytest
from pydantic import ConfigDict, Field

from vllm_tuning.api.base import APIModel, Rule, schema_extra
from vllm_tuning.api.schema import SchemaError, structural_schema

Word = Annotated[str, Field(max_length=10)]


class Leaf(APIModel):
    """A leaf."""

    model_config = ConfigDict(json_schema_extra=schema_extra(Rule("self.size > 0", "be positive")))

    size: Annotated[int, Field(ge=0)] = 3
    """How large
    it is."""


class Tree(APIModel):
    """A tree."""

    leaf: Leaf
    """The field's own words."""
    maybe_leaf: Leaf | None = None
    """An optional one."""
    words: Annotated[tuple[Word, ...], Field(max_length=4)] = ()
    """Some words."""


def test_references_are_put_in_place_and_the_fields_description_wins() -> None:
    schema = structural_schema(Tree, defaults=True)

    leaf = schema["properties"]["leaf"]
    assert leaf["description"] == "The field's own words."
    assert leaf["properties"]["size"] == {
        "type": "integer",
        "minimum": 0,
        "default": 3,
        "description": "How large it is.",
    }
    assert leaf["x-kubernetes-validations"] == [{"rule": "self.size > 0", "message": "be positive"}]


def test_optional_means_absent_and_never_null() -> None:
    schema = structural_schema(Tree, defaults=True)

    assert schema["required"] == ["leaf"]
    maybe = schema["properties"]["maybeLeaf"]
    assert maybe["type"] == "object"
    assert "default" not in maybe
    assert "nullable" not in maybe


def test_a_status_gets_no_defaults_from_the_api_server() -> None:
    with_defaults = structural_schema(Tree, defaults=True)["properties"]
    without = structural_schema(Tree, defaults=False)["properties"]

    assert with_defaults["words"]["default"] == []
    assert "default" not in without["words"]
    assert "default" not in without["leaf"]["properties"]["size"]


def test_rules_of_a_field_are_added_to_those_of_its_type() -> None:
    class Forest(APIModel):
        """A forest."""

        leaf: Annotated[
            Leaf, Field(json_schema_extra=schema_extra(Rule("self.size < 9", "be small")))
        ]
        """One."""

    rules = structural_schema(Forest, defaults=True)["properties"]["leaf"][
        "x-kubernetes-validations"
    ]
    assert [rule["message"] for rule in rules] == ["be positive", "be small"]


def _model(annotation: Any, doc: str | None = "A field.", **extra: Any) -> type[APIModel]:
    field = Field(description=doc, **extra)
    return type(
        "Probe",
        (APIModel,),
        {"__annotations__": {"field": annotation}, "field": field, "__doc__": "A probe."},
    )


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (_model(int | bool), "union"),
        (_model(float), "floating point"),
        (_model(str), "maximum length"),
        (_model(tuple[Word, ...]), "maximum length"),
        (_model(dict[str, Word]), "maximum size"),
        (_model(Annotated[int, Field(gt=0)]), "exclusiveMinimum"),
        (_model(Annotated[frozenset[Word], Field(max_length=3)]), "uniqueItems"),
        (_model(tuple[Word, Word]), "prefixItems"),
        (_model(Annotated[int, Field(le=9)]), "needs a minimum"),
        (_model(Word, doc=None), "no description"),
        (_model(Any), "no type"),
        (
            _model(Word, json_schema_extra=schema_extra(list_type="atomic")),
            "only lists",
        ),
        (
            _model(
                Annotated[tuple[Leaf, ...], Field(max_length=2)],
                json_schema_extra=schema_extra(list_type="map", list_map_keys=["name"]),
            ),
            "no scalar field",
        ),
        (
            _model(
                Annotated[tuple[Tree, ...], Field(max_length=2)],
                json_schema_extra=schema_extra(list_type="map"),
            ),
            "names its keys",
        ),
        (
            _model(Word, json_schema_extra=schema_extra(Rule("self != ''", "two\nlines"))),
            "one line",
        ),
        (
            _model(Leaf, json_schema_extra=schema_extra(Rule("true", "m", field_path=".colour"))),
            "not there",
        ),
    ],
)
def test_what_kubernetes_would_refuse_is_refused_with_its_path(
    model: type[APIModel], words: str
) -> None:
    with pytest.raises(SchemaError, match=words) as caught:
        structural_schema(model, defaults=True)
    assert caught.value.path.startswith(".field")


def test_a_map_key_that_may_be_absent_is_refused() -> None:
    class Item(APIModel):
        """An item."""

        name: Word | None = None
        """Its name."""

    model = _model(
        Annotated[tuple[Item, ...], Field(max_length=2)],
        json_schema_extra=schema_extra(list_type="map", list_map_keys=["name"]),
    )
    with pytest.raises(SchemaError, match="required or have a default"):
        structural_schema(model, defaults=True)
