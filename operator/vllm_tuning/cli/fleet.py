"""``vllm-tuning fleet``: every serving Deployment of a cluster, and how it stands to its SLA."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from vllm_tuning.cli.kube import ContextOption, KubeconfigOption, ask_cluster

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from vllm_tuning.cluster.client import Cluster
    from vllm_tuning.reconcile.fleet_rows import FleetRow

WIDE = 120
"""Columns of a terminal from which the whole table fits."""
_STYLES = {"Missing": "red", "Unknown": "yellow", "Meeting": "green"}


class Format(StrEnum):
    """What the fleet is written as."""

    TABLE = "table"
    JSON = "json"


def fleet(
    *,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only this namespace; default: all.")
    ] = None,
    output: Annotated[Format, typer.Option("--output", "-o", help="Rendering.")] = Format.TABLE,
    missing: Annotated[
        bool, typer.Option("--missing", help="Only those whose metrics miss their SLA now.")
    ] = False,
    kubeconfig: KubeconfigOption = None,
    context: ContextOption = None,
) -> None:
    """Show all Deployments that run vLLM: SLA as measured and as served, limits, what is advised.

    LIVE comes from the pods' own metrics, which the operator reads where a VLLMSLAPolicy selects
    the Deployment; Unknown is what those metrics can not tell.
    """
    from vllm_tuning.cluster.fleet import read_fleet

    async def read(cluster: Cluster, _: str) -> tuple[FleetRow, ...]:
        return await read_fleet(cluster, namespace)

    rows = ask_cluster(read, namespace=namespace, kubeconfig=kubeconfig, context=context)
    if missing:
        rows = tuple(row for row in rows if row.live == "Missing")
    if output is Format.JSON:
        import json

        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    from rich.console import Console

    console = Console()
    console.print(table(rows, wide=console.width >= WIDE))
    for row in rows:
        if row.live == "Missing":
            console.print(f"{row.namespace}/{row.deployment}: {row.why}", style="red")
    if not rows:
        console.print("no Deployment here runs vLLM")


def table(rows: tuple[FleetRow, ...], *, wide: bool = True) -> Table:
    """Return the fleet as a table; reads well without colours.

    ``wide`` asks for ``WIDE`` columns; else it leaves out who wishes what and keeps to how it is.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD)
    shown = [column for column in _COLUMNS if wide or column.narrow]
    for column in shown:
        made.add_column(column.name, justify="right" if column.number else "left", overflow="fold")
    for row in rows:
        made.add_row(*(_cell(column, row) for column in shown))
    return made


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    value: Callable[[FleetRow], str | None]
    narrow: bool = True
    number: bool = False


def _change(now: int | None, then: int | None) -> str | None:
    """Return ``4 → 64``, or the one that is known."""
    if now is None or then is None or now == then:
        return None if now is None else str(now)
    return f"{now} → {then}"


_COLUMNS = (
    _Column("NAMESPACE", lambda row: row.namespace),
    _Column("DEPLOYMENT", lambda row: row.deployment),
    _Column("TUNING", lambda row: row.tuning, narrow=False),
    _Column("MODE", lambda row: row.mode, narrow=False),
    _Column("STAGE", lambda row: row.stage, narrow=False),
    _Column("SLO", lambda row: row.sla),
    _Column("LIVE", lambda row: row.live),
    _Column(
        "SEQS", lambda row: _change(row.max_num_seqs, row.recommended_max_num_seqs), number=True
    ),
    _Column(
        "TOKENS",
        lambda row: _change(row.max_num_batched_tokens, row.recommended_max_num_batched_tokens),
        number=True,
    ),
    _Column(
        "GAIN",
        lambda row: None if row.gain_percent is None else str(row.gain_percent),
        number=True,
    ),
    _Column("APPLIED", lambda row: row.applied, narrow=False),
    _Column("POLICIES", lambda row: ", ".join(row.policies), narrow=False),
)


def _cell(column: _Column, row: FleetRow) -> Text:
    from rich.text import Text

    value = column.value(row) or "-"
    return Text(value, style=_STYLES.get(value, ""))
