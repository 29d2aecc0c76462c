"""The event stream of a local run: whole into a file, in short onto the terminal."""

from __future__ import annotations

import io
from typing import TextIO

from rich.console import Console

from vllm_tuning.report.model import read_events
from vllm_tuning.report.progress import progress_line


class ProgressLines(io.TextIOBase):
    """A text sink for JSON lines."""

    def __init__(self, file: TextIO, terminal: TextIO) -> None:
        self._file = file
        self._console = Console(file=terminal, highlight=False)
        self._rest = ""

    def write(self, text: str) -> int:
        """Keep the text, and tell each event that it completes."""
        self._file.write(text)
        *lines, self._rest = (self._rest + text).split("\n")
        for event in read_events(lines):
            if line := progress_line(event):
                self._console.print(line)
        return len(text)

    def flush(self) -> None:
        """Hand on to the file: a killed run leaves its events."""
        self._file.flush()
