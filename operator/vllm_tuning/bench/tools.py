"""What the engine container needs from us, as files: launcher, live-limits hook, token.

::

    DIR/launcher.pyz                           the launcher, with pynvml inside when it is installed
    here DIR/hook/vllm_tuning_hook/                 the hook, to be put on PYTHONPATH
    DIR/hook/vllm_tuning_hook-*.dist-info/     its entry point in the group vllm.general_plugins
"""

from __future__ import annotations

import importlib.util
import secrets
import zipfile
from collections.abc import Iterator
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from vllm_tuning.bench.launcher.environment import PLUGIN

LAUNCHER_NAME = "launcher.pyz"
_LAUNCHER_PACKAGE = "vllm_tuning_launcher"
_HOOK_PACKAGE = "vllm_tuning_hook"
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)
_MAIN = f"""import sys

from {_LAUNCHER_PACKAGE}.main import main

sys.exit(main())
"""


def write_tools(directory: Path) -> Path:
    """Write launcher and hook into ``directory``; the path of the launcher."""
    directory.mkdir(parents=True, exist_ok=True)
    launcher = directory / LAUNCHER_NAME
    _write_launcher(launcher)
    _write_hook(directory / "hook")
    return launcher


def write_token(path: Path) -> str:
    """Make a token that whoever can read the file may use.

    The engine's container and the bench's run as different users, so the file is readable by all;
    it lies in a volume that only containers of this pod mount.
    """
    token = secrets.token_urlsafe(32)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(token)
    path.chmod(0o444)
    return token


def _write_launcher(path: Path) -> None:
    """Same input, same bytes: the archive carries no times and no order of the file system."""
    members = {"__main__.py": _MAIN.encode()}
    for name, data in _sources("launcher"):
        members[f"{_LAUNCHER_PACKAGE}/{name}"] = data
    nvml = importlib.util.find_spec("pynvml")
    if nvml is not None and nvml.origin is not None:
        members["pynvml.py"] = Path(nvml.origin).read_bytes()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(members):
            archive.writestr(zipfile.ZipInfo(name, _ZIP_TIME), members[name], zipfile.ZIP_DEFLATED)
    path.chmod(0o644)


def _write_hook(directory: Path) -> None:
    release = version("vllm-tuning-operator")
    package = directory / _HOOK_PACKAGE
    metadata = directory / f"{_HOOK_PACKAGE}-{release}.dist-info"
    for folder in (package, metadata):
        folder.mkdir(parents=True, exist_ok=True)
    for name, data in _sources("hook"):
        (package / name).write_bytes(data)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {_HOOK_PACKAGE}\nVersion: {release}\n"
    )
    (metadata / "entry_points.txt").write_text(
        f"[vllm.general_plugins]\n{PLUGIN} = {_HOOK_PACKAGE}:register\n"
    )


def _sources(package: str) -> Iterator[tuple[str, bytes]]:
    for entry in files("vllm_tuning.bench").joinpath(package).iterdir():
        if entry.name.endswith(".py"):
            yield entry.name, entry.read_bytes()
