"""Write ``docs/tour.md``: the story on a control plane of its own (``make tour``).

``TUNING_CLUSTER=NAME`` uses a cluster that runs already.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from hack.tour.bench import measure
from hack.tour.transcript import Transcript
from tests.cluster_fixtures.cluster import ROOT, Cluster, existing, inside_network, started
from tests.operator_process import Operator
from tests.played_node import PlayedNode

PAGE = ROOT / "docs" / "tour.md"
SO_FAR = ROOT / "build" / "tour.md"
"""What was typed, also where the story broke off."""
NAMESPACE = "serving"
IMAGE = "vllm-tuning-bench:tour"
COMMAND_SECONDS = 280


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGE)
    page = write()
    parser.parse_args().out.write_text(page)


def write() -> str:
    """Live the story; returns the page. Raises ``TourError`` where the product departs from it."""
    with _cluster() as cluster, TemporaryDirectory() as folder:
        return tell(cluster, Path(folder))


def tell(cluster: Cluster, folder: Path) -> str:
    """The same on a cluster in whose network this process is."""
    cluster.kubectl("create", "namespace", NAMESPACE)
    home = folder / "home"
    shutil.copytree(Path(__file__).parent / "manifests", home)
    config = home / "kubeconfig"
    shutil.copy(cluster.kubeconfig, config)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "KUBERNETES_SERVICE_HOST"},
        "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
        "COLUMNS": "150",
    }

    def shell(command: str) -> subprocess.CompletedProcess[str]:
        script = f"export KUBECONFIG={config} && cd {home} && {command}"
        argv = [str(ROOT / "hack/cluster/cluster"), "exec", "bash", "-c", script]
        return subprocess.run(
            argv,
            env=environment | {"CLUSTER": cluster.name},
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    shell(f"kubectl config set-context --current --namespace={NAMESPACE}")
    with Operator(cluster, NAMESPACE, folder, IMAGE) as operator:
        node = PlayedNode(operator, measure)
        transcript = Transcript(shell)
        with _playing(node):
            try:
                return transcript.page()
            finally:
                SO_FAR.parent.mkdir(exist_ok=True)
                SO_FAR.write_text("\n".join(transcript.lines) + "\n")
                shell("kubectl delete vsp interactive --ignore-not-found")
                shell(f"kubectl delete namespace {NAMESPACE} --wait=false")


@contextmanager
def _playing(node: PlayedNode) -> Iterator[None]:
    """Let pods go on while commands wait."""
    over = threading.Event()

    def play() -> None:
        while not over.wait(0.3):
            node.step()

    thread = threading.Thread(target=play, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _cluster() -> Iterator[Cluster]:
    name = os.environ.get("TUNING_CLUSTER")
    if name:
        running = existing(name)
        with inside_network(running.pid):
            yield running
        return
    with started(f"tour-{uuid.uuid4().hex[:8]}") as running, inside_network(running.pid):
        yield running


if __name__ == "__main__":
    main()
