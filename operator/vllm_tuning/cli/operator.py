"""``vllm-tuning operator``: run the operator, in a pod or beside a cluster."""

from __future__ import annotations

import os
from typing import Annotated

import typer


def operator(
    *,
    bench_image: Annotated[
        str,
        typer.Option(envvar="BENCH_IMAGE", help="Image of the benchmark pod's own containers."),
    ],
    bench_image_pull_policy: Annotated[
        str, typer.Option(envvar="BENCH_IMAGE_PULL_POLICY", help="Its pull policy.")
    ] = "IfNotPresent",
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", "-n", help="Serve this namespace; may be repeated."),
    ] = None,
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="Serve all namespaces.")
    ] = False,
    priority_class: Annotated[
        str | None,
        typer.Option(envvar="PRIORITY_CLASS", help="PriorityClass of benchmark pods."),
    ] = None,
    lease_namespace: Annotated[
        str, typer.Option(envvar="POD_NAMESPACE", help="Where the operator's Lease lives.")
    ] = "default",
    lease_name: Annotated[
        str, typer.Option(help="Name of the Lease: one working operator per name.")
    ] = "vllm-tuning-operator",
    quick: Annotated[
        bool, typer.Option(help="Short measurements, for tiny engines in demos and tests.")
    ] = False,
    kubeconfig: Annotated[
        str | None, typer.Option(envvar="KUBECONFIG", help="Outside a cluster: how to reach it.")
    ] = None,
    dcgm_namespace: Annotated[
        str, typer.Option(help="Namespace of the DCGM exporter; empty: it is not read.")
    ] = "",
    dcgm_selector: Annotated[
        str, typer.Option(help="Label selector of the DCGM exporter's pods.")
    ] = "app=nvidia-dcgm-exporter",
    dcgm_port: Annotated[
        int, typer.Option(help="Port of the DCGM exporter in its pod.", min=1, max=65535)
    ] = 9400,
    dcgm_scrape_seconds: Annotated[
        float, typer.Option(help="Seconds between two reads of the DCGM exporter.", min=0.1)
    ] = 2.0,
    health_port: Annotated[
        int, typer.Option(help="Port of /healthz for the probes; 0 = none.")
    ] = 8081,
    metrics_port: Annotated[
        int, typer.Option(help="Port of the Prometheus metrics; 0 = none.")
    ] = 8080,
    log_level: Annotated[str, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = "INFO",
) -> None:
    """Run the operator until it is told to stop; exit with an error if a part of it breaks."""
    import asyncio

    from prometheus_client import start_http_server

    from vllm_tuning.cluster.exporters import ExporterAddress
    from vllm_tuning.controller.logs import configure_logs
    from vllm_tuning.controller.operator import Options, run
    from vllm_tuning.reconcile.observed import Settings

    if bool(namespace) == all_namespaces:
        raise typer.BadParameter("say either --namespace NAME (one or more) or --all-namespaces")
    configure_logs(log_level)
    if metrics_port:
        start_http_server(metrics_port)
    in_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    if kubeconfig is not None:
        os.environ["KUBECONFIG"] = kubeconfig  # where kopf's own client looks
    asyncio.run(
        run(
            Options(
                settings=Settings(
                    bench_image=bench_image,
                    bench_image_pull_policy=bench_image_pull_policy,
                    priority_class=priority_class or None,
                    quick=quick,
                ),
                namespaces=tuple(namespace or ()),
                lease_namespace=lease_namespace,
                lease_name=lease_name,
                kubeconfig=None if in_pod else kubeconfig,
                health_port=health_port,
                exporter=ExporterAddress(
                    dcgm_namespace, dcgm_selector, dcgm_port, dcgm_scrape_seconds
                )
                if dcgm_namespace
                else None,
            )
        )
    )
