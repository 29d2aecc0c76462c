"""A second process on a real GPU is told from the first, whatever namespace its pid is of."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vllm_tuning.bench.gpu_activity import summarize_gpu
from vllm_tuning.bench.gpu_processes import engine_processes
from vllm_tuning.bench.launcher.gpu import Sampler, open_devices

pytestmark = pytest.mark.gpu

WORKER = [sys.executable, str(Path(__file__).with_name("cuda_worker.py"))]
ELSEWHERE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
"""As in another container: its pid is not of our namespace."""


@contextmanager
def working(*prefix: str) -> Iterator[None]:
    """A process that computes, until it is left."""
    command = [*prefix, *WORKER, "120"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "working"
        try:
            yield
        finally:
            process.terminate()


def watched(sampler: Sampler, count: int = 6) -> list[dict]:
    """The samples of the next seconds."""
    began = time.time()
    while len(samples := sampler.since(began)) < count:
        time.sleep(0.1)
    return samples


@pytest.mark.parametrize("prefix", [(), ELSEWHERE], ids=["same namespace", "another namespace"])
def test_a_second_process_is_told_from_the_engine(prefix):
    devices, missing = open_devices(os.environ)
    assert missing is None
    sampler = Sampler(devices[:1])
    sampler.begin()
    watched(sampler, 2)
    began = time.time()
    with working():
        engine = engine_processes([*sampler.since(began - 2), *watched(sampler)], began)
        assert len(engine[0]) == 1, engine
        alone = watched(sampler)
        assert summarize_gpu(alone, 0, time.time(), engine=engine).others_percent == 0, alone
        with working(*prefix):
            shared = watched(sampler)
        found = summarize_gpu(shared, 0, time.time(), engine=engine)
        assert found.others_percent > 10, shared
        print(prefix, engine, alone[-1], shared[-1])
