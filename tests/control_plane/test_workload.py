"""Where a workload comes from, on a real control plane: the target's metrics page, or a ConfigMap.

The page is served for real, at the address that the played pod has.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.control_plane.fleet import ARGS, Tenant, a_server, given
from tests.metrics_page import traffic_page
from tests.operator_process import a_tuning
from vllm_tuning.tuning.model import Workload

pytestmark = pytest.mark.control_plane

CHAT = [(300, 40)] * 270 + [(1500, 400)] * 30
SERVED = traffic_page(CHAT, hit_fraction=0.25, begun_at=time.time() - 3600)
TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,400,10
2023-11-16 18:17:13.9799600,200,30
2023-11-16 18:17:23.9799600,200,
"""


class _Page(BaseHTTPRequestHandler):
    """vLLM's metrics page after some traffic."""

    def do_GET(self) -> None:
        data = SERVED.encode()
        self.send_response(200 if self.path == "/metrics" else 404)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def a_page() -> Iterator[int]:
    """Serve it on 127.0.0.1; yields the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def effective(user: Tenant) -> dict[str, Any]:
    found: dict[str, Any] = user.get("vllmtunings", "llama")["status"]["effective"]
    return found


def asked(user: Tenant) -> Workload:
    """What the first benchmark was asked to send."""
    user.wait(lambda: user.kubelet.specs, "a benchmark")
    return user.kubelet.specs[0].problem.workload


def test_it_is_learnt_from_the_page_that_the_pod_shows_and_then_holds(user: Tenant) -> None:
    with a_page() as port:
        user.kubelet.address = "127.0.0.1"
        user.apply(a_server(args=[*ARGS, f"--port={port}"]))
        user.wait(
            lambda: [p for p in user.items("pods") if p["status"].get("podIP")], "a ready pod"
        )
        user.apply(a_tuning("llama", profile="Chat"))
        user.wait_for("llama", "Succeeded", "True")

    workload = asked(user)
    assert (workload.input_tokens.mean, workload.shared_prefix_percent) == (420, 25)
    assert sum(weight for _, weight in workload.input_tokens.histogram) == 300
    (started,) = user.events("RunStarted")
    assert "workload: learnt from 300 requests that 1 of 1 pods of llama have served" in started
    found = effective(user)
    assert found["learnt"]["inputTokens"]["buckets"][-1] == {"maxTokens": 2000, "requests": 30}
    sources = {note["field"]: (note["source"], note.get("name")) for note in found["sources"]}
    assert sources["workload.inputTokens"] == ("Target", "llama")
    assert sources["workload.arrival"] == ("Profile", "Chat")

    # Nothing serves the page any more, and another SLA is asked: what was learnt stays.
    slo = {"metric": "TTFT", "percentile": 95, "maxMilliseconds": 499}
    user.merge("vllmtunings", "llama", {"spec": {"slos": [slo]}})
    generation = user.get("vllmtunings", "llama")["metadata"]["generation"]
    user.wait(
        lambda: user.get("vllmtunings", "llama")["status"]["observedGeneration"] == generation,
        "the edit to be seen",
    )
    assert effective(user)["learnt"] == found["learnt"]


def without_a_page(user: Tenant) -> None:
    """Its port refuses: nothing listens there."""
    user.kubelet.address = "127.0.0.1"
    user.apply(a_server(args=[*ARGS, "--port=9"]))


@given(without_a_page)
def test_a_page_that_can_not_be_read_is_told_and_the_profile_used(user: Tenant) -> None:
    user.wait(lambda: [p for p in user.items("pods") if p["status"].get("podIP")], "a ready pod")
    user.apply(a_tuning("llama", profile="Chat"))
    user.wait_for("llama", "Succeeded", "True")

    assert (asked(user).input_tokens.mean, asked(user).input_tokens.histogram) == (512, ())
    told = effective(user)["learnt"]["message"]
    assert told.startswith(
        "nothing learnt from llama, lengths are those of profile Chat: its metrics can not be "
        "read: http://127.0.0.1:9/metrics"
    )
    (started,) = user.events("RunStarted")
    assert told in started


def with_a_trace(user: Tenant) -> None:
    ref = {"name": "traces", "key": "azure.csv"}
    user.apply(a_server(), a_tuning("llama", workload={"traceRef": ref}))


@given(with_a_trace)
def test_a_trace_is_asked_for_then_taken_and_its_bad_rows_named(user: Tenant) -> None:
    told = user.wait_for("llama", "Accepted", "False", "TraceNotFound")
    assert "kubectl create configmap traces --from-file=azure.csv=FILE" in told
    assert user.conditions("llama")["Ready"][:2] == ("False", "TraceNotFound")
    assert user.items("jobs") == []

    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "traces"}}
    user.apply(body | {"data": {"azure.csv": TRACE}})
    user.wait_for("llama", "Succeeded", "True")

    assert asked(user).input_tokens.mean == 300
    facts = effective(user)["trace"]
    assert (facts["requests"], facts["rowsLeftOut"]) == (2, 1)
    assert "1 row left out (line 4: " in facts["message"]
    (job,) = user.items("jobs")
    pod = job["spec"]["template"]["spec"]
    (volume,) = [v for v in pod["volumes"] if v.get("configMap", {}).get("name") == "traces"]
    assert volume["configMap"]["items"] == [{"key": "azure.csv", "path": "trace"}]
