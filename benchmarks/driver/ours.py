"""Our driver as a tool of its own: so many requests at a rate, one JSON line of what it saw.

Prints the fields of ``contenders.Point``; CPU seconds are measured by the caller.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json

import aiohttp
import numpy as np

from vllm_tuning.bench.load import eventloop
from vllm_tuning.bench.load.arrivals import arrival_times
from vllm_tuning.bench.load.driver import LoadDriver
from vllm_tuning.bench.load.facts import ask_facts
from vllm_tuning.bench.load.lengths import RequestShape
from vllm_tuning.bench.load.prompts import RequestSource
from vllm_tuning.bench.load.server import ServerAddress
from vllm_tuning.bench.validity import send_lateness_p99_ms


def schedule(arguments: argparse.Namespace) -> list[float]:
    """Poisson arrivals, stretched to end at requests / rate.

    As those of ``vllm bench serve`` are, so that rounds do not differ by the draw.
    """
    every = arrival_times(arguments.rate, seed=arguments.seed)
    drawn = list(itertools.islice(every, arguments.requests))
    stretch = arguments.requests / arguments.rate / drawn[-1]
    return [at * stretch for at in drawn]


async def drive(arguments: argparse.Namespace) -> dict[str, float]:
    server = ServerAddress(arguments.url, arguments.model)
    async with aiohttp.ClientSession() as session:
        facts = await ask_facts(session, server)
    source = RequestSource(
        itertools.repeat(RequestShape(arguments.input, arguments.output)),
        model=server.model,
        vocabulary=facts.vocabulary,
    )
    driver = LoadDriver(server, source, deadline_seconds=600)
    driver.start_open(itertools.chain(schedule(arguments), itertools.repeat(float("inf"))))
    while len(driver.recorder) < arguments.requests:  # noqa: ASYNC110 - the count is the event
        await asyncio.sleep(0.05)
    await driver.drained()
    await driver.close()
    samples = driver.recorder.snapshot()
    # As ``vllm bench serve`` counts: the clock runs from the first request to the last answer.
    seconds = float(np.nanmax(samples.ended_at) - np.nanmin(samples.sent_at))
    sent_to_first = (samples.first_token_at - samples.sent_at) * 1e3
    return {
        "completed": int(samples.ok.sum()),
        "tokens": int(samples.output_tokens.sum()),
        "ttft_ms": float(np.nanmedian(sent_to_first)),
        "tpot_ms": float(np.nanmedian(samples.tpot_ms)),
        "tokens_per_second": float(samples.output_tokens.sum()) / seconds,
        "lateness_p99_ms": send_lateness_p99_ms(samples) or 0.0,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", default="replay")
    parser.add_argument("--requests", type=int, required=True)
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--input", type=int, default=128)
    parser.add_argument("--output", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    print(json.dumps(eventloop.run(drive(parser.parse_args()))))
