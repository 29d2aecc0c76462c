"""Each outcome as users and their tools see it: kubectl wait, Flux (kstatus), Argo CD, describe.

The objects are the operator's own, of tunings that were brought to that outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.control_plane.fleet import ARGS, NEW_ARGS, Tenant, a_server, given
from tests.operator_process import a_tuning
from tests.unit.docs.test_argocd_health import health
from tests.unit.reconcile.bench_events import (
    CURRENT,
    a_probe,
    probe_ended,
    run_ended,
    run_started,
    start_ended,
)
from vllm_tuning.tuning.model import Ending, Purpose, Verdict
from vllm_tuning.tuning.run import Event, RunSpec

pytestmark = pytest.mark.control_plane

DESCRIBED_LINES = 260
"""kubectl describe of an applied tuning, spec, provenance and events included."""


def kstatus(obj: dict[str, Any]) -> str:
    """The rules of sigs.k8s.io/cli-utils/pkg/kstatus for kinds that it does not know."""
    metadata, status = obj["metadata"], obj.get("status", {})
    if metadata.get("deletionTimestamp"):
        return "Terminating"
    if status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return "InProgress"
    states = {c["type"]: c["status"] for c in status.get("conditions", ())}
    if states.get("Reconciling") == "True":
        return "InProgress"
    if states.get("Stalled") == "True":
        return "Failed"
    return "Current" if states.get("Ready", "True") == "True" else "InProgress"


def ending(found: Ending) -> Callable[[RunSpec], Sequence[Event]]:
    """A bench that measures the current limits and then ends like this."""
    verdict = Verdict.PASS if found is Ending.NO_IMPROVEMENT else Verdict.FAIL
    events = (
        run_started(),
        start_ended(1),
        probe_ended(2, a_probe("p1", CURRENT, Purpose.BASELINE), verdict),
        run_ended(3, found),
    )
    return lambda _: events


def begin(
    user: Tenant,
    found: Ending = Ending.RECOMMENDED,
    *,
    hold_after: int | None = None,
    serves: bool = True,
    args: Sequence[str] = (),
    target: bool = True,
    **spec: Any,
) -> None:
    if found is not Ending.RECOMMENDED:
        user.kubelet.script = ending(found)
    user.kubelet.hold_after = hold_after
    if not serves:
        user.kubelet.serves = lambda args: args != NEW_ARGS
    if target:
        user.apply(a_server(args=[*ARGS, *args]))
    user.apply(a_tuning("llama", **spec))


class Outcome(NamedTuple):
    """What is done, what to wait for, and what others say of it."""

    setup: dict[str, Any]
    wait: tuple[str, ...]
    kstatus: str
    argocd: str
    answer: str
    """How ``status.answer`` begins."""


MANUAL, AUTO = ({"updatePolicy": {"mode": mode}} for mode in ("Manual", "Auto"))
STAGE = '{.status.conditions[?(@.type=="Progressing")].reason}'
APPLIED = '{.status.conditions[?(@.type=="Applied")].reason}'
OUTCOMES = {
    "under way": Outcome(
        {"hold_after": 4},
        ("condition=Ready", "condition=Progressing", f"jsonpath={STAGE}=Search"),
        "Current", "Healthy", "Search: ",
    ),
    "recommended": Outcome(
        {},
        ("condition=RecommendationProvided", "condition=Succeeded", "jsonpath={.status.sla}=Met"),
        "Current", "Healthy", "Recommended: the run says Recommended RecommendOnly: mode Recommend",
    ),
    "recommended, to be approved": Outcome(
        MANUAL,
        ("condition=RecommendationProvided", "condition=Succeeded=Unknown"),
        "Current", "Healthy", "Recommended: the run says Recommended WaitingForApproval: to apply",
    ),
    "applied": Outcome(
        AUTO,
        ("condition=Applied", "condition=Succeeded"),
        "Current", "Healthy", "Recommended: the run says Recommended RolledOut: ",
    ),
    "rolled back": Outcome(
        AUTO | {"serves": False},
        (f"jsonpath={APPLIED}=RolledBack", "condition=Succeeded=False"),
        "Current", "Healthy", "Recommended: the run says Recommended RolledBack: ",
    ),
    "not representative": Outcome(
        AUTO | {"args": ["--enable-lora"]},
        ("condition=Representative=False", f"jsonpath={APPLIED}=NotRepresentative"),
        "Current", "Healthy", "Recommended: the run says Recommended NotRepresentative: ",
    ),
    "nothing better": Outcome(
        {"found": Ending.NO_IMPROVEMENT},
        ("condition=Succeeded", "jsonpath={.status.sla}=Met"),
        "Current", "Healthy", "NoImprovement: ",
    ),
    "unsatisfiable": Outcome(
        {"found": Ending.SLA_UNSATISFIABLE},
        ("jsonpath={.status.sla}=Unsatisfiable", "condition=Succeeded=False"),
        "Current", "Healthy", "SLAUnsatisfiable: ",
    ),
    "inconclusive": Outcome(
        {"found": Ending.INCONCLUSIVE},
        ("jsonpath={.status.sla}=Inconclusive", "condition=Succeeded=False"),
        "Current", "Healthy", "Inconclusive: ",
    ),
    "out of budget": Outcome(
        {"found": Ending.BUDGET_EXHAUSTED},
        ("condition=Succeeded=False", "condition=RecommendationProvided=False"),
        "Current", "Healthy", "BudgetExhausted: ",
    ),
    "broken": Outcome(
        {"found": Ending.ENGINE_FAILED},
        ("condition=Stalled", "condition=Succeeded=False"),
        "Failed", "Degraded", "EngineFailed: ",
    ),
    "without a target": Outcome(
        {"target": False},
        ("condition=TargetResolved=False", "condition=Stalled", "condition=Ready=False"),
        "Failed", "Degraded", "TargetNotFound: there is no Deployment llama",
    ),
    "suspended": Outcome(
        {"suspend": True},
        ("condition=Accepted", "condition=Progressing=False", "condition=Succeeded=Unknown"),
        "Current", "Suspended", "Suspended: ",
    ),
}  # fmt: skip


def bring_about(user: Tenant, outcome: Outcome) -> None:
    begin(user, **outcome.setup)


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES.keys())
@given(bring_about)
def test_an_outcome_can_be_waited_for_and_is_told_to_everybody(
    user: Tenant, outcome: Outcome
) -> None:
    reached = partial(kubectl_waits, user, outcome.wait, "0s")
    user.wait(reached, f"kubectl wait for {outcome.wait}", seconds=120)

    found = user.get("vllmtunings", "llama")
    status, message = health(found)
    assert (kstatus(found), status) == (outcome.kstatus, outcome.argocd)
    assert found["status"]["answer"].startswith(outcome.answer)
    assert message in found["status"]["answer"] or status == "Suspended"


def kubectl_waits(user: Tenant, conditions: Sequence[str], timeout: str) -> bool:
    """Whether kubectl finds all of these now."""
    return all(
        user.cluster.kubectl(
            "wait", f"--for={condition}", f"--timeout={timeout}", "-n", user.namespace, "vt/llama"
        ).returncode
        == 0
        for condition in conditions
    )


@given(partial(begin, updatePolicy={"mode": "Auto"}))
def test_describe_is_short_and_begins_with_the_answer(user: Tenant) -> None:
    user.wait_for("llama", "Succeeded", "True", "RolledOut")

    lines = user.kubectl("describe", "vt", "llama").splitlines()

    after = lines.index("Status:") + 1
    assert lines[after].split()[:2] == ["Answer:", "Recommended:"]
    assert len(lines) <= DESCRIBED_LINES
