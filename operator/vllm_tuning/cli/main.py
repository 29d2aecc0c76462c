"""The entry point: a table of commands, each imported only when it is called.

The images need different halves of the package (no kopf in the bench image, no NVML in the
operator's), so a command
must not import what another command needs.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
import typer.core

COMMANDS = {
    "flags": "Read and edit the vLLM flags of a manifest.",
    "lint": "Find what will break or is silently ignored in a manifest's vLLM flags.",
    "tune": "Tune an engine on this machine, without a cluster.",
    "explain": "Explain a stored result, decision by decision.",
    "report": "Render a tuning's report: terminal, JSON or HTML.",
    "fleet": "Show every serving Deployment of a cluster and how it stands to its SLA.",
    "operator": "Run the operator.",
    "bench": "Run one benchmark (inside the benchmark pod).",
    "tools": "Write the launcher and the live-limits hook for the engine container.",
    "simulate": "Serve vLLM's API from a simulated engine.",
    "crds": "Print the CustomResourceDefinitions.",
}


class _LazyGroup(typer.core.TyperGroup):
    """Finds a command in ``vllm_tuning.cli.<name>``: ``app``, or a function named like it."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002 - click
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"vllm_tuning.cli.{cmd_name}")
        app = getattr(module, "app", None)
        if app is None:
            app = typer.Typer(add_completion=False)
            app.command(help=COMMANDS[cmd_name])(getattr(module, cmd_name))
        command = typer.main.get_command(app)
        command.name = cmd_name
        command.short_help = COMMANDS[cmd_name]
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - click
        """List the commands without importing them: help must work in every image."""
        typer.echo("Usage: vllm-tuning [--version] COMMAND [ARGS]...\n")
        typer.echo("Measure, prove and apply the batch limits of vLLM servers.\n\nCommands:")
        width = max(map(len, COMMANDS))
        for name, text in COMMANDS.items():
            typer.echo(f"  {name:<{width}}  {text}")
        typer.echo("\n'vllm-tuning COMMAND --help' tells more.")


app = typer.Typer(
    cls=_LazyGroup, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version("vllm-tuning-operator"))
        raise typer.Exit


@app.callback()
def _main(
    show: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Measure, prove and apply the batch limits of vLLM servers."""
