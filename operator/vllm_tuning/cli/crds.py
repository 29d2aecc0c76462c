"""``vllm-tuning crds``: print the CustomResourceDefinitions, or write them into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def crds(
    to: Annotated[
        Path | None,
        typer.Option(help="Write one file per kind into this folder.", file_okay=False),
    ] = None,
) -> None:
    """Print the CustomResourceDefinitions as one YAML stream, fit for ``kubectl apply -f -``."""
    from vllm_tuning.api.crd import KINDS
    from vllm_tuning.api.manifest import manifest

    if to is None:
        typer.echo("---\n".join(manifest(kind) for kind in KINDS), nl=False)
        return
    to.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        (to / f"{kind.plural}.yaml").write_text(manifest(kind), encoding="utf-8")
