"""The published table of INVALID causes is that of the code, and every cause has its test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TABLE = (ROOT / "docs/reference/validity.md").read_text()
ROWS = re.findall(r"^\| `(\w+)` \|.*\| `(test_\w+)` \|$", TABLE, re.MULTILINE)


def test_every_cause_is_told_and_none_is_made_up():
    bench = ROOT / "operator/vllm_tuning/bench"
    sources = [path.read_text() for path in (*bench.glob("*.py"), *bench.glob("load/*.py"))]
    causes = {name for text in sources for name in re.findall(r'Invalid\(\s*"(\w+)"', text)}
    assert causes == {reason for reason, _ in ROWS}


def test_every_cause_has_the_test_that_the_table_names():
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for reason, name in ROWS:
        body = re.search(rf"def {name}\(.*?(?=\n(?:async )?def |\n@|\Z)", tests, re.DOTALL)
        assert body, name
        assert reason in body[0], f"{name} does not ask for {reason}"
