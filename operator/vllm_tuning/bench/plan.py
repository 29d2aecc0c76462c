"""The command line of one start: the target's own, with the intended changes only.

Pure. What the benchmark needs is the same in every start, hook or not: it listens on the pod's
loopback at our port, without TLS and API key (no secret travels, no certificate has to match), and
also serves a name made up for this start, by which the launcher knows that the server that answers
is the one it started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vllm_tuning.engine.args import EngineArgs, edit_argv, read_args
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.tuning.flags import flag_changes
from vllm_tuning.tuning.model import Limits

HOST = "127.0.0.1"
_REMOVED = (
    "api_key",
    "uds",
    "ssl_keyfile",
    "ssl_certfile",
    "ssl_ca_certs",
    "ssl_cert_reqs",
    "enable_ssl_refresh",
)
_REMOVED_ENV = ("VLLM_API_KEY",)


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What to ask of the launcher, and what must come of it."""

    argv: tuple[str, ...]
    env: Mapping[str, str | None]
    model: str
    """The name that requests carry.

    The engine's first served name, which labels its metrics too.
    """
    nonce: str
    limits: Limits


def plan_start(
    original: Sequence[str],
    limits: Limits,
    *,
    nonce: str,
    port: int,
    env: Mapping[str, str] | None = None,
    version: str | None = None,
) -> StartPlan | Refusal:
    """Change the target's command line for one start.

    ``env`` holds the variables that a shell string in it names; ``version`` is the engine's where
    known.
    """
    args = read_args({"command": list(original)}, version=version, env=env)
    if args.refusal is not None:
        return args.refusal
    names = [*_served_names(args), nonce]
    # The served names are taken out and put in anew: "--served-model-name=M" has room for one only.
    removed = [name for name in ("served_model_name", *_REMOVED) if args.get(name) is not None]
    argv = edit_argv(original, dict.fromkeys(removed), version=version, env=env)
    if isinstance(argv, Refusal):
        return argv
    changes: dict[str, str | Sequence[str] | None] = {
        **flag_changes(limits),
        "host": HOST,
        "port": str(port),
        "served_model_name": names,
    }
    argv = edit_argv(argv, changes, version=version, env=env)
    if isinstance(argv, Refusal):
        return argv
    return StartPlan(tuple(argv), dict.fromkeys(_REMOVED_ENV), names[0], nonce, limits)


def _served_names(args: EngineArgs) -> list[str]:
    """The names of the target, so that its metrics keep their label; by default the model's."""
    given = args.get("served_model_name")
    if given is not None and given.items:
        return list(given.items)
    model = given or args.model
    return [model.value] if model is not None and model.value else []
