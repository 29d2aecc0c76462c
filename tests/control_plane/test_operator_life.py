"""The whole life of a tuning on a real API server, and the operator killed in the middle of it.

``kill -9`` comes after a write has been done and before its answer arrives: the moment at which the
operator cannot know whether it has happened.
"""

from __future__ import annotations

import re

import pytest

from tests.api_proxy import WRITES
from tests.control_plane.whole_life import ARGS, NEW_ARGS, begin, check_applied, follow
from tests.operator_process import Operator
from tests.played_node import PlayedNode

pytestmark = pytest.mark.control_plane


@pytest.fixture
def node(operator: Operator) -> PlayedNode:
    return PlayedNode(operator)


def test_auto_measures_patches_follows_and_rests(operator: Operator, node: PlayedNode) -> None:
    begin(operator)
    words = follow(operator, node)
    assert words
    assert "start log shows the new flags" in operator.conditions("llama")["Applied"][2]
    check_applied(operator)
    annotations = operator.get("deployments", "llama")["metadata"]["annotations"]
    assert annotations["vllmtuning.io/applied-by"] == "llama"

    # at rest it looks, and writes nothing any more
    operator.wait(
        lambda: operator.items("jobs")[0]["spec"].get("ttlSecondsAfterFinished"), "the Job's end"
    )
    operator.wait(lambda: looked_since_its_last_write(operator), "another look")
    before = len(operator.proxy.accepted)
    looks = operator.proxy.requests.count(look(operator))
    operator.annotate("vllmtunings", "llama", "note", "hello")
    operator.wait(lambda: operator.proxy.requests.count(look(operator)) > looks, "another look")
    assert [w for w in operator.proxy.accepted[before:] if "/leases/" not in w[1]] == []
    columns = operator.kubectl("get", "vt", "llama", "--no-headers")
    assert re.search(r"llama\s+Auto\s+Complete\s+Met\s+64\s+4096\s+120\s+True", columns), columns


def look(operator: Operator) -> tuple[str, str]:
    """The request with which every look at a tuning begins."""
    return ("GET", f"/apis/vllmtuning.io/v1alpha1/namespaces/{operator.namespace}/vllmtunings")


def looked_since_its_last_write(operator: Operator) -> bool:
    for request in reversed(operator.proxy.requests):
        if request == look(operator):
            return True
        if request[0] in WRITES and "/leases/" not in request[1]:
            return False
    return False


def kind_of(method: str, path: str) -> str:
    """A write without the names in it, e.g. ``PATCH vllmtrials status``."""
    *_, last = path.split("/")
    parts = path.split("/namespaces/")[1].split("/")[1:]
    return f"{method} {parts[0]}{' status' if last == 'status' else ''}"


def live_on_when_killed(operator: Operator, node: PlayedNode, only: str | None) -> list[str]:
    """Live a whole life, killed after the first write of this kind, or of every kind."""
    killed: list[str] = []

    def kill(method: str, path: str, _: bytes) -> None:
        kind = kind_of(method, path)
        if only in (None, kind) and kind not in killed and " leases" not in kind:
            killed.append(kind)
            operator.kill()

    operator.proxy.after_write = kill
    begin(operator)
    follow(operator, node)
    operator.proxy.after_write = lambda *_: None
    assert operator.starts > len(killed)
    check_applied(operator)
    return killed


def test_edge_03_killed_at_any_moment_it_goes_on_without_doing_anything_twice(
    operator: Operator, node: PlayedNode
) -> None:
    assert set(live_on_when_killed(operator, node, None)) >= {
        "POST configmaps",
        "POST jobs",
        "POST vllmtrials",
        "PATCH vllmtrials status",
        "PATCH vllmtunings status",
        "PATCH deployments",
        "POST events",
    }


def test_edge_04_killed_between_the_patch_and_the_status_it_patches_once(
    operator: Operator, node: PlayedNode
) -> None:
    assert live_on_when_killed(operator, node, "PATCH deployments") == ["PATCH deployments"]


def test_manual_applies_what_is_approved_by_its_hash(operator: Operator, node: PlayedNode) -> None:
    begin(operator, mode="Manual")

    def waits() -> str | None:
        node.step()
        found = operator.conditions("llama").get("Applied", ("", "", ""))
        return found[2] if found[1] == "WaitingForApproval" else None

    words = operator.wait(waits, "the wait for approval")
    assert operator.args_of("llama") == ARGS
    command = re.search(r"kubectl annotate vt/llama (\S+=\S+) --overwrite", words)
    assert command is not None
    operator.annotate("vllmtunings", "llama", *command.group(1).split("="))
    follow(operator, node)
    assert operator.args_of("llama") == NEW_ARGS
