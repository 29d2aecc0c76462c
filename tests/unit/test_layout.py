"""The shape of the tree itself."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_operator_is_a_source_root_and_no_package():
    """An ``operator/__init__.py`` would shadow the standard library's ``operator`` module."""
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert (ROOT / "operator" / "vllm_tuning" / "__init__.py").exists()


def test_every_room_says_what_lives_in_it():
    package = ROOT / "operator" / "vllm_tuning"
    for room in (path for path in package.iterdir() if (path / "__init__.py").exists()):
        assert (room / "__init__.py").read_text().startswith('"""'), f"{room.name} has no docstring"
