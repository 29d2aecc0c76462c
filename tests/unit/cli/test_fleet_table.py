"""The fleet as a person and a script read it."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from tests.unit.reconcile.builders import a_deployment, a_tuning
from vllm_tuning.cli.fleet import table
from vllm_tuning.reconcile.fleet_rows import fleet_rows

POLICY = {
    "metadata": {"name": "chat", "uid": "p"},
    "spec": {"defaults": {"slos": [{"metric": "TTFT", "percentile": 95, "maxMilliseconds": 250}]}},
    "status": {
        "live": {
            "deployments": 2,
            "members": [
                {
                    "namespace": "serving",
                    "name": "bare",
                    "state": "Missing",
                    "message": "p95 TTFT ≤ 250 ms: 67% within",
                }
            ],
        }
    },
}


def deployments() -> list[dict[str, Any]]:
    bare, web = a_deployment(), a_deployment()
    bare["metadata"] |= {"name": "bare"}
    web["metadata"] |= {"name": "web"}
    web["spec"]["template"]["spec"]["containers"] = [{"name": "web", "image": "nginx:1"}]
    return [a_deployment(), web, bare]


def tuned() -> dict[str, Any]:
    tuning = a_tuning()
    tuning["status"] = {
        "sla": "Met",
        "effective": {"updatePolicy": {"mode": "Auto"}, "slos": a_tuning()["spec"]["slos"]},
        "target": {"limits": {"maxNumSeqs": 4, "maxNumBatchedTokens": 2048}},
        "recommendation": {
            "hash": "h",
            "ending": "Recommended",
            "gainPercent": 120,
            "limits": {"maxNumSeqs": 64, "maxNumBatchedTokens": 2048},
        },
        "conditions": [
            {
                "type": type_,
                "status": "False",
                "reason": reason,
                "lastTransitionTime": "2026-11-29T12:00:00Z",
            }
            for type_, reason in (("Progressing", "Complete"), ("Applied", "ManagedTarget"))
        ],
    }
    return tuning


def shown(*, width: int = 160, **parts: Any) -> str:
    bodies = {"deployments": deployments(), "tunings": [tuned()], "policies": [POLICY], **parts}
    rows = fleet_rows(**bodies, namespaces={})
    console = Console(width=width, file=StringIO())
    console.print(table(rows, wide=width > 80))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_every_server_has_a_line_and_nothing_else_has_one():
    lines = [" ".join(line.split()) for line in shown().splitlines() if "serving" in line]
    assert lines == [
        "serving bare - - - - Missing - - - - chat",
        "serving llama llama Auto Complete Met - 4 → 64 2048 120 ManagedTarget chat",
    ]


def test_a_narrow_terminal_shows_how_it_is_in_whole_words():
    lines = [" ".join(line.split()) for line in shown(width=80).splitlines() if "serving" in line]
    assert lines == [
        "serving bare - Missing - - -",
        "serving llama Met - 4 → 64 2048 120",
    ]


def test_rows_carry_what_the_table_has_no_room_for():
    (bare, llama) = fleet_rows(deployments(), [tuned()], [POLICY], {})
    assert (bare.live, bare.why) == ("Missing", "p95 TTFT ≤ 250 ms: 67% within")
    assert llama.slos == ("p95 TTFT ≤ 300 ms",)
    assert llama.recommended_max_num_seqs == 64


def test_of_two_tunings_the_older_one_counts_and_one_of_another_version_is_named():
    older = tuned()
    older["metadata"] |= {"name": "older", "creationTimestamp": "2020-01-01T00:00:00Z"}
    older["status"] = {"sla": "Nonsense"}
    row = fleet_rows(deployments(), [tuned(), older], [], {})[1]
    assert (row.tuning, row.sla, row.policies) == ("older", None, ())
