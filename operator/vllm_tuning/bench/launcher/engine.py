"""One engine at a time: start, readiness, end, and what is known about it."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from . import hookfiles
from .children import Child, Reaper
from .environment import engine_environment
from .log import LogBuffer, pump
from .readiness import served_models

STOP_GRACE_SECONDS = 8.0
CLOSE_GRACE_SECONDS = 2.0
"""When the launcher itself ends: nothing follows that an orderly end would serve."""
_READY_POLL_SECONDS = 0.25
_TAIL_BYTES = 16 << 10
_RUNNING = ("starting", "ready")


class BusyError(Exception):
    """An engine already runs: stop it first."""


class StartRequest:
    """A checked body of ``POST /v1/start``. Raises ``ValueError`` naming the wrong field."""

    def __init__(self, body: dict[str, Any]) -> None:
        argv = body.get("argv")
        if not isinstance(argv, list) or not argv or not all(isinstance(a, str) for a in argv):
            raise ValueError("argv must be a list of strings with at least one item")
        env = body.get("env") or {}
        if not isinstance(env, dict) or not all(
            v is None or isinstance(v, str) for v in env.values()
        ):
            raise ValueError("env must map names to strings, or to null to remove one")
        self.argv: list[str] = argv
        self.env: dict[str, str | None] = env
        self.hook = body.get("hook") is True
        self.port = int(body["port"])
        self.nonce = str(body["nonce"])
        self.timeout_seconds = float(body["timeout_seconds"])


class _Run:
    """The present start and all that belongs to it."""

    def __init__(self, number: int, request: StartRequest) -> None:
        self.number = number
        self.request = request
        self.state = "starting"
        self.began = time.monotonic()
        self.seconds: float | None = None
        self.child: Child | None = None
        self.log = LogBuffer()
        self.pump: threading.Thread | None = None
        self.hook_dir: Path | None = None
        self.detail: str | None = None
        self.timed_out = False
        self.oom_kills_before = _host_oom_kills()
        self.oom_kills: int | None = None


class Engine:
    """The engine's life: idle, starting, ready, then failed, exited or stopped."""

    def __init__(self, reaper: Reaper, hook_package: str | None) -> None:
        self._reaper = reaper
        self._hook_package = hook_package
        self._lock = threading.Lock()
        self._run: _Run | None = None
        self._number = 0

    def start(self, request: StartRequest) -> int:
        """Begin a start.

        Its number. Raises ``BusyError``, or ``ValueError`` for a hook that is not there.
        """
        if request.hook and self._hook_package is None:
            raise ValueError(
                "live limits were asked for, but no hook package lies beside the launcher"
            )
        with self._lock:
            if self._run is not None:
                if self._run.state in _RUNNING:
                    raise BusyError
                self._end(self._run)  # a failed one may still be dying
                self._clean(self._run)
            self._number += 1
            run = self._run = _Run(self._number, request)
            self._spawn(run)
        threading.Thread(target=self._watch, args=(run,), daemon=True).start()
        return run.number

    def describe(self) -> dict[str, Any]:
        """Body of ``GET /v1/engine``."""
        run = self._run
        if run is None:
            return {
                "state": "idle",
                "start": 0,
                "pid": None,
                "exit_code": None,
                "seconds": None,
                "log_tail": "",
            }
        return {
            "state": run.state,
            "start": run.number,
            "pid": run.child.pid if run.child else None,
            "exit_code": run.child.exit_code if run.child else None,
            "seconds": run.seconds if run.seconds is not None else time.monotonic() - run.began,
            "timed_out": run.timed_out,
            "detail": run.detail,
            "host_oom_kills": run.oom_kills,
            "log_tail": run.log.tail(_TAIL_BYTES),
        }

    def stop(self, grace_seconds: float = STOP_GRACE_SECONDS) -> None:
        """End the engine and everything it started; returns when nothing of it is left."""
        with self._lock:
            run = self._run
            if run is None or run.child is None:
                return
            if run.state in _RUNNING:
                self._settle(run, "stopped")
        self._end(run, grace_seconds)

    def read_log(self, start: int, limit: int) -> tuple[int, bytes]:
        """A part of the present start's log; see ``LogBuffer.read``."""
        return self._run.log.read(start, limit) if self._run else (0, b"")

    @property
    def hook_dir(self) -> Path | None:
        """Where the present engine's limits and records lie; ``None`` without hook or engine."""
        run = self._run
        return run.hook_dir if run is not None and run.state in _RUNNING else None

    def _spawn(self, run: _Run) -> None:
        request = run.request
        if request.hook:
            run.hook_dir = hookfiles.make_directory()
        env = engine_environment(
            dict(os.environ),
            request.env,
            hook_package=self._hook_package if request.hook else None,
            hook_dir=str(run.hook_dir) if run.hook_dir else None,
        )
        source, sink = os.pipe()
        try:
            run.child = self._reaper.spawn(request.argv, env, sink)
        except OSError as error:
            os.close(source)
            run.log.append(f"cannot run {request.argv[0]!r}: {error.strerror}\n".encode())
            run.detail = "command not runnable"
            self._settle(run, "failed")
            return
        finally:
            os.close(sink)
        run.pump = threading.Thread(
            target=pump, args=(source, run.log, sys.stdout.fileno()), daemon=True
        )
        run.pump.start()

    def _watch(self, run: _Run) -> None:
        """Follow a start to readiness, time-out or exit, and a ready engine to its exit."""
        child = run.child
        if child is None:
            return
        deadline = run.began + run.request.timeout_seconds
        while child.wait(_READY_POLL_SECONDS) is None:
            if run.state == "starting":
                if time.monotonic() > deadline:
                    run.timed_out = True
                    self._transition(run, "starting", "failed")
                    self._end(run)
                    return
                self._look_for_readiness(run)
            if run.state not in _RUNNING:
                return
        self._drain_log(run)
        run.oom_kills = _difference(_host_oom_kills(), run.oom_kills_before)
        self._transition(run, "starting", "failed")
        self._transition(run, "ready", "exited")
        child.terminate(0.0)  # workers that outlive their server hold the GPU's memory

    def _look_for_readiness(self, run: _Run) -> None:
        names = served_models(run.request.port)
        if names is None:
            return
        if run.request.nonce in names:
            self._transition(run, "starting", "ready")
        else:
            run.detail = f"another server answers on port {run.request.port}: it serves {names[:4]}"

    def _transition(self, run: _Run, old: str, new: str) -> None:
        with self._lock:
            if run.state == old and self._run is run:
                self._settle(run, new)

    def _settle(self, run: _Run, state: str) -> None:
        if run.state == "starting":
            run.seconds = time.monotonic() - run.began
        run.state = state

    def _end(self, run: _Run, grace_seconds: float = STOP_GRACE_SECONDS) -> None:
        if run.child is None:
            return
        if not run.child.terminate(grace_seconds):
            run.detail = "a process of the engine could not be killed"
        self._reaper.kill_strays()
        self._drain_log(run)

    @staticmethod
    def _drain_log(run: _Run) -> None:
        """Let the pump finish: the reason of a death stands in the last lines."""
        if run.pump is not None:
            run.pump.join(1.0)

    @staticmethod
    def _clean(run: _Run) -> None:
        if run.hook_dir is not None:
            hookfiles.remove_directory(run.hook_dir)

    def close(self) -> None:
        """Stop and remove what this process made."""
        self.stop(CLOSE_GRACE_SECONDS)
        if self._run is not None:
            self._clean(self._run)


def _host_oom_kills() -> int | None:
    """How often the kernel killed a process of this container for memory (cgroup v2).

    ``None`` = not known.
    """
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/sys/fs/cgroup/memory.events").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    return None


def _difference(now: int | None, before: int | None) -> int | None:
    return now - before if now is not None and before is not None else None
