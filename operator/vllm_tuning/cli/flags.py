"""``vllm-tuning flags``: read and edit the launch args in a manifest."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from vllm_tuning.engine.args import EngineArgs
from vllm_tuning.engine.flags.table import FlagTable, table_for
from vllm_tuning.engine.launch.edit import Value
from vllm_tuning.engine.manifest.edit import parse, patches_as_json, read_engine, set_flags
from vllm_tuning.engine.manifest.workloads import Engine, Misfit, find_engines
from vllm_tuning.engine.outcome import Refusal

EXIT_REFUSED = 3
"""Nothing was changed; stderr says why and what to change instead."""

app = typer.Typer(add_completion=False, no_args_is_help=True)

FileOption = Annotated[
    str, typer.Option("--filename", "-f", help="Manifest file; - reads standard input.")
]
VersionOption = Annotated[
    str | None,
    typer.Option("--vllm-version", help="vLLM's version, if the image's tag does not tell it."),
]
ContainerOption = Annotated[
    str | None,
    typer.Option("--container", "-c", help="Container, or Kind/name, if several run vLLM."),
]


class Output(StrEnum):
    """Formats of ``flags show``."""

    TABLE = "table"
    JSON = "json"


def read_text(filename: str) -> str:
    """The file's text, line breaks as they are; ``-`` is standard input."""
    try:
        raw = sys.stdin.buffer.read() if filename == "-" else Path(filename).read_bytes()
        return raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        typer.echo(f"can't read {filename}: {error}", err=True)
        raise typer.Exit(2) from error


def refuse(refusal: Refusal) -> NoReturn:
    """Say why and exit with the code that scripts look for."""
    typer.echo(f"refused: {refusal}", err=True)
    raise typer.Exit(EXIT_REFUSED)


@app.command()
def show(
    filename: FileOption,
    output: Annotated[Output, typer.Option("--output", "-o", help="Format.")] = Output.TABLE,
    version: VersionOption = None,
) -> None:
    """Show the flags that each engine of a manifest will use, and where each value comes from."""
    stream = parse(read_text(filename))
    if isinstance(stream, Refusal):
        refuse(stream)
    containers = []
    for finding in find_engines(stream.values):
        if isinstance(finding, Misfit):
            containers.append(_misfit(finding))
        else:
            args = read_engine(finding, stream.values, version)
            containers.append(_container(finding, args, version))
    if not containers:
        refuse(Refusal("NoEngineContainer", "the manifest starts vLLM nowhere"))
    if output is Output.JSON:
        typer.echo(json.dumps({"containers": containers}, indent=2))
        return
    for container in containers:
        _print_container(container)


def _misfit(misfit: Misfit) -> dict[str, Any]:
    refusal = {"reason": misfit.refusal.reason, "message": misfit.refusal.message}
    return {"object": misfit.title, "name": None, "form": None, "flags": {}, "refusal": refusal}


def _container(engine: Engine, args: EngineArgs, version: str | None) -> dict[str, Any]:
    described: dict[str, Any] = {
        "object": f"{engine.kind}/{engine.object_name}",
        "name": engine.name,
        "form": args.form,
        "program": args.program,
        "version": version or engine.version,
        "table": args.table.release,
        "model": args.model and args.model.value,
        "flags": {
            name: {"value": v.value, "source": v.source, "where": v.where}
            for name, v in args.flags.items()
        },
    }
    if args.unknown is not None:
        described["unknown"] = args.unknown
    if args.refusal is not None:
        described["refusal"] = {"reason": args.refusal.reason, "message": args.refusal.message}
    return described


def _print_container(container: dict[str, Any]) -> None:
    typer.echo(f"{container['object']} container={container['name']} form={container['form']}")
    if refusal := container.get("refusal"):
        typer.echo(f"  not read: {refusal['message']}")
    if unknown := container.get("unknown"):
        typer.echo(f"  `{unknown}` is not known from the manifest and may hold more flags")
    width = max((len(name) for name in container["flags"]), default=0)
    for name, flag in container["flags"].items():
        value = "(not known)" if flag["value"] is None else flag["value"]
        typer.echo(f"  {name:<{width}}  {value:<24}  {flag['source']} {flag['where']}")


@app.command("set")
def set_(  # noqa: PLR0917 - typer reads the signature
    changes: Annotated[
        list[str], typer.Argument(help="name=value, or name- to remove; a,b for list flags.")
    ],
    filename: FileOption,
    container: ContainerOption = None,
    version: VersionOption = None,
    diff: Annotated[bool, typer.Option("--diff", help="Print a unified diff.")] = False,
    json_patch: Annotated[
        bool, typer.Option("--json-patch", help="Print a JSON patch that tests the old values.")
    ] = False,
) -> None:
    """Set flags in a manifest and print the result; every other byte stays.

    Exit code 3 and a reason: the edit would not be safe, nothing was printed.
    """
    edit = set_flags(
        read_text(filename),
        _parse_changes(changes, table_for(version)),
        container=container,
        version=version,
    )
    if isinstance(edit, Refusal):
        refuse(edit)
    if json_patch:
        typer.echo(patches_as_json(edit))
    elif diff:
        typer.echo(edit.diff, nl=False)
    else:
        sys.stdout.buffer.write(edit.text.encode("utf-8"))


def _parse_changes(changes: list[str], table: FlagTable) -> dict[str, Value]:
    parsed: dict[str, Value] = {}
    for change in changes:
        name, equals, value = change.partition("=")
        removed = not equals and change.endswith("-")
        if not equals and not removed:
            typer.echo(f"`{change}` is neither name=value nor name-", err=True)
            raise typer.Exit(2)
        name = name.removesuffix("-") if removed else name
        name = name.removeprefix("--").replace("-", "_")
        flag = table.get(name)
        is_list = flag is not None and flag.is_list
        parsed[name] = None if removed else (value.split(",") if is_list else value)
    return parsed
