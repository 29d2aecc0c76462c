"""``vllm-tuning tools``: the init container of a benchmark pod."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from vllm_tuning.bench.launcher.main import DEFAULT_TOKEN_FILE


def tools(
    to: Annotated[Path, typer.Option(help="Directory that the engine container mounts.")],
    token_file: Annotated[
        Path | None,
        typer.Option(help=f"Where to write the token (default: {DEFAULT_TOKEN_FILE})."),
    ] = None,
) -> None:
    """Write the launcher, the live-limits hook and a one-time token."""
    from vllm_tuning.bench.tools import write_token, write_tools

    launcher = write_tools(to)
    token = token_file or Path(os.environ.get("TUNING_TOKEN_FILE", DEFAULT_TOKEN_FILE))
    write_token(token)
    typer.echo(f"wrote {launcher} and the token {token}")
