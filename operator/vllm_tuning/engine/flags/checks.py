"""Whether the engine's parser would accept a value."""

from __future__ import annotations

import json
from collections.abc import Sequence

from vllm_tuning.engine.flags.model import Flag, Kind
from vllm_tuning.engine.flags.numbers import normalize
from vllm_tuning.engine.outcome import Refusal


def check_value(flag: Flag, value: str | Sequence[str] | None) -> Refusal | None:
    """``None`` = fine (``None`` as a value means removal, which always is)."""
    if value is None:
        return None
    items = [value] if isinstance(value, str) else list(value)
    expected = _fault(flag, items)
    if expected is None:
        return None
    return Refusal("BadValue", f"{flag.name} can't be {' '.join(items)!r}: {expected}")


def _fault(flag: Flag, items: Sequence[str]) -> str | None:
    """What the flag takes instead of these items; ``None`` = they are fine."""
    if not flag.kind.takes_value:
        return None if items in (["true"], ["false"]) else 'it takes "true" or "false"'
    if not items or (len(items) > 1 and not flag.is_list):
        return "it takes at least one value" if flag.is_list else "it takes one value"
    return next((fault for item in items if (fault := _item_fault(flag, item))), None)


def _item_fault(flag: Flag, item: str) -> str | None:
    if flag.choices and item not in flag.choices:
        return f"it takes one of {', '.join(flag.choices)}"
    if normalize(item, flag.kind) is None:
        return f"it takes {_WORDS[flag.kind]}"
    if flag.kind is Kind.JSON:
        try:
            json.loads(item)
        except json.JSONDecodeError:
            return "it takes JSON"
    return None


_WORDS = {
    Kind.INT: "a whole number",
    Kind.HUMAN_INT: "a whole number such as 8192, 8K (8192) or 8k (8000)",
    Kind.HUMAN_INT_OR_AUTO: "a whole number such as 8192, 8K (8192) or 8k (8000), or auto",
    Kind.FLOAT: "a number",
}
