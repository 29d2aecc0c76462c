"""Edge cases of how a target is written: its command line and the container that has it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.control_plane.fleet import ARGS, Tenant, a_server, given
from tests.control_plane.targets import asleep, check_refused, container, limits, read
from tests.operator_process import a_tuning

pytestmark = pytest.mark.control_plane

AUTO = {"mode": "Auto"}

SCRIPT = (
    "set -e\n"
    "export GREETING='it''s me' && echo \"$GREETING\"\n"
    "vllm serve m --max-num-seqs 4 \\\n"
    '  --max-num-batched-tokens "2048" 2>&1 | tee /tmp/log\n'
)


def shell(script: str) -> dict[str, Any]:
    return container(command=["sh", "-c"], args=[script])


def scripts(user: Tenant) -> None:
    server = a_server("one")
    server["spec"]["template"]["spec"]["containers"] = [shell(SCRIPT)]
    user.apply(server, a_tuning("one", updatePolicy=AUTO))
    twice = shell("vllm serve a --max-num-seqs=4 & vllm serve b --max-num-seqs=8; wait")
    read(user, asleep("two", twice))


@given(scripts)
def test_edge_22_a_script_is_edited_where_that_is_certain_and_else_refused(user: Tenant) -> None:
    user.wait_for("one", "Applied", "True", "RolledOut")
    written = SCRIPT.replace("seqs 4", "seqs 64").replace('"2048"', '"4096"')
    assert user.args_of("one") == [written]
    check_refused(user, "two", "UnsupportedFlags", "starts the engine in 2 places")


STYLES: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {
    "command": (
        {"command": ["vllm", "serve", "m", "--max-num-seqs", "8", "--max-num-batched-tokens=512"]},
        (8, 512),
    ),
    "underscores": (
        {"args": ["m", "--max_num_seqs=8", "--max_num_batched_tokens", "1024"]},
        (8, 1024),
    ),
    "last-wins": (
        {"args": ["m", "--max-num-seqs=8", "--max-num-batched-tokens=512", "--max-num-seqs=9"]},
        (9, 512),
    ),
    "json": (
        {
            "args": [
                *("m", "-O", '{"level": 3}', "--no-enable-prefix-caching"),
                *("--max-num-seqs=7", "--max-num-batched-tokens=8k"),
            ]
        },
        (7, 8000),
    ),
}


@given(lambda user: read(user, *(asleep(n, container(**c)) for n, (c, _) in STYLES.items())))
def test_edge_23_flags_in_every_style(user: Tenant) -> None:
    assert {name: limits(user, name) for name in STYLES} == {
        name: expected for name, (_, expected) in STYLES.items()
    }


def config_files(user: Tenant) -> None:
    """Two Deployments with the same file: one is only read."""
    text = "max-num-seqs: 99\nmax-num-batched-tokens: 6144\n"
    metadata = {"name": "shared"}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True}
    user.apply(body | {"data": {"vllm.yaml": text}})
    mounts = [{"name": "conf", "mountPath": "/etc/vllm"}]
    volumes = [{"name": "conf", "configMap": {"name": "shared"}}]
    args = ["m", "--config", "/etc/vllm/vllm.yaml", "--max-num-seqs=16"]
    server = a_server("file", args=args, volumeMounts=mounts)
    server["spec"]["template"]["spec"]["volumes"] = volumes
    user.apply(server, a_tuning("file", updatePolicy=AUTO))
    read(user, asleep("same", container(args=args, volumeMounts=mounts), volumes=volumes))


@given(config_files)
def test_edge_24_a_config_file_is_read_and_the_command_line_beats_it(user: Tenant) -> None:
    """The ConfigMap may be shared, and is immutable here: the command line is written."""
    assert limits(user, "same") == (16, 6144)
    user.wait_for("file", "Applied", "True", "RolledOut")
    assert user.args_of("file") == [
        *("m", "--config", "/etc/vllm/vllm.yaml"),
        *("--max-num-seqs=64", "--max-num-batched-tokens", "4096"),  # in the first flag's style
    ]
    assert user.get("configmaps", "shared")["data"]["vllm.yaml"].startswith("max-num-seqs: 99")


def environments(user: Tenant) -> None:
    literal = [{"name": "SEQS", "value": "12"}]
    args = ["m", "--max-num-seqs=$(SEQS)", "--max-num-batched-tokens=2048"]
    secret = [{"name": "SEQS", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    read(
        user,
        asleep("literal", container(args=args, env=literal)),
        asleep("secret", container(args=args, env=secret)),
    )
    server = a_server("auto", args=args, env=literal)
    user.apply(server, a_tuning("auto", updatePolicy=AUTO))


@given(environments)
def test_edge_25_plain_variables_are_read_and_recommended_and_secrets_refused(
    user: Tenant,
) -> None:
    assert limits(user, "literal") == (12, 2048)
    check_refused(user, "secret", "UnsupportedFlags", "max_num_seqs comes from env[SEQS]")
    words = user.wait_for("auto", "Applied", "False", "NotEditable")
    assert "the flags come from the container's env" in words
    recommendation = user.get("vllmtunings", "auto")["status"]["recommendation"]
    assert recommendation["limits"]["maxNumSeqs"] == 64
    assert "+env SEQS: 64" in recommendation["diff"]
    assert user.patches("auto") == 0


def crowded(user: Tenant) -> None:
    proxy = container("istio-proxy", image="istio/proxyv2:1.26", args=["proxy", "sidecar"])
    two = [container(name, args=[name, *ARGS[1:]]) for name in ("small", "large")]
    native = container("engine", args=ARGS, restartPolicy="Always")
    named = a_tuning("named", targetRef={"name": "named", "containerName": "large"}, suspend=True)
    read(
        user,
        asleep("proxied", proxy, container(args=ARGS)),
        asleep("both", *two),
        asleep("native", container("web", image="nginx:1"), initContainers=[native]),
    )
    user.apply(asleep("named", *two), named)


@given(crowded)
def test_edge_26_the_engine_among_several_containers(user: Tenant) -> None:
    for name, expected in (("proxied", "vllm"), ("native", "engine"), ("named", "large")):
        assert limits(user, name) == (4, 2048)
        assert user.get("vllmtunings", name)["status"]["target"]["container"] == expected
    check_refused(user, "both", "ContainerAmbiguous", "name the one to use")


def versions(user: Tenant) -> None:
    unknown = [*ARGS, "--flag-of-tomorrow=1"]
    read(
        user,
        asleep("old", container(image="vllm/vllm-openai:v0.9.1", args=ARGS)),
        asleep("next", container(image="vllm/vllm-openai:v9.0.0", args=unknown)),
        asleep("latest", container(image="vllm/vllm-openai:latest", args=unknown)),
    )


@given(versions)
def test_edge_31_flags_go_by_the_version_and_an_unknown_one_is_read_with_care(
    user: Tenant,
) -> None:
    """Each release's own table is tested against its real parser without a cluster."""
    check_refused(user, "old", "UnsupportedEngine", "upgrade the image")
    for name, version in (("next", "9.0.0"), ("latest", None)):
        assert limits(user, name) == (4, 2048)
        assert user.get("vllmtunings", name)["status"]["target"].get("vllmVersion") == version
