"""Launcher and hook run in other people's images: Python 3.9, standard library, nothing of ours."""

import ast
import sys
from pathlib import Path

import pytest

import vllm_tuning.bench as room

PACKAGES = ("launcher", "hook")
FOREIGN = {"launcher": {"pynvml"}, "hook": {"vllm"}}
SOURCES = [
    (package, path)
    for package in PACKAGES
    for path in sorted((Path(room.__file__).parent / package).glob("*.py"))
]


@pytest.mark.parametrize(
    ("package", "path"), SOURCES, ids=lambda value: getattr(value, "stem", value)
)
def test_the_grammar_is_that_of_python_3_9_and_annotations_are_not_evaluated(package, path):
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    names = {
        n.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for n in node.names
    }
    annotated = any(isinstance(node, ast.FunctionDef | ast.AnnAssign) for node in ast.walk(tree))
    assert "annotations" in names or not annotated


@pytest.mark.parametrize(
    ("package", "path"), SOURCES, ids=lambda value: getattr(value, "stem", value)
)
def test_only_the_standard_library_is_imported(package, path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module]
        else:
            continue
        for name in names:
            top = name.split(".")[0]
            assert top in sys.stdlib_module_names or top in FOREIGN[package], name


def test_the_zipapp_is_the_same_bytes_every_time(tmp_path):
    from vllm_tuning.bench.tools import write_tools

    first, second = (write_tools(tmp_path / name).read_bytes() for name in ("a", "b"))
    assert first == second
