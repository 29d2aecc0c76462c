"""Child processes of a container's PID 1.

Start them in a group of their own, reap them and every orphan.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.02


class Child:
    """A process that leads its own session and process group."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.exit_code: int | None = None
        """As the shell counts.

        128 + signal for a process that a signal ended; ``None`` while it lives.
        """
        self._ended = threading.Event()

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait until the process has ended; its exit code, or ``None`` when ``seconds`` ran out."""
        self._ended.wait(seconds)
        return self.exit_code

    def mark_ended(self, status: int) -> None:
        """Take the status that ``waitpid`` gave."""
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        self.exit_code = code
        self._ended.set()

    def terminate(self, grace_seconds: float) -> bool:
        """End the group: TERM to the leader, then KILL to the rest. True when nothing is left.

        Only the leader gets TERM, as from the kubelet: a server that shuts down in order stops its
        own workers.
        """
        with contextlib.suppress(ProcessLookupError):
            if not self._ended.is_set():
                os.kill(self.pid, signal.SIGTERM)
        self._ended.wait(grace_seconds)
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                return True
            except PermissionError:  # only zombies of other users are left
                return True
            time.sleep(_POLL_SECONDS)
        return False


class Reaper:
    """Owns ``waitpid``: nobody else in this process may wait for children."""

    def __init__(self) -> None:
        _become_subreaper()
        self._lock = threading.Lock()
        self._spawned = threading.Condition(self._lock)
        self._children: dict[int, Child] = {}
        threading.Thread(target=self._run, name="reaper", daemon=True).start()

    def spawn(self, argv: list[str], env: dict[str, str], output: int) -> Child:
        """Start ``argv`` in a new session, stdout and stderr to ``output``.

        Raises ``OSError`` when it cannot be run.
        """
        with self._lock:
            process = subprocess.Popen(  # noqa: S603 - running the target's own command is this program's purpose
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                close_fds=True,
            )
            process.returncode = 0  # the reaper waits for it; keeps Popen from a second wait
            child = Child(process.pid)
            self._children[child.pid] = child
            self._spawned.notify()
        return child

    def kill_strays(self) -> None:
        """KILL the children that this process did not spawn.

        What escaped the engine's group and became our orphan.
        """
        with self._lock:
            for pid in set(_children_of(os.getpid())) - set(self._children):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    def _run(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                with self._spawned:
                    self._spawned.wait(1.0)  # an orphan may be given to us without a spawn
                continue
            with self._lock:
                child = self._children.pop(pid, None)
            if child is not None:
                child.mark_ended(status)


def _become_subreaper() -> None:
    """Get the engine's orphans even where this is not PID 1 (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children_of(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(entry.parent.name))
    return found
