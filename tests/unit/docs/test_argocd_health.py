"""Argo CD's view of a VLLMTuning, by running the shipped script in a real Lua."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lupa import LuaRuntime

SCRIPT = Path(__file__).resolve().parents[3] / "docs" / "gitops" / "health.lua"


def health(obj: dict[str, Any]) -> tuple[str, str]:
    """Run the script as Argo CD does: the object is the global ``obj``, the result a table."""
    lua = LuaRuntime()
    lua.globals().obj = lua.table_from(obj, recursive=True)
    result = lua.execute(SCRIPT.read_text())
    return result.status, result.message


def tuning(
    *conditions: tuple[str, str, str], seen: int = 1, suspend: bool = False
) -> dict[str, Any]:
    return {
        "metadata": {"generation": 1},
        "spec": {"suspend": suspend},
        "status": {
            "observedGeneration": seen,
            "conditions": [
                {"type": kind, "status": status, "reason": reason, "message": "why"}
                for kind, status, reason in conditions
            ],
        },
    }


READY = ("Ready", "True", "Ready")


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        ({"metadata": {"generation": 1}, "spec": {}}, "Progressing"),
        ({"metadata": {"generation": 1}, "spec": {}, "status": {}}, "Progressing"),
        (tuning(READY, seen=0), "Progressing"),
        (tuning(("Accepted", "True", "Accepted")), "Progressing"),
        (tuning(READY, ("Progressing", "True", "Search")), "Healthy"),
        (tuning(READY, ("Progressing", "False", "Complete")), "Healthy"),
        (tuning(READY), "Healthy"),
        (tuning(("Ready", "False", "NotFound"), ("Stalled", "True", "NotFound")), "Degraded"),
        (tuning(("Ready", "False", "TargetNotStable"), ("Stalled", "False", "No")), "Progressing"),
        (tuning(READY, ("Stalled", "True", "EngineFailed")), "Degraded"),
        (tuning(READY, ("Stalled", "False", "NotStalled")), "Healthy"),
        (tuning(READY, suspend=True), "Suspended"),
    ],
)
def test_health(obj: dict[str, Any], expected: str) -> None:
    status, message = health(obj)

    assert status == expected
    assert message


def test_the_message_is_the_stage_while_a_benchmark_runs() -> None:
    _, message = health(tuning(READY, ("Progressing", "True", "WaitingForGPU")))

    assert message == "WaitingForGPU: why"


def test_the_message_is_the_answer_afterwards() -> None:
    obj = tuning(READY, ("Progressing", "False", "Complete"))
    obj["status"]["answer"] = "Recommended: twice the load"

    assert health(obj) == ("Healthy", "Recommended: twice the load")


def test_a_condition_without_words_shows_its_reason() -> None:
    obj = tuning(READY)
    obj["status"]["conditions"][0]["message"] = ""

    assert health(obj) == ("Healthy", "Ready")
