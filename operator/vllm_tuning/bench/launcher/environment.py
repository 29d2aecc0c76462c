"""The engine's environment.

The container's own, extended by the hook and cleaned of what would disturb a run.
"""

from __future__ import annotations

import os

PLUGIN = "vllm_tuning_limits"
"""Name of the hook's entry point in the group ``vllm.general_plugins``."""
HOOK_DIR = "TUNING_HOOK_DIR"
_OWN_PREFIX = "TUNING_"


def engine_environment(
    base: dict[str, str],
    changes: dict[str, str | None],
    *,
    hook_package: str | None,
    hook_dir: str | None,
) -> dict[str, str]:
    """Environment of one start. ``hook_package`` and ``hook_dir`` are set together, or not at all.

    ``PYTHONPATH`` and ``VLLM_PLUGINS`` are extended, never replaced. An unset ``VLLM_PLUGINS``
    loads every plugin, so it stays unset. vLLM's usage statistics are off: a benchmark is nobody's
    usage.
    """
    env = {name: value for name, value in base.items() if not name.startswith(_OWN_PREFIX)}
    env["VLLM_NO_USAGE_STATS"] = "1"
    env.setdefault("PYTHONUNBUFFERED", "1")
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    if hook_package is not None and hook_dir is not None:
        env[HOOK_DIR] = hook_dir
        env["PYTHONPATH"] = _joined(env.get("PYTHONPATH"), hook_package, os.pathsep)
        if "VLLM_PLUGINS" in env:
            env["VLLM_PLUGINS"] = _joined(env["VLLM_PLUGINS"], PLUGIN, ",")
    return env


def _joined(old: str | None, new: str, separator: str) -> str:
    parts = [part for part in (old or "").split(separator) if part]
    return separator.join(parts if new in parts else [*parts, new])
