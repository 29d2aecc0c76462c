"""``vllm-tuning tune``: the same benchmark on this machine, without a cluster.

Reads the manifests a cluster would get, runs the target's engine as a child process under the same
launcher, and prints the same report. Nothing is written but the output directory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vllm_tuning.cli.output import fail, html_page, show_report

if TYPE_CHECKING:
    from vllm_tuning.api.effective import Effective
    from vllm_tuning.reconcile.target import Target
    from vllm_tuning.reconcile.traffic import ConfigMaps
    from vllm_tuning.report.model import Report
    from vllm_tuning.tuning.model import Problem


def tune(
    files: Annotated[
        list[Path],
        typer.Option(
            "--file", "-f", help="Manifests: one VLLMTuning, its Deployment, ConfigMaps it uses."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where events, report and patch are written.")] = Path(
        "vllm-tuning-out"
    ),
    engine_port: Annotated[int, typer.Option(help="Loopback port of the engine.")] = 8902,
    quick: Annotated[
        bool, typer.Option(help="Short measurements, for tiny engines; told in the report.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of arrivals, lengths and prompts.")] = 1,
) -> None:
    """Tune the engine of a Deployment's manifest on this machine.

    The engine must be installed here: the container's command is run as it stands. The exit status
    is 0 when the run came to an answer, 1 when it broke, 2 when the manifests cannot be used.
    """
    from vllm_tuning.bench.load import eventloop
    from vllm_tuning.bench.main import run_here
    from vllm_tuning.cli.progress import ProgressLines
    from vllm_tuning.reconcile.problem import build_problem

    wish, target, environment, config_maps = _read(files)
    problem = build_problem(wish, target, quick=quick, seed=seed)
    out.mkdir(parents=True, exist_ok=True)
    problem = _with_trace_file(problem, wish, config_maps, out / "trace")
    with (out / "events.jsonl").open("w") as events:
        stream = ProgressLines(events, sys.stderr)
        status = eventloop.run(
            run_here(
                problem,
                _argv(target, environment),
                stream,
                log=out / "engine.log",
                env=environment,
                engine_port=engine_port,
            )
        )
    report = _report(out, problem, target)
    _show(report, target, out)
    raise typer.Exit(status)


def _read(files: list[Path]) -> tuple[Any, Target, dict[str, str], ConfigMaps]:
    """Return the effective wish, the target, the environment it states, and all ConfigMaps."""
    from pydantic import ValidationError
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    from vllm_tuning.api.spec import VLLMTuningSpec
    from vllm_tuning.bench.launcher.gpu import open_devices
    from vllm_tuning.engine.outcome import Refusal
    from vllm_tuning.reconcile.devices import GPU_MEMORY_LABEL
    from vllm_tuning.reconcile.effective import resolve
    from vllm_tuning.reconcile.observed import Observed, Settings
    from vllm_tuning.reconcile.pod import GPU_PRODUCT_LABEL
    from vllm_tuning.reconcile.target import resolve_target
    from vllm_tuning.reconcile.traffic import with_trace

    documents: list[dict[str, Any]] = []
    for file in files:
        try:
            documents += [d for d in YAML(typ="safe").load_all(file.read_text()) if d]
        except (OSError, YAMLError) as error:
            fail(f"{file}: {error}")
    tunings = [d for d in documents if d.get("kind") == "VLLMTuning"]
    if len(tunings) != 1:
        fail(f"want exactly one VLLMTuning in the files, found {len(tunings)}")
    try:
        spec = VLLMTuningSpec.model_validate(tunings[0].get("spec") or {})
    except ValidationError as error:
        fail(f"the VLLMTuning is not valid: {error}")
    name = spec.target_ref.name
    deployment = next(
        (d for d in documents if d.get("kind") == "Deployment" and d["metadata"]["name"] == name),
        None,
    )
    if deployment is None:
        fail(f"no Deployment {name} in the files: add its manifest with -f")
    deployment["metadata"].setdefault("uid", "local")
    devices, _ = open_devices(os.environ)
    labels = {}
    if devices:
        told = devices[0].describe()
        labels = {
            GPU_PRODUCT_LABEL: str(told["name"]).replace(" ", "-"),
            GPU_MEMORY_LABEL: str((told.get("memory_bytes") or 0) // 2**20),
        }
    config_maps = {
        d["metadata"]["name"]: d.get("data") or {}
        for d in documents
        if d.get("kind") == "ConfigMap"
    }
    observed = Observed(
        tuning={"metadata": {"name": "local", "namespace": "local"}, "spec": tunings[0]["spec"]},
        settings=Settings(bench_image=""),
        target=deployment,
        target_nodes=(labels,),
        config_maps=config_maps,
    )
    target = resolve_target(observed, spec)
    if isinstance(target, Refusal):
        fail(f"{target.reason}: {target.message}")
    wish = with_trace(resolve(spec), config_maps)
    if isinstance(wish, Refusal):
        fail(f"{wish.reason}: {wish.message}")
    if not wish.slos:
        fail("nothing to hold: add slos or a profile to the VLLMTuning")
    return wish, target, _environment(target.container, config_maps), config_maps


def _with_trace_file(
    problem: Problem, wish: Effective, config_maps: ConfigMaps, path: Path
) -> Problem:
    """Put the workload's trace where the bench of this machine reads it."""
    from dataclasses import replace

    ref = wish.workload.trace_ref if wish.workload else None
    if ref is None:
        return problem
    path.write_bytes(config_maps[ref.name][ref.key].encode())
    return replace(problem, workload=replace(problem.workload, trace_path=str(path)))


