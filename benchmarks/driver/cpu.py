"""CPU time of a command's whole process tree, at any moment of its life (Linux: proc(5))."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import numpy as np

POLL_SECONDS = 0.02
TREE_SECONDS = 0.5
"""How often new children are looked for."""

TICKS = os.sysconf("SC_CLK_TCK")


class TreeCPU:
    """Follows a process and its children until ``stop``; a thread that takes 1 % of a core."""

    def __init__(self, pid: int) -> None:
        self._root = pid
        self._times: list[float] = []
        self._spent: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def between(self, begin: float, end: float) -> float:
        """CPU seconds between two ``time.monotonic`` moments."""
        at = np.interp([begin, end], self._times, self._spent)
        return float(at[1] - at[0])

    def _follow(self) -> None:
        tree, looked, ended = {self._root: 0.0}, 0.0, 0.0
        while not self._over.wait(POLL_SECONDS):
            now = time.monotonic()
            if now - looked > TREE_SECONDS:
                looked = now
                for pid in descendants(self._root):
                    tree.setdefault(pid, 0.0)
            for pid, before in list(tree.items()):
                spent = cpu_seconds(pid)
                if spent is None:
                    # What a process has spent stays spent.
                    ended += before
                    del tree[pid]
                else:
                    tree[pid] = spent
            self._times.append(now)
            self._spent.append(ended + sum(tree.values()))


def cpu_seconds(pid: int) -> float | None:
    """User and system time of one process, all its threads; ``None`` = it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / TICKS


def descendants(pid: int) -> list[int]:
    """Children, their children, and so on."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in path.read_text().split()]
        except OSError:  # the thread has ended meanwhile
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found
