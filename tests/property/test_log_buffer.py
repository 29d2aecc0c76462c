"""The launcher's log keeps the beginning and the end of any stream, in any pieces."""

from hypothesis import given
from hypothesis import strategies as st

from vllm_tuning.bench.launcher.log import LogBuffer

HEAD, TAIL = 16, 8
PIECES = st.lists(st.binary(max_size=12), max_size=20)


def read_all(log, chunk):
    """As the client does: follow the offsets, and note where bytes are missing."""
    parts, position = [], 0
    while True:
        start, data = log.read(position, chunk)
        if not data:
            return parts
        if start > position or not parts:
            parts.append(b"")
        parts[-1] += data
        position = start + len(data)


@given(PIECES, st.integers(1, 9))
def test_reading_gives_the_whole_or_its_two_ends(pieces, chunk):
    log = LogBuffer(HEAD, TAIL)
    for piece in pieces:
        log.append(piece)
    stream = b"".join(pieces)
    parts = read_all(log, chunk)
    if len(stream) <= HEAD + TAIL:
        assert b"".join(parts) == stream
    else:
        assert parts[0].startswith(stream[:HEAD])
        assert len(b"".join(parts)) >= HEAD + TAIL
        assert stream.endswith(parts[-1][-TAIL:])
        assert len(parts) <= 2


@given(PIECES, st.integers(1, TAIL))
def test_the_tail_is_the_end(pieces, limit):
    log = LogBuffer(HEAD, TAIL)
    for piece in pieces:
        log.append(piece.replace(b"\xff", b"x"))
    stream = b"".join(pieces).replace(b"\xff", b"x")
    assert log.tail(limit) == stream[-limit:].decode("utf-8", "replace")
