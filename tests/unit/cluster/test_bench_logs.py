"""Reading a bench's log: events once and in order, whatever else stands in it, however often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.reconcile.bench_events import a_whole_run
from tests.unit.reconcile.builders import ended_pod, running_pod
from vllm_tuning.cluster.errors import NotFound, Unavailable
from vllm_tuning.cluster.logs import BenchLogs, parse_event
from vllm_tuning.tuning.run import EVENT, Progress

RUN = a_whole_run()
LINES = [EVENT.dump_json(event).decode() for event in RUN]


class Logs:
    """The one call of the client that is used here; each read is scripted."""

    def __init__(self, *reads: list[str] | Exception) -> None:
        self._reads = list(reads)

    @property
    def last(self) -> bool:
        """Whether only the last read is left."""
        return len(self._reads) == 1

    async def follow_log(self, namespace: str, pod: str, container: str) -> AsyncIterator[str]:
        read = self._reads.pop(0) if len(self._reads) > 1 else self._reads[0]
        if isinstance(read, Exception):
            raise read
        for line in read:
            yield line


def a_pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "n", "name": "p", "uid": "u"}, "status": status}


async def read_all(*reads: list[str] | Exception):
    """Read a log whose pod ends when all reads but the last are done."""
    script = Logs(*reads)
    logs = BenchLogs(script)  # type: ignore[arg-type] # one method of it
    woken = asyncio.Event()
    while True:
        woken.clear()
        pod = a_pod(**(ended_pod() if script.last else running_pod()))
        found = logs.observe(pod, woken.set)
        assert found is not None
        if found.complete:
            await logs.close()
            return found.events
        await asyncio.wait_for(woken.wait(), 20)


@pytest.mark.parametrize(
    "reads",
    [
        [LINES],
        [LINES[:3], LINES],
        [LINES[:3], Unavailable("connection reset"), LINES],
        [["Warning: something", "{not json", *LINES]],
        [[*LINES, *LINES]],
    ],
)
async def test_every_event_once_and_in_order(reads):
    assert await read_all(*reads) == RUN


async def test_a_log_that_is_gone_is_complete():
    assert await read_all(LINES[:2], NotFound("pod")) == RUN[:2]


async def test_a_pod_whose_bench_has_not_started_has_no_log():
    logs = BenchLogs(Logs(LINES))  # type: ignore[arg-type] # one method of it
    assert logs.observe(a_pod(), lambda: None) is None


async def test_of_a_probes_heartbeats_the_last_is_kept():
    beats = [
        Progress(
            seq=n,
            time=1.0,
            probe_id="p1",
            phase="measure",
            completed=n,
            in_flight=1,
            ttft_p95_ms=None,
            tpot_p95_ms=None,
            engine_seconds=1.0,
        )
        for n in range(5)
    ]
    lines = [EVENT.dump_json(beat).decode() for beat in beats]
    events = await read_all(lines)
    assert [event.seq for event in events] == [4]


@pytest.mark.parametrize("line", ["", "text", "{", "{}", '{"kind": "unknown"}', "[1]"])
def test_what_is_no_event_is_skipped(line):
    assert parse_event(line) is None
