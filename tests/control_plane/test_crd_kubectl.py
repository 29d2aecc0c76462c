"""What the CRDs give to users of kubectl: names, columns, documentation, waiting."""

from __future__ import annotations

import pytest

from tests.control_plane.api_server import APIServer
from tests.control_plane.objects import policy, trial, tuning

pytestmark = pytest.mark.control_plane


@pytest.mark.parametrize("kind", ["vt", "vllmtuning", "vtrial", "vllmtrials"])
def test_short_names_and_category(server: APIServer, namespace: str, kind: str) -> None:
    done = server.kubectl("get", kind, "-n", namespace)

    assert done.returncode == 0, done.stderr
    assert "No resources found" in done.stderr


def test_columns_tell_the_story(server: APIServer, namespace: str) -> None:
    server.create(namespace, tuning())
    since = "2026-01-01T00:00:00Z"
    status = {
        "conditions": [
            {
                "type": kind,
                "status": value,
                "reason": reason,
                "message": "m",
                "lastTransitionTime": since,
            }
            for kind, value, reason in (
                ("Progressing", "False", "Complete"),
                ("Applied", "True", "RolledOut"),
            )
        ],
        "sla": "Met",
        "effective": {"updatePolicy": {"mode": "Auto"}},
        "recommendation": {
            "hash": "abc123",
            "ending": "Recommended",
            "limits": {"maxNumSeqs": 24, "maxNumBatchedTokens": 4096},
            "gainPercent": 180,
        },
    }
    done = server.patch(namespace, "vt/chat", {"status": status}, subresource="status")
    assert done.ok, done.words

    head, row = server.kubectl("get", "vt", "-n", namespace).stdout.splitlines()

    columns = "NAME TARGET MODE STAGE SLO SEQS TOKENS GAIN APPLIED AGE"
    assert " ".join(head.split()) == columns
    assert " ".join(row.split()).startswith("chat chat Auto Complete Met 24 4096 180 True ")


def test_all_kinds_by_their_category(server: APIServer, namespace: str) -> None:
    server.create(namespace, tuning())
    server.create(namespace, trial())

    names = server.must("get", "vllm", "-n", namespace, "-o", "name").split()

    assert {name.partition(".")[0] for name in names} >= {"vllmtuning", "vllmtrial"}


def test_policies_are_cluster_scoped_and_show_their_counts(
    server: APIServer, namespace: str
) -> None:
    body = policy(overrides={"maxMode": "Manual"}) | {"metadata": {"name": namespace}}
    server.create(namespace, body)
    status = {"matched": 4, "compliant": 1, "violating": 2, "unknown": 1, "live": {"missing": 3}}
    server.patch(namespace, f"vsp/{namespace}", {"status": status}, subresource="status")

    head, row = server.must("get", "vsp", namespace).splitlines()
    server.must("delete", "vsp", namespace)

    columns = "NAME ENFORCEMENT MATCHED COMPLIANT VIOLATING UNKNOWN MISSING AGE"
    assert " ".join(head.split()) == columns
    assert row.split()[1:-1] == ["Enforce", "4", "1", "2", "1", "3"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("vt", "most load within an SLA"),
        ("vt.spec.slos.metric", "time to first token"),
        ("vt.spec.updatePolicy.mode", "vllmtuning.io/approve"),
        ("vt.status.recommendation.nearestMiss", "what came closest"),
        ("vsp.spec.overrides.maxMode", "A higher one is lowered to it"),
        ("vtrial.status.points.metrics.ttftMilliseconds.p95", "95th percentile"),
    ],
)
def test_explain_reads_like_documentation(server: APIServer, path: str, words: str) -> None:
    done = server.kubectl("explain", path)

    assert done.returncode == 0, done.stderr
    assert words in " ".join(done.stdout.split())


def test_wait_works_on_conditions(server: APIServer, namespace: str) -> None:
    server.create(namespace, tuning())
    condition = {
        "type": "Succeeded",
        "status": "True",
        "reason": "Recommended",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    server.patch(
        namespace, "vt/chat", {"status": {"conditions": [condition]}}, subresource="status"
    )

    done = server.kubectl(
        "wait", "--for=condition=Succeeded", "--timeout=30s", "-n", namespace, "vt/chat"
    )

    assert done.returncode == 0, done.stderr
