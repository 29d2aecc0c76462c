"""The tour is the story's: run ``make tour`` after a change of one of them."""

from hack.tour.transcript import STORY, commands_of
from tests.cluster_fixtures.cluster import ROOT

PAGE = ROOT / "docs" / "tour.md"


def test_the_page_types_what_the_story_types():
    assert commands_of(PAGE.read_text()) == commands_of(STORY.read_text())


def test_the_page_has_an_answer_of_every_kind():
    page = PAGE.read_text()
    for outcome in ("condition met", "Recommended", "Unsatisfiable", "is invalid", "Enforce"):
        assert outcome in page
