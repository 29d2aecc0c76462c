"""How reading or editing launch args can end other than well."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Refusal:
    """Nothing was changed, and why; ``message`` says what to change instead."""

    reason: str
    """CamelCase and stable, e.g. ``EvalCommand``, ``HelmTemplate``, ``AmbiguousContainer``."""
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"
