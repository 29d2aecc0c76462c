from tests.edge_case_docs import CASES, PAGE, page, proofs


def test_the_page_names_the_tests_that_there_are():
    """Run `python -m tests.edge_case_docs` after a test was added, moved or renamed."""
    assert PAGE.read_text("utf-8") == page()


def test_each_of_the_forty_cases_has_a_test():
    assert sorted(CASES) == list(range(1, 41))
    assert sorted(proofs()) == sorted(CASES)
