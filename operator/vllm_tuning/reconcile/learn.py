"""When a target's traffic is learnt from its own metrics, and how long that holds.

What was learnt is part of what is measured, so it must not move while a run is under way, nor make
one of every look. It is bound to an *occasion*: everything that is measured but for the traffic
itself, with the reason to repeat it. Of the same occasion the traffic is learnt once, and stored
before anything follows from it; another one (an edit, an epoch of retunePolicy, a rerun) learns
anew. A change of the SLA is no occasion: stored results go on to answer it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from vllm_tuning.api.spec import ObjectiveName, VLLMTuningSpec
from vllm_tuning.api.status import Effective, FieldSource, SourceKind
from vllm_tuning.api.traffic import LearntLengths, LearntTraffic
from vllm_tuning.api.values import LoadKind
from vllm_tuning.api.workload import WorkloadSource
from vllm_tuning.engine.traffic import add_traffic
from vllm_tuning.reconcile import convert
from vllm_tuning.reconcile.draft import Draft
from vllm_tuning.reconcile.effects import TrafficWanted
from vllm_tuning.reconcile.fleet import endpoint_in, serving_pods
from vllm_tuning.reconcile.learnt import LEAST_REQUESTS, Served, summary
from vllm_tuning.reconcile.question import pose
from vllm_tuning.reconcile.target import Target

FRESH: Final = timedelta(hours=1)
"""What was learnt for a run that is still waiting (for a window, a cool-down) is learnt again after
this."""
_FIELDS: Final = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "sharedPrefixPercent": "shared_prefix_percent",
    "requestsPerMinute": "requests_per_minute",
}
"""Of the workload that may be learnt, by their names on the wire."""
_LENGTHS: Final = ("inputTokens", "outputTokens")
_FILLED: Final = (SourceKind.PROFILE, SourceKind.DEFAULT)


@dataclass(frozen=True, slots=True)
class Learnt:
    """A wish with what was learnt in it."""

    wish: Effective
    stored: bool = True
    """False: just learnt. It has to be stored before a run may rest on it."""


def learn(draft: Draft, spec: VLLMTuningSpec, wish: Effective, target: Target) -> Learnt:
    """Fill what nobody declares of the workload from what the target's pods have told.

    Asks for them to be read if what is stored does not hold and they were not.
    """
    if not open_fields(wish):
        return Learnt(wish)
    occasion = pose(draft, spec, wish, target).measurement
    if _holds(draft, spec, occasion):
        return Learnt(as_before(draft, wish))
    if draft.observed.target_traffic is None:
        endpoint = endpoint_in(target.container)
        pods = serving_pods(target.name, draft.observed.target_pods)
        draft.traffic_wanted = TrafficWanted(pods, endpoint.port, endpoint.tls)
        return Learnt(as_before(draft, wish))
    found = _learn(draft, wish, target, occasion)
    return Learnt(_fill(wish, found, target.name), stored=False)


def as_before(draft: Draft, wish: Effective) -> Effective:
    """Fill it from what is stored, which may be nothing."""
    before = draft.before.effective
    if before is None or before.learnt is None or not open_fields(wish):
        return wish
    target = draft.observed.tuning["spec"]["targetRef"]["name"]
    return _fill(wish, before.learnt, target)


def open_fields(wish: Effective) -> tuple[str, ...]:
    """Return the fields of the workload that nobody declares and that may be learnt.

    A rate is for open arrivals and ``MaxRateUnderSLO``, which tells the replicas that it needs. The
    demand of ``MinLatencyAtRate`` has to be declared: a mean is not what users must be served at.
    """
    workload = wish.workload
    if workload is None or workload.source is not WorkloadSource.AUTO:
        return ()
    filled = {note.field for note in wish.sources if note.source in _FILLED}
    found = [field for field in _FIELDS if f"workload.{field}" in filled]
    takes_rate = workload.arrival is LoadKind.OPEN and wish.objective is ObjectiveName.MAX_RATE
    if takes_rate and workload.requests_per_minute is None:
        found.append("requestsPerMinute")
    return tuple(found)


def _holds(draft: Draft, spec: VLLMTuningSpec, occasion: str) -> bool:
    """Whether what is stored was learnt for the question at hand, and is not too old for it."""
    before = draft.before.effective
    stored = before.learnt if before is not None else None
    if stored is None or stored.occasion != occasion:
        return False
    run = draft.before.run
    begun = run is not None and (run.job_name is not None or run.completion_time is not None)
    return begun or spec.suspend or draft.now < stored.time + FRESH


def _learn(draft: Draft, wish: Effective, target: Target, occasion: str) -> LearntTraffic:
    told = draft.observed.target_traffic or ()
    pages = [pod.traffic for pod in told if pod.traffic is not None]
    served = Served(
        deployment=target.name,
        traffic=add_traffic(pages),
        read=len(pages),
        serving=len(serving_pods(target.name, draft.observed.target_pods)),
        longest=target.max_model_len,
    )
    why_not = None
    if not told:
        why_not = "no pod of it is ready"
    elif not pages:
        why_not = f"its metrics can not be read: {told[0].problem}"
    elif served.traffic.requests < LEAST_REQUESTS:
        why_not = f"{served.traffic.requests} requests so far, {LEAST_REQUESTS} are needed"
    found = LearntTraffic(
        occasion=occasion,
        time=draft.now.replace(microsecond=0),
        message="",
        requests=served.traffic.requests,
        pods=served.read,
    )
    if why_not is not None:
        message = f"nothing learnt from {target.name}{_instead(wish)}: {why_not}"
        return found.model_copy(update={"message": convert.short(message)})
    return found.model_copy(
        update={
            "message": convert.short(served.describe()),
            "input_tokens": served.prompts,
            "output_tokens": served.outputs,
            "shared_prefix_percent": served.prefix_percent,
            "requests_per_minute": served.requests_per_minute,
        }
    )


def _instead(wish: Effective) -> str:
    """Say what stands for the lengths that nobody declared and that were not learnt."""
    fields = open_fields(wish)
    missing = [field for field in _LENGTHS if field in fields]
    if not missing:
        return ""
    what = "lengths are" if len(missing) == len(_LENGTHS) else "the other lengths are"
    used = f"those of profile {wish.profile}" if wish.profile else "the default ones"
    return f", {what} {used}"


def _fill(wish: Effective, learnt: LearntTraffic, target: str) -> Effective:
    """Put what was learnt in the place of what a profile or our defaults have filled in."""
    assert wish.workload is not None
    fields = open_fields(wish)
    declared = [_FIELDS[field] for field in _LENGTHS if field not in fields]
    learnt = learnt.model_copy(update=dict.fromkeys(declared))
    notes = {note.field: note for note in wish.sources}
    update: dict[str, object] = {}
    for field in fields:
        value = getattr(learnt, _FIELDS[field])
        if value is not None:
            update[_FIELDS[field]] = summary(value) if isinstance(value, LearntLengths) else value
            path = f"workload.{field}"
            notes[path] = FieldSource(field=path, source=SourceKind.TARGET, name=target)
    return wish.model_copy(
        update={
            "workload": wish.workload.model_copy(update=update),
            "learnt": learnt,
            "sources": tuple(notes.values()),
        }
    )
