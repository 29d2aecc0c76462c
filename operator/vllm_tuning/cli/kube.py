"""How a command that reads a cluster finds it: as kubectl does, and inside a pod by its account."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from vllm_tuning.cli.output import fail

if TYPE_CHECKING:
    from vllm_tuning.cluster.client import Cluster

T = TypeVar("T")

NamespaceOption = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="Namespace; default: the context's, as for kubectl."),
]
KubeconfigOption = Annotated[
    Path | None, typer.Option(help="Kubeconfig file; default: $KUBECONFIG or ~/.kube/config.")
]
ContextOption = Annotated[
    str | None, typer.Option(help="Context of the kubeconfig; default: its current one.")
]


def ask_cluster(
    task: Callable[[Cluster, str], Awaitable[T]],
    *,
    namespace: str | None,
    kubeconfig: Path | None,
    context: str | None,
) -> T:
    """Run ``task(cluster, namespace)``; what keeps it from an answer ends the command with 2."""
    try:
        from kubernetes.aio.config import ConfigException

        from vllm_tuning.cluster.client import connect, current_namespace
        from vllm_tuning.cluster.errors import ClusterError
    except ImportError:
        fail("reading a cluster needs the client: install vllm-tuning-operator[operator]")
    path = str(kubeconfig) if kubeconfig else None

    async def run() -> T:
        where = namespace or current_namespace(path, context)
        async with connect(path, context) as cluster:
            return await task(cluster, where)

    try:
        return asyncio.run(run())
    except ConfigException as error:
        fail(f"no cluster to ask: {error}")
    except ClusterError as error:
        fail(str(error))
