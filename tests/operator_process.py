"""The operator as a process of its own, as its own ServiceAccount with the rights of the chart.

It runs beside the cluster instead of in a pod, so that a test may kill it at the worst moment. What
it may do is the same: the chart's Role for one namespace, and nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import yaml

from tests.api_proxy import APIProxy, kubeconfig_for
from tests.cluster_fixtures.cluster import ROOT, Cluster
from tests.rest import path_of
from tests.user import User

CHART = ROOT / "charts" / "vllm-tuning-operator"
CRDS = ROOT / "crds"
RELEASE = "op"
LEASE_NAME = "vllm-tuning-operator"


class Operator(User):
    """Installs the chart without a Deployment, and runs its operator as a process.

    It is also a user of its namespace. Waiting starts it again when it was killed.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        folder: Path,
        bench_image: str,
        *options: str,
        everywhere: bool = False,
    ) -> None:
        """``everywhere``: serve all namespaces, not only the operator's own."""
        super().__init__(cluster, namespace)
        self._folder = folder
        self._scope = "Cluster" if everywhere else "Namespaced"
        served = "--all-namespaces" if everywhere else f"--namespace={namespace}"
        self._options = (served, f"--bench-image={bench_image}", *options)
        self._process: subprocess.Popen[bytes] | None = None
        self.proxy = APIProxy(cluster.kubeconfig)
        self.starts = 0

    def __enter__(self) -> Self:
        self.proxy.__enter__()
        self._install()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.proxy.__exit__()
        self.cluster.helm("uninstall", RELEASE, "-n", self.namespace)

    def start(self, *, wait_for_lease: bool = False) -> None:
        """Start it, or start it again.

        A dead predecessor's Lease is removed unless the test is about waiting for its end.
        """
        self.starts += 1
        if not wait_for_lease:
            self.rest.request("DELETE", path_of("leases", self.namespace, LEASE_NAME))
        log = (self._folder / "operator.log").open("ab")
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "vllm_tuning",
                "operator",
                f"--lease-namespace={self.namespace}",
                f"--kubeconfig={self._folder / 'kubeconfig'}",
                "--health-port=0",
                "--metrics-port=0",
                *self._options,
            ],
            env={k: v for k, v in os.environ.items() if k != "KUBERNETES_SERVICE_HOST"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        log.close()

    def kill(self) -> None:
        """SIGKILL, as the out-of-memory killer would."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """Everything that all its processes have said."""
        return (self._folder / "operator.log").read_text()

    @property
    def jobs_made(self) -> int:
        """How many Jobs all its processes have created."""
        jobs = [w for w in self.proxy.accepted if w[0] == "POST" and w[1].endswith("/jobs")]
        return len(jobs)

    def _meanwhile(self) -> None:
        """Start the operator again whenever it was killed."""
        if not self.running:
            self.start()

    def _tell(self) -> str:
        return f"{super()._tell()}\n{self.log[-4000:]}"

    def _install(self) -> None:
        for command in (*_crd_commands(self.cluster.name), self._helm()):
            done = self.cluster.exec(command)
            assert done.returncode == 0, done.stderr
        (deployment,) = self.items("deployments")
        account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
        answer = self.must(
            "POST",
            f"api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token",
            {"spec": {"expirationSeconds": 14_400}},
        )
        config = kubeconfig_for(self.proxy.url, answer["status"]["token"])
        (self._folder / "kubeconfig").write_text(yaml.safe_dump(config))

    def _helm(self) -> tuple[str, ...]:
        return (
            "helm",
            "upgrade",
            "--install",
            RELEASE,
            str(CHART),
            f"--namespace={self.namespace}",
            f"--set=operator.replicas=0,crds.install=false,scope.type={self._scope}",
        )


_installed: set[str] = set()


def _crd_commands(cluster: str) -> tuple[tuple[str, ...], ...]:
    """The CRDs: once per cluster."""
    if cluster in _installed:
        return ()
    _installed.add(cluster)
    return (
        ("kubectl", "apply", "--server-side", "--force-conflicts", "-f", str(CRDS)),
        ("kubectl", "wait", "--for=condition=Established", "--timeout=30s", "-f", str(CRDS)),
        # lists are answered with 429 for a moment more; kubectl waits and asks again
        ("kubectl", "get", "vt,vtrial,vsp", "--all-namespaces"),
    )


def a_target(name: str, image: str, **container: Any) -> dict[str, Any]:
    """A Deployment as a user writes it, whose engine starts in a second."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": 1,
                    "containers": [
                        {
                            "name": "vllm",
                            "image": image,
                            "imagePullPolicy": "IfNotPresent",
                            "command": ["vllm", "serve"],
                            "args": [
                                "/model",
                                "--max-num-seqs=2",
                                "--max-num-batched-tokens=2048",
                                "--max-model-len=4096",
                                "--port=8000",
                            ],
                            "readinessProbe": {
                                "httpGet": {"path": "/health", "port": 8000},
                                "periodSeconds": 1,
                            },
                            "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}},
                            **container,
                        }
                    ],
                },
            },
        },
    }


def a_tuning(name: str, target: str | None = None, **spec: Any) -> dict[str, Any]:
    """A short tuning; ``quick`` because the engine is tiny."""
    return {
        "apiVersion": "vllmtuning.io/v1alpha1",
        "kind": "VLLMTuning",
        "metadata": {"name": name, "annotations": {"vllmtuning.io/quick": "true"}},
        "spec": {
            "targetRef": {"name": target or name},
            "slos": [{"metric": "TTFT", "percentile": 95, "maxMilliseconds": 500}],
            **spec,
        },
    }
