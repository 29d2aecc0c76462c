"""The parser of the pinned vLLM itself: it has the table's flags and reads edits as intended."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.engine_parser import EngineParser
from tests.fuzz.oracle import check_parser
from tests.launch_generator import changes, generate
from vllm_tuning.engine.flags.table import table_of

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "hack" / "engine" / "engine"
PINNED = "0.32.0"
LINES = 300


@pytest.fixture(scope="module")
def venv() -> Path:
    subprocess.run([ENGINE, "install"], check=True)
    return Path(subprocess.check_output([ENGINE, "venv"], text=True).strip())


@pytest.fixture(scope="module")
def parser(venv):
    parser = EngineParser(venv / "bin" / "python")
    yield parser
    parser.close()


def lines():
    rng = random.Random(32)
    made = 0
    while made < LINES:
        line = generate(rng)
        if line.version == PINNED:
            made += 1
            yield rng, line


def test_reads_every_edit_as_intended(parser):
    counts: Counter[str] = Counter()
    for rng, line in lines():
        check_parser(parser, line, changes(rng, PINNED), counts)
    assert counts["judged by vLLM's own parser"] > LINES / 2, counts


def test_knows_the_flags_of_the_table(parser):
    """Each flag's destination exists, and so does nothing else."""
    known = set(parser.parse(["m"])) - {"subparser", "model_tag"}
    flags = {flag.name for flag in table_of(PINNED)}
    assert known - flags <= {"help"}
    assert len(flags - known) <= 3, flags - known


def test_the_table_is_what_the_script_extracts(venv):
    """The installed package, read as an unpacked wheel is read."""
    [packages] = venv.glob("lib/python3.*/site-packages")
    script = ROOT / "hack" / "flags" / "dump_parser.py"
    dumped = json.loads(subprocess.check_output([sys.executable, script, packages]))
    table = table_of(PINNED)
    assert set(dumped) == set(table.flags)
    for name, flag in dumped.items():
        assert table.flags[name].kind == flag["kind"]
        assert list(table.flags[name].options) == flag["options"]