def _environment(
    container: Mapping[str, Any], config_maps: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """This process's environment, with what the container's manifest states on top.

    Secrets and field references cannot be read here: set those variables yourself.
    """
    from vllm_tuning.engine.launch.variables import read_environment

    stated = read_environment(container, config_maps).variables
    return dict(os.environ) | {
        name: variable.value.text
        for name, variable in stated.items()
        if variable.value is not None and variable.value.known
    }


def _argv(target: Target, environment: Mapping[str, str]) -> list[str]:
    """The engine's command line, ``$(VAR)`` expanded as the kubelet would."""
    from vllm_tuning.engine.launch.variables import Environment, expand

    known = Environment.of_process(environment)
    words = [*target.entrypoint.command[3:], *target.entrypoint.args]  # behind python launcher --
    return [expand(word, ("argv", i), known).text for i, word in enumerate(words)]


def _report(out: Path, problem: Problem, target: Target) -> Report:
    from vllm_tuning.report.model import from_events, read_events

    events = read_events((out / "events.jsonl").read_text().splitlines())
    return from_events(
        events, title=target.name, target=f"Deployment {target.name}", problem=problem
    )


def _show(report: Report, target: Target, out: Path) -> None:
    import json

    from vllm_tuning.engine.args import Edit, edit_args
    from vllm_tuning.report.model import REPORT

    (out / "report.json").write_bytes(REPORT.dump_json(report, indent=2))
    show_report(report)
    if page := html_page(report):
        (out / "report.html").write_text(page)
    found = report.recommendation
    if found and found.limits and found.parameters:
        changes = {choice.name: choice.recommended for choice in found.parameters}
        edit = edit_args(target.container, changes, version=target.version)
        if isinstance(edit, Edit):
            (out / "patch.json").write_text(
                json.dumps(edit.json_patch(target.container_path), indent=2) + "\n"
            )
            typer.echo(
                f"\n{edit.diff}\n\nkubectl patch deployment {target.name} --type=json "
                f"--patch-file {out / 'patch.json'}"
            )
        else:
            typer.echo(f"set these flags yourself ({edit.message}): {changes}")
    typer.echo(f"written to {out}/: " + ", ".join(sorted(p.name for p in out.iterdir())))
