"""Which policies concern a tuning, and what becomes of its wish under them.

::

    spec ─► defaults of policies ─► profile, our defaults ─► overrides of policies ─► wish
            (the spec wins)         (``effective.resolve``)  (the strictest one wins)

Pure: the same spec and policies give the same wish, in whatever order the policies are listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from vllm_tuning.api.base import APIModel, wire_name
from vllm_tuning.api.benchmark import Benchmark
from vllm_tuning.api.policy import Enforcement, VLLMSLAPolicy
from vllm_tuning.api.retune import RetunePolicy
from vllm_tuning.api.selector import LabelSelector, SelectorOperator, SelectorRequirement
from vllm_tuning.api.spec import Budget, UpdatePolicy, VLLMTuningSpec
from vllm_tuning.api.status import Effective, FieldSource, SourceKind
from vllm_tuning.api.workload import Workload
from vllm_tuning.reconcile import effective
from vllm_tuning.reconcile.policy_limits import Deviation, Overruled, apply_overrides

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
M = TypeVar("M", bound=APIModel)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a policy selects by."""

    namespace: str
    namespace_labels: Mapping[str, str]
    labels: Mapping[str, str]
    """Of the target Deployment; those of the tuning while there is no target."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A wish under all policies that concern it."""

    effective: Effective
    deviations: tuple[Deviation, ...]
    """Where the wish exceeded a policy, enforced or not."""
    overruled: tuple[Overruled, ...]
    """Bounds that do not hold because a policy before them excludes them."""
    policies: tuple[str, ...]
    """Names of those that concern the tuning, first in precedence first."""
    used: frozenset[str]
    """Names of the policies that gave at least one value."""


def matching(policies: Iterable[VLLMSLAPolicy], subject: Subject) -> tuple[VLLMSLAPolicy, ...]:
    """Return the policies that concern a subject, first in precedence first."""
    return tuple(sorted((p for p in policies if concerns(p, subject)), key=precedence))


def precedence(policy: VLLMSLAPolicy) -> tuple[int, datetime, str]:
    """Sort key: higher priority first, then the older one, then by name."""
    return -policy.spec.priority, policy.metadata.creation_timestamp or _EPOCH, policy.metadata.name


def concerns(policy: VLLMSLAPolicy, subject: Subject) -> bool:
    """Tell whether a policy selects a subject."""
    spec = policy.spec
    return (
        subject.namespace not in (spec.excluded_namespaces or ())
        and selects(spec.namespace_selector, subject.namespace_labels)
        and selects(spec.selector, subject.labels)
    )


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Evaluate a label selector as the API server does; an absent or empty one matches all."""
    if selector is None:
        return True
    wanted = selector.match_labels or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(requirement, labels) for requirement in selector.match_expressions or ()
    )


def _holds(requirement: SelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case SelectorOperator.IN:
            return value is not None and value in (requirement.values or ())
        case SelectorOperator.NOT_IN:
            return value is None or value not in (requirement.values or ())
        case SelectorOperator.EXISTS:
            return value is not None
        case SelectorOperator.DOES_NOT_EXIST:
            return value is None


def resolve(spec: VLLMTuningSpec, policies: Sequence[VLLMSLAPolicy]) -> Resolved:
    """Return the wish under ``policies``: those that ``matching`` returned, in its order."""
    filler = _Filler(spec)
    for policy in policies:
        filler.fill_from(policy)
    narrowed = apply_overrides(filler.credit(effective.resolve(filler.spec)), policies)
    restricting = {d.policy for d in narrowed.deviations if d.enforcement is Enforcement.ENFORCE}
    return Resolved(
        narrowed.effective,
        narrowed.deviations,
        narrowed.overruled,
        tuple(policy.metadata.name for policy in policies),
        frozenset(filler.sources.values()) | restricting,
    )


class _Filler:
    """Fills a spec from policies' defaults; the first policy that has a value gives it."""

    def __init__(self, spec: VLLMTuningSpec) -> None:
        self.spec = spec
        self.sources: dict[str, str] = {}
        """Policy by the path of the field that it gave."""
        self._open_sla = spec.profile is None and spec.slos is None
        self._open_traffic = spec.profile is None

    def fill_from(self, policy: VLLMSLAPolicy) -> None:
        """Take from one policy what is still open."""
        defaults, name = policy.spec.defaults, policy.metadata.name
        if defaults is None:
            return
        update: dict[str, Any] = {}
        if self._open_sla and (defaults.slos is not None or defaults.profile is not None):
            # One policy gives SLA and profile together: mixing two would be nobody's SLA.
            self._open_sla = False
            update |= self._take("slos", defaults.slos, name)
            update |= self._take("profile", defaults.profile, name)
        if self._open_traffic:
            traffic = _beside_trace(self.spec.workload, defaults.workload)
            update |= self._fill("workload", Workload, traffic, name)
            if self.spec.objective is None:
                update |= self._take("objective", defaults.objective, name)
        if self.spec.parameters is None:
            update |= self._take("parameters", defaults.parameters, name)
        if self.spec.windows is None:
            update |= self._take("windows", defaults.windows, name)
        update |= self._fill("budget", Budget, defaults.budget, name)
        update |= self._fill("update_policy", UpdatePolicy, defaults.update_policy, name)
        update |= self._fill("retune_policy", RetunePolicy, defaults.retune_policy, name)
        if effective.queue_of(self.spec.benchmark) is None:
            update |= self._fill("benchmark", Benchmark, defaults.benchmark, name)
        self.spec = self.spec.model_copy(update=update)
        # A profile brings the rest of the traffic: what comes after it comes too late.
        self._open_traffic = self.spec.profile is None

    def _take(self, field: str, value: object, policy: str) -> dict[str, object]:
        if value is None:
            return {}
        self.sources[wire_name(field)] = policy
        return {field: value}

    def _fill(
        self, field: str, model: type[M], given: APIModel | None, policy: str
    ) -> dict[str, M]:
        """Fill the open fields of a nested model from those of ``given``, which may have fewer."""
        if given is None:
            return {}
        have: M = getattr(self.spec, field) or model()
        update = {
            name: getattr(given, name)
            for name in type(given).model_fields
            if getattr(have, name) is None and getattr(given, name) is not None
        }
        for name in update:
            self.sources[f"{wire_name(field)}.{wire_name(name)}"] = policy
        return {field: have.model_copy(update=update)} if update else {}

    def credit(self, wish: Effective) -> Effective:
        """Name the policies as sources of what they gave."""
        notes = {note.field: note for note in wish.sources}
        for field, policy in self.sources.items():
            notes[field] = FieldSource(field=field, source=SourceKind.POLICY, name=policy)
        return wish.model_copy(update={"sources": tuple(notes.values())})


def _beside_trace(own: Workload | None, given: Workload | None) -> Workload | None:
    """Leave out of a policy's workload what a tuning's trace brings by itself."""
    if own is None or own.trace_ref is None or given is None:
        return given
    fields = ("source", "input_tokens", "output_tokens", "shared_prefix_percent")
    return given.model_copy(update=dict.fromkeys(fields))
