"""Another SLA on a real API server: what is measured already costs no GPU second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.operator_process import Operator, a_tuning
from tests.played_node import PlayedNode, a_played_target
from tests.simulated_bench import measure
from vllm_tuning.tuning.run import Event, RunSpec

pytestmark = pytest.mark.control_plane

TTFT = {"metric": "TTFT", "percentile": 95, "maxMilliseconds": 200}
TPOT = {"metric": "TPOT", "percentile": 95, "maxMilliseconds": 25}
ROOMY = {"metric": "E2ELatency", "percentile": 50, "maxMilliseconds": 60_000}


def script(spec: RunSpec) -> Sequence[Event]:
    return measure(spec.problem, spec.previous)


def edit(operator: Operator, **spec: Any) -> None:
    operator.merge("vllmtunings", "llama", {"spec": spec})


def test_slos_are_judged_anew_and_only_what_is_missing_is_measured(operator: Operator) -> None:
    node = PlayedNode(operator, script)
    target = a_played_target("llama")
    workload = {"inputTokens": {"mean": 64}, "outputTokens": {"mean": 16}}
    operator.apply(target, a_tuning("llama", slos=[TTFT, TPOT], workload=workload))

    def answered(*slos: dict[str, Any]) -> dict[str, Any] | None:
        node.step()
        status: dict[str, Any] = operator.get("vllmtunings", "llama").get("status", {})
        found = status.get("recommendation", {})
        judged = "run" in status and status["run"]["id"] == found.get("runID")
        bounds = [o["slo"] for o in found.get("margins", ())]
        return status if judged and bounds == list(slos) else None

    first = operator.wait(lambda: answered(TTFT, TPOT), "the first answer", seconds=240)
    assert operator.jobs_made == 1

    edit(operator, slos=[TTFT, TPOT, ROOMY])
    second = operator.wait(lambda: answered(TTFT, TPOT, ROOMY), "the judgement")
    assert operator.jobs_made == 1
    assert second["run"]["judgedFrom"] == first["run"]["id"]
    assert second["usage"]["gpuSeconds"] == 0
    assert second["recommendation"]["limits"] == first["recommendation"]["limits"]
    assert len(operator.events("JudgedAnew")) == 1

    tighter = {**TPOT, "maxMilliseconds": 15}
    edit(operator, slos=[TTFT, tighter])
    operator.wait(lambda: answered(TTFT, tighter), "the rest measured", seconds=240)
    assert operator.jobs_made == 2
    assert len(node.specs[1].previous) > 0
    told = operator.events("JudgedAnew")
    assert any("first to be measured: seqs" in words for words in told)


def test_another_image_waits_until_the_last_run_has_cooled(operator: Operator) -> None:
    node = PlayedNode(operator, script)
    target = a_played_target("llama")
    workload = {"inputTokens": {"mean": 64}, "outputTokens": {"mean": 16}}
    cool = {"cooldownSeconds": 3600}
    operator.apply(
        target, a_tuning("llama", slos=[TTFT, TPOT], workload=workload, retunePolicy=cool)
    )

    def ended() -> bool:
        node.step()
        return bool(operator.get("vllmtunings", "llama").get("status", {}).get("history"))

    operator.wait(ended, "the first run", seconds=240)
    target["spec"]["template"]["spec"]["containers"][0]["image"] = "localhost/no-such-image:2"
    operator.apply(target)
    operator.wait_for("llama", "Progressing", "True", "CoolingDown")
    assert operator.jobs_made == 1

    edit(operator, retunePolicy=None)
    operator.wait(lambda: operator.jobs_made == 2, "the run that waited")
