"""Types the commands of ``story.md`` and writes down the answers.

The info of a block says what is special about it: ``until="…"``, arguments of a ``kubectl wait``
before its first command; ``refused=2``, the command that is to fail; ``lines=90``, where longer
output is cut.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

STORY = Path(__file__).parent / "story.md"
NOTE = "<!-- Written by `make tour` from hack/tour/story.md: edit that, not this. -->"
FENCE = "```"
MOST_LINES = 60
WAIT_SECONDS = 240.0
"""For what a block waits in silence."""

_INFO = re.compile(r'(\w+)=(?:"([^"]*)"|(\S+))')
_HASH = re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{8,12}\b")
_EVEN: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "2026-01-01T12:00:00Z"),
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "(uid)"),
    (re.compile(r"(?<!\S)(\d+[dhms]){1,2}(?=$)"), "1m"),
    (re.compile(r"^(\d+[dhms]){1,2} +(?=(Normal|Warning) )"), "1m          "),
    (re.compile(r"(Resource Version:\s+)\d+"), r"\g<1>1000"),
    (re.compile(r"(G[Pp][Uu] Seconds:\s+)\d+"), r"\g<1>900"),
)
"""What differs between two runs of the same product."""

Shell = Callable[[str], "subprocess.CompletedProcess[str]"]


class TourError(Exception):
    """The product did not do what the story tells."""


@dataclass
class Transcript:
    """The page as it grows."""

    shell: Shell
    hashes: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=lambda: [NOTE])
    """What is written so far."""

    def page(self) -> str:
        """Type every command. Raises ``TourError`` at the first that ends otherwise than told."""
        for line in self._lines():
            self.lines.append(line)
        return "\n".join(self.lines) + "\n"

    def _lines(self) -> Iterator[str]:
        info: dict[str, str] | None = None
        number = 0
        for line in STORY.read_text().splitlines():
            if line.startswith(FENCE):
                info = None if info is not None else _info(line)
                number = 0
                yield line.split(" ")[0]
                if info and "until" in info:
                    self._wait(info["until"])
            elif info is not None:
                number += 1
                yield line
                refused = number == int(info.get("refused", 0))
                answer = self._type(line.removeprefix("$ "), refused=refused)
                yield from self._cut(answer, int(info.get("lines", MOST_LINES)))
            else:
                yield line

    def _type(self, command: str, *, refused: bool) -> str:
        done = self.shell(command)
        if (done.returncode != 0) is not refused:
            raise TourError(f"$ {command}\n{done.stdout}{done.stderr}\nexit {done.returncode}")
        return (done.stdout + done.stderr).rstrip("\n")

    def _wait(self, condition: str) -> None:
        """``kubectl wait``, also for a field that is not there yet."""
        deadline = time.monotonic() + WAIT_SECONDS
        while (done := self.shell(f"kubectl wait --timeout=5s {condition}")).returncode:
            if time.monotonic() > deadline:
                raise TourError(f"waited in vain: {condition}\n{done.stderr}")

    def _cut(self, text: str, most: int) -> Iterator[str]:
        lines = [self._even(line).rstrip() for line in text.split("\n")] if text else []
        yield from lines[:most]
        if len(lines) > most:
            yield f"… {len(lines) - most} more lines"

    def _even(self, line: str) -> str:
        for pattern, plain in _EVEN:
            line = pattern.sub(plain, line)
        return _HASH.sub(self._stand_in, line)

    def _stand_in(self, found: re.Match[str]) -> str:
        """The same for the same hash, of its length, by order of appearance."""
        text = found.group()
        number = len(self.hashes) + 1
        return self.hashes.setdefault(text, f"{number:02x}c0ffeec0ffee"[: len(text)])


def _info(fence: str) -> dict[str, str]:
    return {key: quoted or plain for key, quoted, plain in _INFO.findall(fence)}


def commands_of(page: str) -> list[str]:
    """Return what is typed on a page, in order."""
    return [line for line in page.splitlines() if line.startswith("$ ")]
