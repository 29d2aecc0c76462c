"""Take secrets out of text that leaves the engine's pod: start logs, command lines."""

from __future__ import annotations

import re
from collections.abc import Sequence

MASK = "***"

_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    # Tokens with a known shape: Hugging Face, OpenAI-like, GitHub, AWS access key ids, JSON web
    # tokens.
    (
        re.compile(
            r"\b(?:hf_[A-Za-z0-9]{8,}|sk-[\w-]{8,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
            r"|(?:AKIA|ASIA)[A-Z0-9]{16}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
        ),
        MASK,
    ),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}"), rf"\1 {MASK}"),
    (re.compile(r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)"), MASK),
    # All of --api-key VALUE, --api-key=VALUE, api_key='VALUE', 'api_key': ['VALUE'],
    # HF_TOKEN=VALUE, AWS_SECRET_ACCESS_KEY: VALUE
    (
        re.compile(
            r"(?i)((?:[\w-]*(?:api[_-]?key|secret|password|passwd|credential)[\w-]*|\b\w*[_-]?(?:auth|access|hf|hub|bearer)"
            r"[_-]?token)(?:['\"]?\s*[=:]\s*|\s+)\[?)(?P<quote>['\"]?)(?!\s*(?:None|null|True|False)\b)[^\s'\",\]})]+(?P=quote)"
        ),
        rf"\1\g<quote>{MASK}\g<quote>",
    ),
)

_SECRET_FLAG = re.compile(r"(?i)^--?[\w-]*(?:api[_-]?key|secret|password|token)$")


def redact(text: str) -> str:
    """``text`` with everything that looks like a secret masked. Idempotent."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line fit to be logged.

    The value behind ``--api-key`` and the like is masked, as in ``redact``.
    """
    shown: list[str] = []
    hide_next = False
    for item in argv:
        if hide_next and not item.startswith("-"):
            shown.append(MASK)
            continue
        hide_next = bool(_SECRET_FLAG.match(item))
        shown.append(redact(item))
    return tuple(shown)
