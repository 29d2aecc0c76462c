"""What a burst's record proves."""

import pytest

from vllm_tuning.bench.live_limits import Burst, judge_burst


@pytest.mark.parametrize(
    ("running", "tokens", "word"),
    [
        (4, 512, None),
        (4, 300, None),  # the cap alone kept the steps small
        (5, 512, "ignores"),
        (4, 513, "ignores"),
        (12, 3000, "ignores"),
        (3, 512, "not shown"),
    ],
)
def test_only_an_engine_that_stops_exactly_at_the_cap_is_believed(running, tokens, word):
    found = judge_burst(Burst(running, tokens), 4, 512)
    assert (found is None) if word is None else (word in found)
