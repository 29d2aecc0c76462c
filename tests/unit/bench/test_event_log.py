"""The lines of a run: numbered, parseable, and few enough for the log API."""

import io

from vllm_tuning.bench.events import PROGRESS_BYTES, EventLog
from vllm_tuning.tuning.run import EVENT, Progress, RunFailed


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def progress(log, probe_id="p1"):
    log.write(
        lambda seq, time: Progress(
            seq,
            time,
            probe_id=probe_id,
            phase="measure",
            completed=1,
            in_flight=2,
            ttft_p95_ms=None,
            tpot_p95_ms=3.5,
            engine_seconds=1.0,
        )
    )


def failed(log):
    log.write(lambda seq, time: RunFailed(seq, time, "InternalError", "x", 1.0))


def lines(stream):
    return [EVENT.validate_json(line) for line in stream.getvalue().splitlines()]


def test_events_are_numbered_without_gaps_and_can_be_read_back():
    stream, clock = io.StringIO(), Clock()
    log = EventLog(stream, clock)
    for second in range(12):
        clock.now = float(second)
        progress(log)
    failed(log)
    events = lines(stream)
    assert [e.seq for e in events] == [1, 2, 3, 4]
    assert [e.time for e in events] == [0.0, 5.0, 10.0, 11.0]
    assert isinstance(events[-1], RunFailed)


def test_a_run_of_days_stays_within_the_log_and_still_tells_its_end():
    stream, clock = io.StringIO(), Clock()
    log = EventLog(stream, clock)
    for step in range(7 * 24 * 60):
        clock.now = 60.0 * step
        progress(log)
    assert log.total_bytes <= PROGRESS_BYTES
    last = lines(stream)[-1]
    assert clock.now - last.time < 24 * 3600  # thinner and thinner, but not silent
    failed(log)
    assert isinstance(lines(stream)[-1], RunFailed)
