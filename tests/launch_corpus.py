"""The corpus of manifests: each file says in its head what reading and editing it must give."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DIRECTORY = Path(__file__).with_name("corpus")
EDIT = {"max_num_seqs": "96", "max_num_batched_tokens": "4096"}
"""What every file is edited to."""


@dataclass(frozen=True)
class Case:
    """One manifest and what is expected of it."""

    name: str
    text: str
    form: str
    """Row of the table in the docs."""
    read: dict[str, str | None]
    """Flag values; ``None`` = set but not known."""
    read_refusal: str | None
    edit_refusal: str | None


def load() -> list[Case]:
    """All cases, by name."""
    files = sorted(p for p in DIRECTORY.iterdir() if p.suffix in (".yaml", ".json"))
    return [_parse(path) for path in files]


def _parse(path: Path) -> Case:
    text = path.read_bytes().decode()
    head = {}
    for line in text.splitlines()[:3]:
        key, _, value = line.removeprefix("# ").partition(": ")
        head[key] = value
    refused = head["read"].startswith("refuse ")
    pairs = [] if refused else [pair.split("=", 1) for pair in head["read"].split()]
    read = {n: None if v == "?" else v.replace("·", " ") for n, v in pairs}
    return Case(
        name=path.name,
        text=text,
        form=head["form"],
        read=read,
        read_refusal=head["read"].removeprefix("refuse ") if refused else None,
        edit_refusal=head["edit"].removeprefix("refuse ") if head["edit"] != "ok" else None,
    )
