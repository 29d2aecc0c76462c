"""The flag table: which flags a release knows, and what a spelling on the command line means to it.

The data (`data/flags.json`) is extracted from the published wheels by `hack/flags`; a new release
is one command.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from vllm_tuning.engine.flags.model import Flag, Kind
from vllm_tuning.engine.flags.version import Version, parse_version


@dataclass(frozen=True, slots=True)
class Spelling:
    """One option string of a flag."""

    option: str
    flag: Flag
    negative: bool = False


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """An abbreviation that fits several flags: the engine exits with code 2."""

    options: tuple[str, ...]


@dataclass(frozen=True)
class FlagTable:
    """All flags of one release; without a version, of the newest with the older ones behind."""

    release: str
    """The release of the data that was used."""
    exact: bool
    """Whether the asked version is that release's line; else the table is the nearest that is
    known."""
    flags: Mapping[str, Flag]
    spellings: Mapping[str, Spelling]
    fallbacks: tuple[FlagTable, ...] = ()
    """Older tables, asked when the version is not known and a flag is not in this one."""

    def get(self, name: str) -> Flag | None:
        """The flag by canonical name (``max_num_seqs``) or by an alias of it."""
        flag = self.flags.get(name)
        if flag is None and (found := self.spellings.get("--" + name.replace("_", "-"))):
            flag = found.flag
        if flag is not None:
            return flag
        return next((f for table in self.fallbacks if (f := table.get(name))), None)

    def match(self, option: str) -> Spelling | Ambiguous | None:
        """What ``--max-num-seq`` or ``-tp`` means: exact, else a unique prefix, as in argparse."""
        if exact := self.spellings.get(option):
            return exact
        hits = [s for o, s in self.spellings.items() if o.startswith(option)]
        if len(hits) == 1:
            return hits[0]
        if len(hits) > 1:
            return Ambiguous(tuple(sorted(s.option for s in hits)))
        found = (table.match(option) for table in self.fallbacks)
        return next((hit for hit in found if hit is not None), None)

    def __iter__(self) -> Iterator[Flag]:
        return iter(self.flags.values())


@cache
def _data() -> Mapping[str, Any]:
    text = files("vllm_tuning.engine").joinpath("data", "flags.json").read_text("utf-8")
    data: Mapping[str, Any] = json.loads(text)
    return data


@cache
def releases() -> tuple[str, ...]:
    """The releases whose parsers are known, oldest first."""
    return tuple(_data()["releases"])


@cache
def table_of(release: str) -> FlagTable:
    """The table of one known release."""
    position = releases().index(release)
    flags = {}
    for name, eras in _data()["flags"].items():
        for first, last, spec in eras:
            if first <= position <= last:
                flags[name] = _flag(name, spec)
    spellings = {}
    for flag in flags.values():
        for option in flag.options:
            spellings[option] = Spelling(option, flag)
        for option in flag.negatives:
            spellings[option] = Spelling(option, flag, negative=True)
    return FlagTable(release, True, flags, spellings)


def _flag(name: str, spec: Mapping[str, Any]) -> Flag:
    return Flag(
        name=name,
        options=tuple(spec["options"]),
        kind=Kind(spec["kind"]),
        negatives=tuple(spec.get("negatives", ())),
        arity=spec.get("arity"),
        choices=tuple(spec.get("choices", ())),
        deprecated=bool(spec.get("deprecated", False)),
    )


@cache
def table_for(version: str | None) -> FlagTable:
    """The table for a version: its own release line, else the newest release not above it.

    Without a version, the newest table, with all older ones to recognise what has been removed.
    """
    asked = parse_version(version) if version is not None else None
    if asked is None:
        newest, *older = (table_of(r) for r in reversed(releases()))
        return FlagTable(
            newest.release, False, newest.flags, newest.spellings, fallbacks=tuple(older)
        )
    known = [(_release_version(r), r) for r in releases()]
    line = [(v, r) for v, r in known if v[:2] == asked[:2]] or known
    at_most = [r for v, r in line if v <= asked]
    release = at_most[-1] if at_most else line[0][1]
    table = table_of(release)
    exact = _release_version(release)[:2] == asked[:2]
    return FlagTable(release, exact, table.flags, table.spellings)


def _release_version(release: str) -> Version:
    version = parse_version(release)
    assert version is not None
    return version


@cache
def in_any_release(option: str) -> Spelling | None:
    """An option that some release knows, as the newest of them has it."""
    tables = (table_of(release) for release in reversed(releases()))
    return next((s for table in tables if (s := table.spellings.get(option))), None)


def release_line(release: str) -> str:
    """How to name a release that brought or dropped a flag: ``0.18`` if one patch is known."""
    minor = ".".join(release.split(".")[:2])
    patches = [r for r in releases() if r == minor or r.startswith(minor + ".")]
    return minor if len(patches) == 1 else release


@cache
def lifetime(name: str) -> tuple[str, str | None] | None:
    """First release with the flag, and the first without it again (``None`` = still there)."""
    eras = _data()["flags"].get(name)
    if eras is None:
        return None
    first, last = min(e[0] for e in eras), max(e[1] for e in eras)
    gone = releases()[last + 1] if last + 1 < len(releases()) else None
    return releases()[first], gone
