"""``vllm-tuning simulate MODEL [vLLM's own flags]``: vLLM's API on a simulated engine."""

from __future__ import annotations

import os
import sys

import typer

app = typer.Typer(add_completion=False)


@app.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def simulate(context: typer.Context) -> None:
    """Serve vLLM's API from a simulated engine.

    Takes the flags of ``vllm serve`` (and the word ``serve`` itself, so that an image can call this
    command ``vllm``). The physics and injected faults are chosen by ``SIMULATE_*`` variables.
    """
    from vllm_tuning.bench.sim.serve import serve
    from vllm_tuning.bench.sim.startlog import VERSION

    argv = list(context.args)
    if argv[:1] == ["serve"]:
        del argv[0]
    if argv in (["--version"], ["-v"]):
        typer.echo(VERSION)
        return
    try:
        code = serve(argv, os.environ)
    except ValueError as error:
        typer.echo(f"vllm-tuning simulate: {error}", err=True)
        code = 1
    sys.exit(code)
