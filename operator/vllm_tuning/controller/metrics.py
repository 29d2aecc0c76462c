"""The operator's own metrics.

One prefix, base units, bounded labels: never the name of an object.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

RECONCILES: Final = Counter(
    "vllmtuning_reconciles_total",
    "Looks at a tuning, by how they ended.",
    ["result"],
)
RECONCILE_SECONDS: Final = Histogram(
    "vllmtuning_reconcile_duration_seconds",
    "Time of one look at a tuning: gather, decide, act.",
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
EFFECTS: Final = Counter(
    "vllmtuning_effects_total", "What was done to the cluster, by kind of effect.", ["effect"]
)
ANNOUNCEMENTS: Final = Counter(
    "vllmtuning_events_total", "Kubernetes events written, by reason.", ["reason"]
)
QUEUE_LENGTH: Final = Gauge("vllmtuning_queue_length", "Tunings that wait to be looked at.")
TUNINGS: Final = Gauge(
    "vllmtuning_tunings", "Tunings that were looked at, by what they are doing.", ["stage"]
)
FLEET: Final = Gauge(
    "vllmtuning_fleet_deployments",
    "Serving Deployments under a policy, by whether their own metrics show their SLA met.",
    ["state"],
)
FLEET_PAGES: Final = Counter(
    "vllmtuning_fleet_pages_total",
    "Metrics pages of serving pods, by how reading ended.",
    ["result"],
)
LEADER: Final = Gauge("vllmtuning_leader", "1 while this process holds the lease.")
