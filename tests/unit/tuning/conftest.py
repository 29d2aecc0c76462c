"""The toy engine, its problems and its searches as fixtures."""

from __future__ import annotations

import pytest

from tests.toy_engine import MakeProblem, Run, Toy, ToyEngine, make_problem, run_search


@pytest.fixture
def problem() -> MakeProblem:
    return make_problem


@pytest.fixture
def toy() -> Toy:
    return ToyEngine


@pytest.fixture
def run() -> Run:
    return run_search
