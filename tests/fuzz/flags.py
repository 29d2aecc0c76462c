"""Fuzz the editor of launch args: `python -m tests.fuzz.flags --cases 20000`.

Each case is a random container (form, flags, spelling, quoting, variables, release) and random
changes. It fails if

- reading or editing crashes, or the reader's words are not the words that were written;
- an edit is not what a re-read says, or an untouched word of the command line changes;
- (a share of the cases) a real shell starts the stub engine with other words than the reader says;
- (a share of the cases, with --parser) vLLM's own parser reads anything else than before but for
the changes;
- (a share of the cases) the same edit in a YAML text is not the same edit, or cannot be undone.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from pathlib import Path

from tests import stub_engine
from tests.engine_parser import EngineParser
from tests.fuzz.oracle import check_bytes, check_mutation, check_parser, check_shell, check_yaml
from tests.launch_generator import changes, generate
from vllm_tuning.engine.args import edit_args, read_args
from vllm_tuning.engine.outcome import Refusal

SHELL_SHARE, YAML_SHARE, PARSER_SHARE, MUTATION_SHARE = 0.03, 0.05, 0.3, 0.3


def main() -> int:
    """Run the cases; exit code 1 if any fails."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--cases", type=int, default=20_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument(
        "--parser", type=Path, help="a directory with vllm/ of the release --release"
    )
    options.add_argument("--release", default="0.32.0")
    given = options.parse_args()
    parser = EngineParser(sys.executable, given.parser) if given.parser else None
    counts: Counter[str] = Counter()
    failures = 0
    for number in range(given.seed, given.seed + given.cases):
        try:
            case(random.Random(number), counts, parser, given.release)
        except Exception as error:  # noqa: BLE001 - a crash is a finding; the run goes on
            failures += 1
            print(
                f"case {number} (--seed {number} --cases 1): {type(error).__name__}: {error}",
                file=sys.stderr,
            )
    print(
        json.dumps(
            {"cases": given.cases, "failures": failures, **dict(sorted(counts.items()))}, indent=1
        )
    )
    return 1 if failures else 0


def case(
    rng: random.Random, counts: Counter[str], parser: EngineParser | None, release: str
) -> None:
    """One case; raises where a promise is broken."""
    line = generate(rng)
    wanted = changes(rng, line.version)
    if parser is not None and rng.random() < PARSER_SHARE:
        line = generate_for(rng, release)
        wanted = changes(rng, release)
        check_parser(parser, line, wanted, counts)
    args = read_args(line.container, version=line.version)
    assert args.refusal is None, args.refusal
    assert [word.text for word in args.reading.launch.words] == line.words
    edit = edit_args(line.container, wanted, version=line.version)
    counts[f"form {line.form}"] += 1
    if isinstance(edit, Refusal):
        assert edit.reason != "NotProven", edit.message
        counts[f"refused {edit.reason}"] += 1
    else:
        counts["edited"] += 1
        check_bytes(line, edit, wanted)
        if line.form in ("shell", "forwarded") and rng.random() < SHELL_SHARE * 4:
            check_shell(edit.container, line.version, stub_engine)
            counts["run by a real shell"] += 1
        if rng.random() < YAML_SHARE:
            check_yaml(rng, line, wanted, edit, counts)
    if rng.random() < MUTATION_SHARE:
        check_mutation(rng, line, wanted, counts)


def generate_for(rng: random.Random, release: str):
    """A line for one release."""
    while True:
        line = generate(rng)
        if line.version == release:
            return line


if __name__ == "__main__":
    sys.exit(main())
