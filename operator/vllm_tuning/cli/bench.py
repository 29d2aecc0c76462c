"""``vllm-tuning bench``: the main container of a benchmark pod."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def bench(
    spec: Annotated[Path, typer.Option(help="The run's spec, JSON.", exists=True, dir_okay=False)],
) -> None:
    """Run one benchmark and print its events, one JSON line each.

    The exit status is 0 when the run came to an answer, 1 when it broke, 2 when the spec cannot be
    read.
    """
    from pydantic import ValidationError

    from vllm_tuning.bench.load import eventloop
    from vllm_tuning.bench.main import run_bench
    from vllm_tuning.tuning.run import RUN_SPEC, VERSION

    text = spec.read_text()
    found = json.loads(text).get("version", VERSION)
    if found != VERSION:
        typer.echo(
            f"{spec} has version {found}, this bench reads version {VERSION}: "
            "operator and bench image must be of the same release",
            err=True,
        )
        raise typer.Exit(2)
    try:
        run_spec = RUN_SPEC.validate_json(text)
    except ValidationError as error:
        typer.echo(f"{spec} is no run spec: {error}", err=True)
        raise typer.Exit(2) from error

    raise typer.Exit(eventloop.run(run_bench(run_spec)))
