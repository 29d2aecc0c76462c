"""The event reader: any cut of the bytes gives the same tokens."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vllm_tuning.bench.load.events import CompletionStream

from .conftest import event, token_event

USAGE = {
    "completion_tokens": 3,
    "prompt_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 4},
}
WHOLE = (
    token_event()
    + token_event()
    + b": keep-alive\n\n"
    + token_event("length")
    + event({"choices": [], "usage": USAGE})
    + b"data: [DONE]\n\n"
)

# Shared machines stall: how long an example takes says nothing here.
calmly = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def read(pieces):
    tokens = []
    stream = CompletionStream(lambda row, now: tokens.append(now), 0)
    for now, piece in enumerate(pieces):
        stream.feed(piece, float(now))
    return stream, tokens


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(place % (len(data) + 1) for place in at)})
    return [data[low:high] for low, high in pairwise(edges)]


@calmly
@given(st.lists(st.integers(0, 10_000)), st.booleans())
def test_any_cut_gives_the_same(at, crlf):
    data = WHOLE.replace(b"\n", b"\r\n") if crlf else WHOLE
    stream, tokens = read(cut(data, at))
    assert len(tokens) == 3
    assert (stream.done, stream.error, stream.finish) == (True, "", "length")
    assert (stream.output_tokens, stream.cached_tokens) == (3, 4)


def test_spaces_and_multi_line_data_are_read():
    spaced = json.dumps({"choices": [{"finish_reason": None, "text": "a"}]}, indent=1)
    data = "".join(f"data: {line}\n" for line in spaced.splitlines()) + "\n"
    stream, tokens = read([data.encode()])
    assert tokens == [0.0]
    assert not stream.error


def test_text_that_looks_like_an_error_is_a_token():
    text = {"choices": [{"index": 0, "text": '"error"', "finish_reason": None}]}
    stream, tokens = read([event(text)])
    assert (len(tokens), stream.error) == (1, "")


def test_an_error_event_is_told():
    stream, tokens = read([event({"error": {"message": "out of memory"}})])
    assert (stream.error, tokens) == ("out of memory", [])


@calmly
@given(st.binary(max_size=200))
def test_garbage_never_raises(garbage):
    stream, _ = read([garbage, b"\n\n", WHOLE])
    assert stream.done
