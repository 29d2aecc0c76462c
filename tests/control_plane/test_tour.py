"""The tour on a real API server: every command of the story ends as it tells."""

from pathlib import Path

import pytest

from hack.tour.__main__ import tell
from hack.tour.transcript import STORY, commands_of
from tests.cluster_fixtures.cluster import Cluster

pytestmark = pytest.mark.control_plane


@pytest.mark.timeout(600)
def test_the_product_does_what_the_story_tells(control_plane: Cluster, tmp_path: Path) -> None:
    page = tell(control_plane, tmp_path)
    assert commands_of(page) == commands_of(STORY.read_text())
    assert "still running" not in page
