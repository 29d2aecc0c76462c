"""One look at one tuning: gather, decide, act, write the status."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from vllm_tuning.api.reasons import ConditionType
from vllm_tuning.cluster import apply
from vllm_tuning.cluster.client import Cluster
from vllm_tuning.cluster.errors import ClusterError
from vllm_tuning.cluster.gather import Gatherer, Key
from vllm_tuning.cluster.scrape import Scraper
from vllm_tuning.cluster.traffic import read_pods
from vllm_tuning.controller import metrics
from vllm_tuning.controller.errors import RETRY_REFUSED_SECONDS, Tell, consequence_of
from vllm_tuning.reconcile.decide import decide
from vllm_tuning.reconcile.effects import Decision
from vllm_tuning.reconcile.observed import Observed, Refused

log = logging.getLogger(__name__)


class Reconciler:
    """Turns keys into deeds. The only place of the operator that reads the clock for a decision."""

    def __init__(
        self,
        cluster: Cluster,
        gatherer: Gatherer,
        scraper: Scraper | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        """``scraper`` reads the metrics of targets; without it no workload is learnt.

        ``clock`` is the API server's, unless a test has another.
        """
        self._scraper = scraper
        self._cluster = cluster
        self._gatherer = gatherer
        self._clock = clock or cluster.now
        self._stages: dict[Key, str] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Look once. Returns the seconds after which to look again; raises ``ClusterError``."""
        observed = await self._gatherer.gather(key)
        if observed is None:
            self._stages.pop(key, None)
            self._count_stages()
            return None
        decision = decide(observed, self._clock())
        if decision.traffic_wanted is not None and self._scraper is not None:
            traffic = await read_pods(self._scraper, decision.traffic_wanted)
            observed = replace(observed, target_traffic=traffic)
            decision = decide(observed, self._clock())
        try:
            await self._perform(key, decision)
        except ClusterError as error:
            consequence = consequence_of(error)
            if not isinstance(consequence, Tell):
                raise
            log.warning("refused", extra={"tuning": str(key), "error": str(error)})
            refused = Refused(
                effect=_current_effect(error),
                message=consequence.message,
                reason=consequence.reason,
            )
            decision = decide(replace(observed, refused=refused), self._clock())
            await self._finish(key, observed, decision)
            return RETRY_REFUSED_SECONDS
        await self._finish(key, observed, decision)
        if decision.look_again_at is None:
            return None
        return (decision.look_again_at - self._clock()).total_seconds()

    async def _perform(self, key: Key, decision: Decision) -> None:
        for effect in decision.effects:
            name = type(effect).__name__
            log.info("effect", extra={"tuning": str(key), "effect": name})
            try:
                await apply.perform(self._cluster, effect)
            except ClusterError as error:
                error.add_note(name)
                raise
            metrics.EFFECTS.labels(name).inc()

    async def _finish(self, key: Key, observed: Observed, decision: Decision) -> None:
        for announcement in decision.announcements:
            await apply.announce(self._cluster, observed.tuning, observed.target, announcement)
            metrics.ANNOUNCEMENTS.labels(announcement.reason).inc()
        await apply.write_status(self._cluster, observed.tuning, decision.status)
        self._stages[key] = next(
            (c.reason for c in decision.status.conditions if c.type == ConditionType.PROGRESSING),
            "Unknown",
        )
        self._count_stages()

    def _count_stages(self) -> None:
        metrics.TUNINGS.clear()
        for stage, count in Counter(self._stages.values()).items():
            metrics.TUNINGS.labels(stage).set(count)


def _current_effect(error: ClusterError) -> str:
    """Return the effect that ``_perform`` noted on the error."""
    return error.__notes__[-1]
