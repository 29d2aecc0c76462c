"""Finding the engine's container and what its image tells."""

from __future__ import annotations

import pytest

from vllm_tuning.engine.containers import Found, find_vllm_container
from vllm_tuning.engine.images import engine_version, image_program
from vllm_tuning.engine.launch.entry import Program, find_entry, shell_script

ENGINE = {"name": "e", "command": ["vllm", "serve"], "args": ["m"]}


@pytest.mark.parametrize(
    "container",
    [
        ENGINE,
        {"name": "e", "command": ["/opt/venv/bin/vllm", "serve", "m"]},
        {"name": "e", "command": ["python3.12", "-m", "vllm.entrypoints.openai.api_server"]},
        {"name": "e", "command": ["sh", "-c"], "args": ["cd /x && exec vllm  serve m"]},
        {"name": "e", "command": ["bash", "-c", 'eval "vllm serve m"']},
        {"name": "e", "image": "vllm/vllm-openai:v0.12.0", "args": ["--model", "m"]},
        {"name": "e", "image": "quay.io/x/vllm-cpu@sha256:0", "args": ["--model", "m"]},
    ],
)
def test_found_beside_others(container):
    others = [
        {"name": "a", "image": "busybox", "command": ["sh", "-c", "tail -F /var/log/vllm.log"]},
        {"name": "b", "image": "x/llm-d-routing-sidecar", "args": ["--vllm-port=8200"]},
        {"name": "c", "image": "x/vllm-router:1", "args": ["--port=1"]},
        {"name": "d", "image": "prom/vllm-exporter", "args": ["--port=1"]},
    ]
    for position in range(len(others) + 1):
        containers = [*others[:position], container, *others[position:]]
        found = find_vllm_container({"containers": containers})
        assert isinstance(found, Found)
        assert (found.name, found.index, found.path) == ("e", position, ("containers", position))


def test_two_are_ambiguous_unless_one_is_named():
    spec = {"containers": [ENGINE, {**ENGINE, "name": "f"}]}
    refusal = find_vllm_container(spec)
    assert refusal.reason == "AmbiguousContainer"
    assert "`e`, `f`" in refusal.message
    assert find_vllm_container(spec, name="f").index == 1


def test_a_name_alone_makes_no_engine():
    spec = {"containers": [{"name": "vllm", "command": ["nginx"]}, ENGINE]}
    assert find_vllm_container(spec).name == "e"
    assert find_vllm_container(spec, name="vllm").reason == "NotAnEngine"
    assert find_vllm_container(spec, name="x").reason == "ContainerNotFound"


def test_a_named_container_may_have_any_image():
    spec = {"containers": [{"name": "srv", "image": "corp/llm:7", "args": ["--model", "m"]}]}
    assert find_vllm_container(spec).reason == "NoEngineContainer"
    assert find_vllm_container(spec, name="srv").name == "srv"


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.11.0", "0.11.0"),
        ("registry.example.com:5000/ai/vllm-openai:v0.10.1.1-cu128", "0.10.1.1"),
        ("rocm/vllm:rocm6.2_mi300_ubuntu20.04_py3.9_vllm_0.6.4", "0.6.4"),
        ("vllm/vllm-openai:v0.12.0@sha256:00", "0.12.0"),
        ("x/vllm:0.11-gpu-py312", "0.11"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai@sha256:00", None),
        ("lmcache/vllm-openai:v0.3.1", None),
        ("nvcr.io/nvidia/vllm:25.09-py3", None),
        ("lmcache/vllm-openai:2025-05-05-v1", None),
        ("registry.example.com:5000/vllm", None),
        ("python:0.12.0", None),
    ],
)
def test_version_of_an_image(image, version):
    assert engine_version(image) == version


def test_entrypoint_of_an_image():
    assert image_program("vllm/vllm-openai:v0.11.0") is Program.API_SERVER
    assert image_program("docker.io/vllm/vllm-openai:v0.12.0") is Program.SERVE
    assert image_program("vllm/vllm-openai:v0.11.1") is None
    assert image_program("vllm/vllm-openai:latest") is None
    assert image_program("vllm/vllm-openai:latest", "0.20.0") is Program.SERVE
    assert image_program("corp/vllm:v0.12.0") is None


@pytest.mark.parametrize(
    ("words", "index"),
    [
        (["sh", "-c", "x"], 2),
        (["/bin/bash", "-exc", "x"], 2),
        (["bash", "-lc", "--", "x"], 3),
        (["bash", "-o", "pipefail", "-c", "x"], 4),
        (["tini", "--", "sh", "-c", "x"], 4),
        (["bash", "run.sh", "-c", "x"], None),
        (["bash", "--login"], None),
        (["vllm", "serve"], None),
    ],
)
def test_script_of_a_shell(words, index):
    assert shell_script(words) == index


def test_entry():
    assert find_entry(["numactl", "-m", "0", "vllm", "serve", "m"]).first == 5
    assert find_entry(["pip", "install", "vllm"]) is None
    assert find_entry(["python", "-m", "dynamo.vllm", "--model", "m"]).program is Program.DYNAMO
