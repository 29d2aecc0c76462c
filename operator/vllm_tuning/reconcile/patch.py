"""The change of the target: two lists of one container, guarded, and a proof of who made it.

The guard tests the Deployment's uid, the container's name at its index, and the whole old list; if
any of them is not what the patch was computed from, nothing at all is written. Never ``replicas``,
never a read-modify-PUT.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from vllm_tuning.api.reasons import Reason
from vllm_tuning.api.status import Argv
from vllm_tuning.engine.args import edit_args
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.reconcile.names import ANNOTATION_APPLIED, ANNOTATION_APPLIED_BY
from vllm_tuning.reconcile.observed import Body
from vllm_tuning.reconcile.target import TUNED_FLAGS, Target
from vllm_tuning.tuning.flags import flag_changes
from vllm_tuning.tuning.model import Limits

Operation: TypeAlias = dict[str, Any]


def argv_of(container: Mapping[str, Any]) -> Argv:
    """Return what of a container is ours to change."""
    command, args = container.get("command"), container.get("args")
    return Argv(
        command=None if command is None else tuple(command),
        args=None if args is None else tuple(args),
    )


def edited(target: Target, limits: Limits) -> tuple[Argv, str] | Refusal:
    """Return the container's argv with the limits in it, and the difference for people."""
    edit = edit_args(target.container, flag_changes(limits), version=target.version)
    if isinstance(edit, Refusal):
        return Refusal(Reason.NOT_EDITABLE, f"{edit.reason}: {edit.message}")
    elsewhere = [
        key
        for key in {**target.container, **edit.container}
        if key not in ("command", "args") and target.container.get(key) != edit.container.get(key)
    ]
    if elsewhere:
        return Refusal(
            Reason.NOT_EDITABLE,
            f"the flags come from the container's {', '.join(sorted(elsewhere))}, which channel "
            f"Args does not touch; change it by hand:\n{edit.diff}",
        )
    return argv_of(edit.container), edit.diff


def without_tuned_flags(target: Target) -> Mapping[str, Any]:
    """Return the container as it would be without the flags that a recommendation may set."""
    edit = edit_args(target.container, dict.fromkeys(TUNED_FLAGS), version=target.version)
    return target.container if isinstance(edit, Refusal) else edit.container


def build_patch(
    deployment: Body,
    path: str,
    container: str,
    *,
    old: Argv,
    new: Argv,
    annotations: Mapping[str, str],
    version: str | None = None,
) -> tuple[Operation, ...]:
    """Build the guarded JSON Patch from ``old`` to ``new`` of the container at ``path``.

    With the ``version`` (``resourceVersion``) of a Deployment that has the ``old`` argv, that is
    the guard, and the argv is not tested: the API server compares strings as bytes of JSON, and its
    own encoding writes ``&``, ``<``, ``>`` and letters beyond ASCII otherwise than ours, so that a
    script would never match (``lazyNode.equal`` of evanphx/json-patch v4.13). Without a version the
    argv is tested, for people: kubectl encodes as the API server does.
    """
    guard = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    operations: list[Operation] = [
        {"op": "test", "path": "/metadata/uid", "value": deployment["metadata"]["uid"]},
        *([guard] if version is not None else []),
        {"op": "test", "path": f"{path}/name", "value": container},
        *_change(f"{path}/command", old.command, new.command, test=version is None),
        *_change(f"{path}/args", old.args, new.args, test=version is None),
    ]
    if deployment["metadata"].get("annotations") is None and annotations:
        operations.append({"op": "add", "path": "/metadata/annotations", "value": {}})
    operations += [
        {"op": "add", "path": f"/metadata/annotations/{key.replace('/', '~1')}", "value": value}
        for key, value in annotations.items()
    ]
    return tuple(operations)


def to_json(operations: Sequence[Operation]) -> str:
    """Write a patch for ``kubectl patch --type=json --patch``."""
    return json.dumps(operations, ensure_ascii=False)


def applied_annotations(hash_: str, tuning: str) -> dict[str, str]:
    """Annotations that prove which recommendation the target runs."""
    return {ANNOTATION_APPLIED: hash_, ANNOTATION_APPLIED_BY: tuning}


def applied_hash(deployment: Body) -> str | None:
    """Return the recommendation that the target says it runs."""
    found: str | None = (deployment["metadata"].get("annotations") or {}).get(ANNOTATION_APPLIED)
    return found


def _change(
    path: str, old: tuple[str, ...] | None, new: tuple[str, ...] | None, *, test: bool
) -> list[Operation]:
    """Test and replace one list. Absent before means that there is nothing to test, only to add."""
    if old == new:
        return []
    if old is None:
        return [{"op": "add", "path": path, "value": list(new or ())}]
    guard: list[Operation] = [{"op": "test", "path": path, "value": list(old)}] if test else []
    if new is None:
        return [*guard, {"op": "remove", "path": path}]
    return [*guard, {"op": "replace", "path": path, "value": list(new)}]
