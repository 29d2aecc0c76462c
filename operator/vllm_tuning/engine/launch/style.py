"""How the author of a command line writes flags: ``=`` or a blank, ``_`` or ``-``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vllm_tuning.engine.flags.model import Flag
from vllm_tuning.engine.launch.read import Reading


@dataclass(frozen=True, slots=True)
class Style:
    """The prevailing habit of one command line."""

    equals: bool
    underscores: bool

    def option(self, option: str, *, underscores: bool | None = None) -> str:
        """A long option in this style."""
        if self.underscores if underscores is None else underscores:
            return "--" + option.removeprefix("--").replace("-", "_")
        return option

    def boolean_option(self, flag: Flag, value: str, *, underscores: bool | None = None) -> str:
        """The spelling that sets a BOOL or SWITCH to ``value``."""
        option = flag.long if value == "true" else flag.negatives[0]
        return self.option(option, underscores=underscores)

    def words(self, flag: Flag, value: str | Sequence[str]) -> tuple[str, ...]:
        """The words that set a flag which is not there yet."""
        if not flag.kind.takes_value:
            return (self.boolean_option(flag, str(value)),)
        option = self.option(flag.long)
        items = (value,) if isinstance(value, str) else tuple(value)
        if len(items) == 1 and (self.equals or items[0].startswith("-")) and not flag.is_list:
            return (f"{option}={items[0]}",)
        return (option, *items)


def style_of(reading: Reading) -> Style:
    """Learn the style from the flags that are there; the default is a blank and dashes."""
    inline = separate = under = dashes = 0
    for occurrence in reading.scan.occurrences:
        if not occurrence.option.startswith("--"):
            continue
        if occurrence.inline_at is not None:
            inline += 1
        elif occurrence.values:
            separate += 1
        name = occurrence.option.removeprefix("--").partition(".")[0]
        under += "_" in name
        dashes += "-" in name
    return Style(equals=inline > separate, underscores=under > dashes)
