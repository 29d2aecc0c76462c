"""The published JSON Schema of the report: what ``vllm-tuning report -o json`` promises."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from vllm_tuning.report.model import REPORT

SCHEMA_ID = "https://vllmtuning.io/schemas/report-v1.json"
"""A name, as JSON Schema has it: nothing is fetched from it."""
DESCRIPTION = """\
One run of vllm-tuning as a value: what was asked, measured, decided and found.
schemaVersion rises when a field is removed or changes its meaning; new fields and new words in an
enumeration come without notice, so readers ignore what they do not know. null means not known or
not set, never zero. Units stand in the names."""


class _AsWritten(GenerateJsonSchema):
    """Every field is always written, so each is required and no default is of interest.

    Nor are the titles that pydantic makes of field names.
    """

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401, ARG002 - pydantic's
        return False

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: ANN401, ARG002 - pydantic's
        return True

    def default_schema(self, schema: Any) -> dict[str, Any]:  # noqa: ANN401 - pydantic's
        return self.generate_inner(schema["schema"])


def report_schema() -> dict[str, Any]:
    """Return the schema of the report as it is written (draft 2020-12)."""
    generated = REPORT.json_schema(mode="serialization", schema_generator=_AsWritten)
    described = _for_readers_of_json(generated)
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "$id": SCHEMA_ID,
        **described,
        "title": "vllm-tuning report",
        "description": DESCRIPTION.replace("\n", " "),
    }


def _for_readers_of_json(node: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Say the models' descriptions without the marks of Python's docstrings."""
    match node:
        case dict():
            return {
                key: _plain(value)
                if key == "description" and isinstance(value, str)
                else _for_readers_of_json(value)
                for key, value in node.items()
            }
        case list():
            return [_for_readers_of_json(value) for value in node]
        case _:
            return node


def _plain(text: str) -> str:
    return " ".join(text.replace("``None``", "null").replace("``", "").split())
