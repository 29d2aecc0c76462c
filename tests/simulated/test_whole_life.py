"""A tuning's whole life on a real kubelet: the chart's operator, its Job, the launcher, the load,
the search and the roll-out. Only the engine's physics are simulated; it is vLLM's API, flags and
logs that the pods show.
"""

from __future__ import annotations

import pytest

from tests.cluster_fixtures.cluster import Cluster
from tests.operator_process import a_target, a_tuning
from tests.user import User

pytestmark = [pytest.mark.simulated, pytest.mark.timeout(1800)]  # images may have to be built

RUN = 900.0
"""Seconds for a run: two or three starts and some forty seconds of load."""

SHORT = {
    "inputTokens": {"mean": 64, "cvPercent": 0},
    "outputTokens": {"mean": 32, "cvPercent": 0},
}
"""Requests that the engine serves in a second: windows span several, and the run stays short."""

ARGS = ["simulated", "--max-num-seqs=2", "--max-num-batched-tokens=2048", "--port=8000"]


def _serve(user: User, image: str) -> None:
    """Deploy a server of the simulated engine with limits that nobody chose, and wait for it."""
    target = a_target(
        "chat",
        image,
        args=ARGS,
        ports=[{"name": "http", "containerPort": 8000}],
        readinessProbe={"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1},
        resources={"requests": {"cpu": "100m"}, "limits": {"nvidia.com/gpu": "1"}},
    )
    target["spec"]["strategy"] = {"type": "Recreate"}
    user.apply(target)
    user.kubectl("rollout", "status", "deploy/chat", "--timeout=120s")


def _wait_for_decision(user: User) -> None:
    user.wait(
        lambda: user.conditions("chat").get("Succeeded", ("",))[0] in {"True", "False"},
        "a decision",
        RUN,
    )


def test_auto_measures_proves_patches_and_sees_the_new_pods_serve(
    user: User, cluster: Cluster
) -> None:
    cluster.gpu(2)  # one for the server, one for the benchmark
    _serve(user, cluster.image("simulated"))
    slos = [
        {"metric": "TTFT", "percentile": 95, "maxMilliseconds": 500},
        {"metric": "TPOT", "percentile": 95, "maxMilliseconds": 50},
    ]
    user.apply(a_tuning("chat", slos=slos, workload=SHORT, updatePolicy={"mode": "Auto"}))

    _wait_for_decision(user)

    status = user.get("vllmtunings", "chat")["status"]
    said = user.conditions("chat")
    assert said["Applied"][1] == "RolledOut", said
    limits = status["recommendation"]["limits"]
    deployment = user.get("deployments", "chat")
    assert user.args_of("chat") == [
        "simulated",
        f"--max-num-seqs={limits['maxNumSeqs']}",
        f"--max-num-batched-tokens={limits['maxNumBatchedTokens']}",
        "--port=8000",
    ]
    assert limits["maxNumSeqs"] > 2
    assert deployment["metadata"]["generation"] == 2, "patched once"
    served = user.kubectl("logs", "deploy/chat")
    assert f"'max_num_seqs': {limits['maxNumSeqs']}" in served
    starts = {
        start["id"]: start.get("liveLimits", False)
        for trial in user.items("vllmtrials")
        if (start := trial["status"].get("start"))
    }
    assert 2 <= len(starts) <= 3
    assert not all(starts.values()), "what is promised was proven without live limits"


def test_an_sla_that_nothing_meets_is_told_and_the_target_left_alone(
    user: User, cluster: Cluster
) -> None:
    cluster.gpu(2)
    _serve(user, cluster.image("simulated"))
    before = user.get("deployments", "chat")
    slos = [{"metric": "TTFT", "percentile": 95, "maxMilliseconds": 1}]
    user.apply(a_tuning("chat", slos=slos, workload=SHORT, updatePolicy={"mode": "Auto"}))

    _wait_for_decision(user)

    assert user.conditions("chat")["Succeeded"][:2] == ("False", "SLAUnsatisfiable")
    after = user.get("deployments", "chat")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    message = user.kubectl("describe", "vt", "chat")
    assert "TTFT" in message
