"""``vllm-tuning report``: render a run, from a tuning in the cluster or from its event log."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vllm_tuning.cli.kube import ContextOption, KubeconfigOption, NamespaceOption, ask_cluster
from vllm_tuning.cli.output import html_page, show_report

if TYPE_CHECKING:
    from vllm_tuning.cluster.client import Cluster
    from vllm_tuning.cluster.stored_runs import StoredRun
    from vllm_tuning.report.model import Report


class Format(StrEnum):
    """What the report is rendered to on stdout."""

    TERMINAL = "terminal"
    JSON = "json"


def report(  # noqa: PLR0917 - typer reads the signature
    source: Annotated[
        str,
        typer.Argument(
            metavar="NAME|FILE",
            help="A tuning in the cluster, or a file with a run's JSON lines (the bench "
            "container's log); '-' reads them from stdin. What exists as a file is a file, unless "
            "a namespace is given.",
        ),
    ],
    namespace: NamespaceOption = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="Rendering.")] = Format.TERMINAL,
    html: Annotated[
        Path | None,
        typer.Option(help="Write the page with all tables and plots to this file instead."),
    ] = None,
    title: Annotated[str, typer.Option(help="Heading; default: the tuning or the file.")] = "",
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Render a run's report: on the terminal, as JSON, or as one HTML page.

    A run that still goes on gives what is known so far. The JSON's schema is docs/reference/
    report.schema.json.
    """
    from vllm_tuning.report.model import REPORT

    if namespace is None and _is_file(source):
        value = _from_file(source, title)
    else:
        value = _from_cluster(source, title, namespace, kubeconfig, context)
    if html is not None:
        _write_page(value, html)
    elif output is Format.JSON:
        typer.echo(REPORT.dump_json(value, indent=2).decode())
    else:
        show_report(value)


def _is_file(source: str) -> bool:
    """Whether a file is meant. What looks like a path is one, so that a typo is told as such."""
    return source == "-" or os.sep in source or Path(source).exists()


def _from_file(file: str, title: str) -> Report:
    from vllm_tuning.report.model import from_events, read_events

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}") from error
    events = read_events(text.splitlines())
    if not events:
        raise typer.BadParameter(f"{file} holds no event of a benchmark run")
    return from_events(events, title=title or Path(file).stem)


def _from_cluster(
    name: str, title: str, namespace: str | None, kubeconfig: Path | None, context: str | None
) -> Report:
    from vllm_tuning.report.model import from_events

    async def read(cluster: Cluster, where: str) -> StoredRun:
        from vllm_tuning.cluster.stored_runs import read_run

        return await read_run(cluster, where, name)

    run = ask_cluster(read, namespace=namespace, kubeconfig=kubeconfig, context=context)
    return from_events(
        run.events,
        title=title or name,
        target=f"Deployment {run.target}",
        problem=run.problem,
        gpu_seconds=run.gpu_seconds,
    )


def _write_page(value: Report, file: Path) -> None:
    page = html_page(value)
    if page is None:
        raise typer.Exit(2)
    file.write_text(page)
    typer.echo(f"wrote {file}", err=True)
