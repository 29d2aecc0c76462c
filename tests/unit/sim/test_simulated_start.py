"""Starts of the simulated server as a process: what it prints, when it refuses, how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from vllm_tuning.bench.sim.application import build
from vllm_tuning.bench.sim.arguments import read, resolve
from vllm_tuning.bench.sim.environment import from_environment
from vllm_tuning.bench.sim.memory import MemoryPlan, plan_memory
from vllm_tuning.bench.sim.serve import _Life, serve
from vllm_tuning.bench.sim.startlog import StartLog
from vllm_tuning.engine.failures import diagnose_start
from vllm_tuning.engine.startlog import read_start_log

COMMAND = [sys.executable, "-c", "from vllm_tuning.cli.main import app; app()", "simulate"]


@pytest.mark.parametrize(
    ("argv", "environment", "code", "known"),
    [
        (["m", "--no-such-flag"], {}, 2,
         ("BadArguments", "CommandLineRefused", None)),
        (["m", "--max-num-seqs", "1k"], {}, 2,
         ("BadArguments", "CommandLineRefused", None)),
        (["m"], {"SIMULATE_FAIL_START": "args"}, 2,
         ("BadArguments", "CommandLineRefused", None)),
        (["m", "--max-num-seqs", "64", "--max-num-batched-tokens", "32"], {}, 1,
         ("Infeasible", "BudgetBelowSeqs", 64)),
        (["m", "--no-enable-chunked-prefill", "--max-num-batched-tokens", "512"], {}, 1,
         ("Infeasible", "BudgetBelowModelLength", 2048)),
        (["m", "--gpu-memory-utilization", "95"], {}, 1,
         ("Infeasible", "InvalidCacheConfig", None)),
        (["m", "--gpu-memory-utilization", "0.1"], {}, 1,
         ("Infeasible", "NoMemoryForKVCache", None)),
        (["m", "--kv-cache-memory-bytes", "16M"], {}, 1,
         ("Infeasible", "KVCacheBelowModelLength", 1024)),
        (["m", "--gpu-memory-utilization", "0.999"], {}, 1,
         ("Infeasible", "OutOfMemoryAtGraphCapture", None)),
        (["m", "--gpu-memory-utilization", "0.98", "--max-num-seqs", "2000"], {}, 1,
         ("Infeasible", "OutOfMemoryAtSamplerWarmUp", 2000)),
        (["m"], {"SIMULATE_FAIL_START": "oom"}, 1,
         ("Infeasible", "OutOfMemoryAtGraphCapture", None)),
        (["m"], {"SIMULATE_FAIL_START": "env"}, 1,
         ("Environment", "DeviceMemoryInUse", None)),
    ],
)  # fmt: skip
def test_a_start_fails_with_the_code_and_the_words_by_which_it_is_known(
    capfd, argv, environment, code, known
):
    try:
        ended = serve(argv, environment)
    except SystemExit as error:
        ended = error.code
    assert ended == code
    captured = capfd.readouterr()
    found = diagnose_start(captured.out + captured.err, exit_code=code)
    assert (found.kind, found.reason, found.hint) == known


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"SIMULATE_PRESET": "gtx"}, "SIMULATE_PRESET=gtx is not one of h200-8b"),
        ({"SIMULATE_FAIL_START": "rain"}, "SIMULATE_FAIL_START=rain is not one of oom"),
        ({"SIMULATE_CAPACITY_FACTOR": "0"}, "must be above 0"),
    ],
)
def test_a_variable_without_sense_is_told(environment, words):
    with pytest.raises(ValueError, match=words):
        serve(["m"], environment)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_until_ready(process: subprocess.Popen[str], port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()[0]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("never ready")


def test_a_start_tells_its_facts_and_ends_at_a_signal(tmp_path: Path):
    port = free_port()
    config = tmp_path / "engine.yaml"
    config.write_text("max-num-seqs: 99\nmax-model-len: 1k\nenable-prefix-caching: true\n")
    argv = ["serve", "org/model", "--port", str(port), "--host", "127.0.0.1",
            "--config", str(config), "--max_num_seqs=12", "--max-num-batched-tok", "2K",
            "--dtype", "bfloat16", "--no-enable-log-requests"]  # fmt: skip
    process = subprocess.Popen(
        [*COMMAND, *argv],
        env=os.environ | {"SIMULATE_START_SECONDS": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait_until_ready(process, port)
        process.send_signal(signal.SIGTERM)
        log, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    facts = read_start_log(log)
    assert facts.version == "0.32.0"
    assert facts.args["max_num_seqs"] == 12  # the command line wins over the file
    assert facts.args["model"] == "org/model"
    assert facts.max_num_batched_tokens == 2048
    assert facts.max_model_len == 1000
    assert facts.graph_tokens == 24
    assert facts.kv_cache_tokens is not None
    assert facts.kv_cache_tokens > 100_000
    assert facts.max_concurrency == pytest.approx(facts.kv_cache_tokens / 1000, abs=0.01)


async def test_a_start_that_hangs_is_never_ready_and_still_ends_at_a_signal():
    port = free_port()
    life = _life(["m", "--port", str(port)], {"SIMULATE_FAIL_START": "hang"})
    announced: list[float] = []
    running = asyncio.create_task(life.run(announced.append))
    done, _ = await asyncio.wait({running}, timeout=0.5)
    assert not done
    assert not announced
    with pytest.raises(OSError, match="onnect"):
        await asyncio.open_connection("127.0.0.1", port)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0


async def test_a_port_in_use_is_the_environments_fault(capsys):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = str(holder.getsockname()[1])
        life = _life(["m", "--host", "127.0.0.1", "--port", port], {"SIMULATE_START_SECONDS": "0"})
        assert await life.run(lambda _: None) == 1
    found = diagnose_start(capsys.readouterr().out, exit_code=1)
    assert (found.kind, found.reason) == ("Environment", "PortInUse")


def _life(argv: list[str], environment: dict[str, str]) -> _Life:
    known = read(argv)
    simulation = from_environment(environment)
    settings = resolve(known, simulation.parameters)
    memory = plan_memory(simulation.parameters, settings)
    assert isinstance(memory, MemoryPlan)
    started = build(known, environment, simulation, settings, memory)
    return _Life(known, simulation, started, StartLog())
