"""The life of one tuning, from its first look to the patched target that serves."""

from __future__ import annotations

from typing import Any

from tests.operator_process import Operator, a_tuning
from tests.played_node import PlayedNode, a_played_target
from tests.unit.reconcile.bench_events import BETTER

ARGS = ["/model", "--max-num-seqs=4", "--max-num-batched-tokens=2048", "--port=8000"]
NEW_ARGS = ["/model", "--max-num-seqs=64", "--max-num-batched-tokens=4096", "--port=8000"]


def begin(operator: Operator, **policy: Any) -> None:
    """Have a played target tuned and patched."""
    target = a_played_target("llama", args=ARGS)
    operator.apply(target, a_tuning("llama", updatePolicy={"mode": "Auto", **policy}))


def follow(operator: Operator, node: PlayedNode) -> str:
    """Play its pods until the recommendation serves; returns the words on that."""

    def met() -> str | None:
        node.step()
        found = operator.conditions("llama").get("Succeeded", ("", "", ""))
        return found[2] if found[:2] == ("True", "RolledOut") else None

    words: str = operator.wait(met, "the recommendation to serve", seconds=240)
    return words


def check_applied(operator: Operator) -> None:
    """The end state, whatever happened on the way."""
    assert operator.args_of("llama") == NEW_ARGS
    accepted = operator.proxy.accepted
    assert len([w for w in accepted if w[0] == "PATCH" and "/deployments/" in w[1]]) == 1
    assert operator.jobs_made == 1
    trials = operator.items("vllmtrials")
    assert sorted(t["spec"]["purpose"] for t in trials) == [
        "Baseline",
        "Calibrate",
        "Confirm",
        "Search",
    ]
    assert all(t["status"]["conditions"][0]["status"] == "True" for t in trials)
    status = operator.get("vllmtunings", "llama")["status"]
    assert status["recommendation"]["limits"]["maxNumSeqs"] == BETTER.max_num_seqs
    assert status["applied"]["state"] == "Applied"
    assert status["sla"] == "Met"
    assert len(operator.events("Applied")) == 2  # on the tuning and on the target, each once
