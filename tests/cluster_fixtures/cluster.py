"""A real one-node cluster for a test session, and how a test talks to it.

The cluster has a network of its own that nothing outside can reach. So the test process itself
moves into that network (``setns``) for as long as the cluster stands: kubectl, helm, HTTP clients
and child processes then work from any shell, and no test can reach anything but the cluster. Only
the thread that asks moves; threads that it starts later follow.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "hack" / "cluster" / "cluster"
IMAGES = ROOT / "hack" / "images" / "build"
ENGINE = ROOT / "hack" / "engine" / "engine"
CLONE_NEWNET = 0x40000000  # linux/sched.h


class ClusterError(Exception):
    """The cluster's own tools failed; the message says how."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster. Its methods run programs in its network with its kubeconfig."""

    name: str
    state: Path
    """Folder of its logs (``log/``) and configuration."""

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.state / "admin.kubeconfig"

    @property
    def pid(self) -> int:
        """PID of the cluster's first process; its namespaces are ``/proc/PID/ns``."""
        return int((self.state / "init.pid").read_text())

    def exec(
        self, command: Sequence[str], *, stdin: str | None = None, timeout: float | None = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run a command; its exit code is the caller's business."""
        return subprocess.run(
            [str(SCRIPT), "exec", *command],
            env=os.environ | {"CLUSTER": self.name},
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def kubectl(
        self, *args: str, stdin: str | None = None, timeout: float | None = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl."""
        return self.exec(["kubectl", *args], stdin=stdin, timeout=timeout)

    def helm(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run helm."""
        return self.exec(["helm", *args])

    def image(self, name: str) -> str:
        """Build image ``operator``, ``bench``, ``simulated`` or ``engine`` from the tree if it has
        changed, load it into the node unless it is there, and return its reference.
        """
        with outside_network():  # building installs packages
            _run([str(IMAGES), "--load", name], self.name)
        return _run([str(IMAGES), "--names", name], self.name).splitlines()[-1]

    def load(self, archive: Path) -> None:
        """Import an image archive into the node."""
        _run([str(SCRIPT), "load", str(archive)], self.name)

    def gpu(self, count: int) -> None:
        """Give the node ``count`` pretended ``nvidia.com/gpu``."""
        _run([str(SCRIPT), "gpu", str(count)], self.name)

    def target(self, manifest: Path) -> str:
        """Return a manifest with this machine's paths of the real engine and the model."""
        return _run([str(ENGINE), "render", str(manifest)], self.name)


@contextmanager
def started(name: str) -> Iterator[Cluster]:
    """Start a cluster, and take it down however this process ends: it lives only while our end of
    a pipe is open.
    """
    _require_built()
    holder = subprocess.Popen(
        [str(SCRIPT), "hold"],
        env=os.environ | {"CLUSTER": name},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is ours to act on
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stderr is not None
    try:
        if holder.stdout.readline().strip() != "ready":
            holder.wait()
            raise ClusterError(f"the cluster did not start:\n{holder.stderr.read()}")
        yield existing(name)
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()
        holder.stderr.close()


def existing(name: str) -> Cluster:
    """Return a cluster that runs already."""
    kubeconfig = _run([str(SCRIPT), "kubeconfig"], name).strip()
    return Cluster(name=name, state=Path(kubeconfig).parent)


_home: list[int] = []
"""Descriptor of the network that this process came from, while it is in a cluster's."""


@contextmanager
def inside_network(pid: int) -> Iterator[None]:
    """Move the calling thread into the network namespace of a process, and back at the end."""
    with Path("/proc/thread-self/ns/net").open("rb") as home:
        with Path(f"/proc/{pid}/ns/net").open("rb") as there:
            _set_network(there.fileno())
        _home.append(home.fileno())
        try:
            yield
        finally:
            _home.pop()
            _set_network(home.fileno())


@contextmanager
def outside_network() -> Iterator[None]:
    """Move the calling thread back to where it came from, for a moment."""
    if not _home:
        yield
        return
    with Path("/proc/thread-self/ns/net").open("rb") as inside:
        _set_network(_home[-1])
        try:
            yield
        finally:
            _set_network(inside.fileno())


def _set_network(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)  # os.setns came with Python 3.12
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), "setns")


def _require_built() -> None:
    built = subprocess.run([str(SCRIPT), "built"], capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise ClusterError(
            f"{built.stderr}The cluster's tools are made once by: make cluster-build"
        )


def _run(command: list[str], cluster: str) -> str:
    done = subprocess.run(
        command,
        env=os.environ | {"CLUSTER": cluster},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout
