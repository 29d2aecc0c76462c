"""The real launcher, as a zipapp in a process of its own, with a stand-in for the engine."""

import asyncio
import os
import re
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from tests.unit.bench.launcher.ports import free_port
from vllm_tuning.bench.launcher_client import EngineState, LauncherClient, LauncherError
from vllm_tuning.bench.session import LauncherAddress, connect, local_launcher

STAND_IN = str(Path(__file__).with_name("stand_in.py"))


@asynccontextmanager
async def launcher(**options):
    async with (
        local_launcher(["vllm", "serve", "M"], **options) as address,
        connect(address) as client,
    ):
        yield client


async def start(
    client: LauncherClient, mode: str, *, hook=False, seconds=30.0, names=("n",), env=None
):
    port = free_port()
    argv = [sys.executable, STAND_IN, mode, "--port", str(port), "--served-model-name", *names]
    await client.start(
        argv=argv, env=env or {}, hook=hook, port=port, nonce="n", timeout_seconds=seconds
    )
    return port


async def settled(client: LauncherClient, *states: str) -> EngineState:
    async with asyncio.timeout(20):
        while (engine := await client.engine()).state not in states:  # noqa: ASYNC110 - not our process
            await asyncio.sleep(0.02)
        return engine


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_tells_the_targets_command():
    async with launcher() as client:
        info = await client.info()
    assert info.argv == ("vllm", "serve", "M")
    assert info.gpus == []
    assert info.nvml["missing"]


async def test_starts_until_the_nonce_is_served_and_stops_all_of_it():
    async with launcher() as client:
        assert (await client.engine()).state == "idle"
        await start(client, "ok")
        ready = await settled(client, "ready", "failed")
        assert ready.state == "ready"
        stopped = await client.stop()
        assert stopped.state == "stopped"
        assert not alive(ready.pid)


async def test_another_server_on_the_port_is_not_taken_for_the_engine():
    async with launcher() as client:
        await start(client, "ok", names=("somebody-else",), seconds=1.5)
        failed = await settled(client, "ready", "failed")
        assert failed.state == "failed"
        assert failed.timed_out
        assert "somebody-else" in failed.detail


async def test_a_refused_command_line_fails_at_once_with_its_words():
    async with launcher() as client:
        began = time.monotonic()
        await start(client, "usage", seconds=600)
        failed = await settled(client, "failed")
        assert failed.exit_code == 2
        assert time.monotonic() - began < 60  # not the time-out
        assert "unrecognized arguments" in await client.log()


async def test_a_command_that_does_not_exist_fails_with_the_shells_words():
    async with launcher() as client:
        await client.start(
            argv=["/no/such"], env={}, hook=False, port=1, nonce="n", timeout_seconds=5
        )
        assert (await settled(client, "failed")).exit_code is None
        assert "cannot run '/no/such': No such file or directory" in await client.log()


async def test_the_time_out_ends_a_start_that_hangs():
    async with launcher() as client:
        await start(client, "silent", seconds=0.5)
        failed = await settled(client, "failed")
        assert failed.timed_out
        assert await stopped_pid(client, failed.pid)


async def stopped_pid(client: LauncherClient, pid: int) -> bool:
    await client.stop()
    return not alive(pid)


async def test_an_engine_that_dies_while_serving_is_told():
    async with launcher() as client:
        port = await start(client, "ok")
        await settled(client, "ready")
        async with aiohttp.ClientSession() as http:
            with pytest.raises(aiohttp.ClientError):
                await http.post(f"http://127.0.0.1:{port}/crash")
        exited = await settled(client, "exited")
        assert exited.exit_code == 1
        assert "engine core died" in await client.log()


async def test_workers_that_left_the_group_die_with_the_engine():
    async with launcher() as client:
        await start(client, "worker")
        await settled(client, "ready")
        worker = int(re.search(r"worker (\d+)", await client.log())[1])
        assert alive(worker)
        await client.stop()
        async with asyncio.timeout(10):
            while alive(worker):  # noqa: ASYNC110 - not our process
                await asyncio.sleep(0.02)


async def test_a_second_start_is_refused_while_one_runs_and_taken_after():
    async with launcher() as client:
        await start(client, "ok")
        await settled(client, "ready")
        with pytest.raises(LauncherError, match="409"):
            await start(client, "ok")
        await client.stop()
        await start(client, "ok")
        assert (await settled(client, "ready", "failed")).state == "ready"


async def test_the_environment_is_extended_never_replaced():
    env = {**os.environ, "PYTHONPATH": "/mine", "VLLM_PLUGINS": "lora", "TUNING_X": "ours"}
    async with launcher(env=env) as client:
        await start(client, "ok", hook=True, env={"ADDED": "1", "HOME": None})
        await settled(client, "ready")
        log = await client.log()
        assert re.search(r'"PYTHONPATH": "/mine:[^"]*/hook"', log)
        assert '"VLLM_PLUGINS": "lora,vllm_tuning_limits"' in log
        assert '"VLLM_NO_USAGE_STATS": "1"' in log
        assert '"ADDED": "1"' in log
        assert '"HOME"' not in log
        assert '"TUNING_X"' not in log
        assert re.search(r'"TUNING_HOOK_DIR": "([^"]+)"', log)
        await client.stop()
        await start(client, "ok")
        await settled(client, "ready")
        assert "TUNING_HOOK_DIR" not in await client.log()
        assert '"PYTHONPATH": "/mine"' in await client.log()


async def test_limits_reach_the_file_and_wrong_ones_are_refused():
    async with launcher() as client:
        with pytest.raises(LauncherError, match="no engine with live limits"):
            await client.set_limits({"window": 1})
        await start(client, "ok", hook=True)
        await settled(client, "ready")
        await client.set_limits({"window": 1, "seqs": 4})
        directory = Path(re.search(r'"TUNING_HOOK_DIR": "([^"]+)"', await client.log())[1])
        assert '"seqs": 4' in (directory / "limits.json").read_text()
        assert await client.records() == []
        for wrong in ({"window": 1, "seqs": "4"}, {"seqs": 4}, {"window": 1, "sequences": 4}):
            with pytest.raises(LauncherError, match="400"):
                await client.set_limits(wrong)
        await client.stop()


async def test_no_token_no_answer():
    async with local_launcher(["vllm"]) as address, aiohttp.ClientSession() as http:
        wrong = LauncherClient(http, address.url, "wrong")
        with pytest.raises(LauncherError, match="401"):
            await wrong.info()


async def test_a_missing_token_file_is_named(tmp_path):
    with pytest.raises(LauncherError, match="token"):
        async with connect(LauncherAddress("http://127.0.0.1:1", tmp_path / "none")):
            pass


async def test_the_log_keeps_its_beginning_and_its_end():
    async with launcher() as client:
        await start(client, "chatty")
        await settled(client, "ready")
        log = await client.log()
        assert log.startswith("environment")
        assert log.rstrip().endswith("last words")
        assert "[...]" in log
        assert len(log) < 2 << 20


async def test_the_end_of_the_launcher_is_the_end_of_the_engine():
    async with launcher() as client:
        await start(client, "stubborn")
        pid = (await settled(client, "ready")).pid
    assert not alive(pid)
