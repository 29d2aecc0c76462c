"""The bench's side of the launcher's HTTP interface."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import aiohttp

from vllm_tuning.bench.launcher import PROTOCOL

_TIMEOUT = aiohttp.ClientTimeout(total=60)
_RETRY_SECONDS = 0.25


class LauncherError(Exception):
    """The launcher refused a request: the run cannot go on."""


class LauncherUnreachableError(LauncherError):
    """No launcher answers: its container has not started yet, restarts, or is gone."""


@dataclass(frozen=True, slots=True)
class LauncherInfo:
    """What the launcher knows about its container."""

    instance: str
    """New for every process of the launcher: tells a container that was restarted."""
    argv: tuple[str, ...]
    """The target's command and args as the kubelet expanded them."""
    env: Mapping[str, str]
    """The environment variables that a shell string in ``argv`` names."""
    python: str
    nvml: Mapping[str, Any]

    @property
    def gpus(self) -> list[Mapping[str, Any]]:
        """The devices that NVML shows in the engine's container."""
        return list(self.nvml["devices"])


@dataclass(frozen=True, slots=True)
class EngineState:
    """How the engine is; see the launcher's ``Engine``."""

    instance: str
    state: str
    pid: int | None
    exit_code: int | None
    seconds: float | None
    timed_out: bool
    detail: str | None
    host_oom_kills: int | None


class LauncherClient:
    """One launcher. Every method raises ``LauncherError``."""

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str) -> None:
        self._http = http
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"}

    async def wait(self, seconds: float) -> LauncherInfo:
        """Wait until the launcher answers: its container may start a little later than this one."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            try:
                return await self.info()
            except LauncherUnreachableError as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise LauncherUnreachableError(
                        f"no launcher answers at {self._url} after {seconds:g} s: "
                        "is the engine container running?"
                    ) from error
            await asyncio.sleep(_RETRY_SECONDS)

    async def info(self) -> LauncherInfo:
        """Ask what the launcher knows about its container."""
        body = await self._call("GET", "/v1/info")
        if body["protocol"] != PROTOCOL:
            raise LauncherError(
                f"the launcher speaks protocol {body['protocol']}, this bench {PROTOCOL}: "
                "the operator's images do not belong together"
            )
        return LauncherInfo(
            body["instance"], tuple(body["argv"]), body["env"], body["python"], body["nvml"]
        )

    async def start(
        self,
        *,
        argv: Sequence[str],
        env: Mapping[str, str | None],
        hook: bool,
        port: int,
        nonce: str,
        timeout_seconds: float,
    ) -> None:
        """Begin a start; follow it with ``engine``."""
        await self._call(
            "POST",
            "/v1/start",
            {
                "argv": list(argv),
                "env": dict(env),
                "hook": hook,
                "port": port,
                "nonce": nonce,
                "timeout_seconds": timeout_seconds,
            },
        )

    async def engine(self) -> EngineState:
        """Ask how the engine is."""
        return _state(await self._call("GET", "/v1/engine"))

    async def stop(self) -> EngineState:
        """End the engine; returns when nothing of it is left."""
        return _state(await self._call("POST", "/v1/stop"))

    async def log(self) -> str:
        """Fetch all that is kept of the present start's output: its first MiB and its end."""
        parts: list[str] = []
        position = 0
        while True:
            body = await self._call("GET", f"/v1/log?from={position}")
            if body["next"] <= position:
                return "".join(parts)
            if body["from"] > position:
                parts.append("\n[...]\n")
            parts.append(body["text"])
            position = body["next"]

    async def set_limits(self, limits: Mapping[str, int | bool | None]) -> None:
        """Ask for live limits; the engine's record says when they are in force."""
        await self._call("POST", "/v1/limits", dict(limits))

    async def records(self) -> list[dict[str, Any]]:
        """Fetch the hook's records, one for each data-parallel rank that has made its scheduler."""
        return list((await self._call("GET", "/v1/record"))["records"])

    async def gpu_samples(self, since: float) -> list[dict[str, Any]]:
        """Fetch GPU samples taken after ``since`` (unix seconds)."""
        return list((await self._call("GET", f"/v1/gpu?since={since!r}"))["samples"])

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        request = self._http.request(
            method, self._url + path, json=body, headers=self._headers, timeout=_TIMEOUT
        )
        try:
            async with request as response:
                answer = await response.json()
        except (aiohttp.ClientConnectionError, TimeoutError) as error:
            raise LauncherUnreachableError(f"{method} {path}: {error!r}") from error
        if response.status != HTTPStatus.OK:
            raise LauncherError(f"{method} {path}: {response.status} {answer.get('error')}")
        return answer


def _state(body: Mapping[str, Any]) -> EngineState:
    return EngineState(
        instance=body["instance"],
        state=body["state"],
        pid=body["pid"],
        exit_code=body["exit_code"],
        seconds=body["seconds"],
        timed_out=body.get("timed_out", False),
        detail=body.get("detail"),
        host_oom_kills=body.get("host_oom_kills"),
    )
