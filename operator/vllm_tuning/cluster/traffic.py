"""Reading what traffic a target's pods have had, once, when a decision asks for it."""

from __future__ import annotations

import time
from typing import Final

from vllm_tuning.cluster.scrape import NoPage, PageAddress, Scraper
from vllm_tuning.engine.traffic import read_traffic
from vllm_tuning.reconcile.effects import TrafficWanted
from vllm_tuning.reconcile.observed import PodTraffic

MAX_PODS: Final = 16
"""Pods of a Deployment share its traffic, so some speak for all: these are read at once, within the
deadline of one page."""


async def read_pods(scraper: Scraper, wanted: TrafficWanted) -> tuple[PodTraffic, ...]:
    """Read the metrics of the wanted pods; one that cannot be read says why."""
    pods = {str(pod["metadata"]["uid"]): pod for pod in wanted.pods[:MAX_PODS]}
    pages = await scraper.read(
        PageAddress(uid, pod["status"]["podIP"], wanted.port, wanted.tls)
        for uid, pod in pods.items()
    )
    now = time.time()
    found = []
    for uid, page in pages.items():
        name = str(pods[uid]["metadata"]["name"])
        if isinstance(page, NoPage):
            found.append(PodTraffic(name, None, page.message))
        else:
            found.append(PodTraffic(name, read_traffic(page, now=now)))
    return tuple(found)
