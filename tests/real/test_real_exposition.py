"""The simulated metrics page against the real engine's: names, types, labels and bucket bounds."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from vllm_tuning.bench.sim.exposition import EngineMetrics

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(1800)]

ENGINE = Path(__file__).parents[2] / "hack" / "engine" / "engine"
MAX_MODEL_LEN = 2048
START_SECONDS = 900.0
"""Importing vLLM takes most of a start; on a busy machine minutes."""


def shape(text: str) -> dict[str, tuple[str, frozenset[str], tuple[str, ...]]]:
    """Of each of the engine's families: its type, its label names and its bucket bounds."""
    found = {}
    for family in text_string_to_metric_families(text):
        if not family.name.startswith("vllm:") or family.name.endswith("_created"):
            continue
        labels = frozenset(name for sample in family.samples for name in sample.labels)
        bounds = tuple(dict.fromkeys(s.labels["le"] for s in family.samples if "le" in s.labels))
        found[family.name] = (family.type, labels, bounds)
    return found


def differences(real: str) -> list[str]:
    """What of the simulated page the real one does not have, or has in another shape."""
    simulated = shape(EngineMetrics("llama", {}, MAX_MODEL_LEN).text().decode())
    actual = shape(real)
    # The labels of this family are the cache's configuration; the twin shows those that are read.
    simulated.pop("vllm:cache_config_info")
    return [
        f"{name}: {described} is really {actual.get(name)}"
        for name, described in simulated.items()
        if actual.get(name) != described
    ]


@pytest.fixture(scope="module")
def page() -> str:
    """A metrics page of the real engine."""
    subprocess.run([ENGINE, "install"], check=True)
    venv, model = (
        subprocess.check_output([ENGINE, what], text=True).strip() for what in ("venv", "model")
    )
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    command = [
        f"{venv}/bin/vllm", "serve", model, "--load-format=dummy", "--dtype=bfloat16",
        "--enforce-eager", f"--max-model-len={MAX_MODEL_LEN}", "--served-model-name=llama",
        "--host=127.0.0.1", f"--port={port}",
    ]  # fmt: skip
    environment = os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_NUM_OF_RESERVED_CPU": "1",
        "HF_HUB_OFFLINE": "1",
    }
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            assert process.poll() is None, "the engine ended"
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
                    return response.read().decode()
            except OSError:
                time.sleep(0.5)
        raise AssertionError("never ready")
    finally:
        process.terminate()
        process.wait(60)


def test_the_simulated_page_is_the_real_ones_in_names_types_labels_and_buckets(page: str):
    assert differences(page) == []


def test_no_family_that_the_bench_reads_is_missing_from_the_simulated_page(page: str):
    simulated = shape(EngineMetrics("llama", {}, MAX_MODEL_LEN).text().decode())
    optional = ("vllm:spec_decode", "vllm:lora", "vllm:estimated", "vllm:kv_block")
    missing = [
        name for name in shape(page) if name not in simulated and not name.startswith(optional)
    ]
    assert missing == []
