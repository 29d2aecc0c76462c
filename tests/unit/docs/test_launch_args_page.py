from tests.launch_docs import PAGE, page


def test_the_page_is_what_the_corpus_shows():
    """Run `python -m tests.launch_docs` after a change of corpus, rules or releases."""
    assert PAGE.read_text("utf-8") == page()
