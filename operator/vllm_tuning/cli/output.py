"""What several commands say alike: why they cannot go on, and a run's report."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from vllm_tuning.report.model import Report


def fail(message: str) -> NoReturn:
    """Say on stderr why the command cannot do its work, and end it with 2."""
    typer.echo(message, err=True)
    raise typer.Exit(2)


def show_report(report: Report) -> None:
    """Print a report, with the whole tables where the terminal is wide enough."""
    from rich.console import Console

    from vllm_tuning.report.terminal import WIDE, render

    console = Console()
    console.print(render(report, wide=console.width >= WIDE))


def html_page(report: Report) -> str | None:
    """Return a report as a page; ``None``, with a word on stderr, where its extra is missing."""
    try:
        from vllm_tuning.report.html import render
    except ImportError:
        typer.echo("no HTML report: install vllm-tuning-operator[report]", err=True)
        return None
    return render(report)
