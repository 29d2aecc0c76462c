"""vLLM's own parser in a process of its own, asked many times.

As a script it reads one JSON list of words per line and answers each with `{"values": {...}}` or
`{"error": "..."}`:

    python engine_parser.py            the installed vLLM, as `vllm serve` builds its parser
    (imports for a minute)
    python engine_parser.py DIRECTORY  the sources of any release, unpacked; all but the parser
    replaced (a second)
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Defaults that differ on every parse."""
HACK = Path(__file__).resolve().parents[1] / "hack" / "flags"


class EngineParser:
    """The parser behind a pipe."""

    def __init__(self, python: Path | str, sources: Path | None = None) -> None:
        command = [str(python), __file__, *([str(sources)] if sources else [])]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self._read() == {"ready": True}

    def _read(self) -> dict:
        for line in self._process.stdout:
            if line.startswith("@@"):
                return json.loads(line[2:])
        raise RuntimeError("the engine's parser ended; is vLLM there?")

    def ask(self, words: Sequence[str]) -> dict:
        """`{"values": ...}`, or `{"error": ...}` if the parser refuses the words."""
        self._process.stdin.write(json.dumps(list(words)) + "\n")
        self._process.stdin.flush()
        return self._read()

    def parse(self, words: Sequence[str]) -> dict | None:
        """The namespace as JSON, or ``None`` if the parser refuses the words."""
        return self.ask(words).get("values")

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait(timeout=60)


def _installed():
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    ServeSubcommand().subparser_init(parser.add_subparsers(dest="subparser"))
    return lambda words: parser.parse_args(["serve", *words])


def _unpacked(sources: Path):
    sys.path.insert(0, str(HACK))
    from dump_parser import load_parser

    return load_parser(sources).parse_args


def _plain(value: object) -> object:
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if isinstance(value, (list, tuple, set)):
        return [_plain(v) for v in value]
    try:
        return _UUID.sub("some-id", repr(value))
    except Exception:  # noqa: BLE001 - a stand-in inside a config object can't be shown
        return type(value).__name__


def main() -> None:
    """Answer until the input ends."""
    out = sys.stdout
    sys.stdout = sys.stderr
    parse = _unpacked(Path(sys.argv[1])) if len(sys.argv) > 1 else _installed()
    print('@@{"ready": true}', file=out, flush=True)
    for line in sys.stdin:
        try:
            values = vars(parse(json.loads(line)))
            answer = {
                "values": {k: _plain(v) for k, v in values.items() if k != "dispatch_function"}
            }
        except (SystemExit, Exception) as error:  # noqa: BLE001 - whatever the engine raises is its answer
            answer = {"error": repr(error)}
        print("@@" + json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
