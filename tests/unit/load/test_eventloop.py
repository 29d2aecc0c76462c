"""The driver on the loop that it really runs on."""

from __future__ import annotations

from vllm_tuning.bench.load import eventloop

from .conftest import TinyEngine
from .test_driver import driving, send


def test_streams_on_libuv():
    async def main():
        engine = TinyEngine()
        await engine.start()
        try:
            async with driving(engine.address) as driver:
                await send(driver, 10)
                return driver.recorder.snapshot()
        finally:
            await engine.stop()

    samples = eventloop.run(main())
    assert samples.ok.all()
    # libuv's timers have milliseconds, and none may fire before its time.
    assert samples.lateness_ms.min() >= 0
