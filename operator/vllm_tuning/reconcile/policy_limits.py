"""Overrides: what no tuning may exceed, and of several policies the strictest.

Each kind of bound merges by one rule that does not depend on order: SLO bounds, modes, budgets,
ages and upper bounds by their minimum, gains, cool-downs and lower bounds by their maximum, frozen
names by union. Only parameter bounds, queues and priority classes of two policies can exclude each
other; then the one first in precedence holds and the other is told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from vllm_tuning.api.base import wire_name
from vllm_tuning.api.benchmark import BenchmarkJob
from vllm_tuning.api.policy import Enforcement, VLLMSLAPolicy
from vllm_tuning.api.policy_rules import PolicyOverrides
from vllm_tuning.api.retune import RetunePolicy
from vllm_tuning.api.spec import Budget, Parameter, ParameterName, UpdatePolicy
from vllm_tuning.api.status import Effective, FieldSource, SourceKind, WindowsOf
from vllm_tuning.api.values import SLO
from vllm_tuning.reconcile.bounds import (
    describe,
    implies,
    intersect,
    narrow,
    range_of,
    rank,
    same_subject,
)
from vllm_tuning.reconcile.windows import covers, describe_windows


@dataclass(frozen=True, slots=True)
class Deviation:
    """A wish that exceeds a policy."""

    policy: str
    enforcement: Enforcement
    field: str
    """Path below spec."""
    wished: str
    allowed: str

    def __str__(self) -> str:
        verb = "is" if self.enforcement is Enforcement.ENFORCE else "should be"
        return f"{self.field}: {self.wished} {verb} {self.allowed} by VLLMSLAPolicy {self.policy}"


@dataclass(frozen=True, slots=True)
class Overruled:
    """A bound that excludes one of a policy before it, and so does not hold."""

    policy: str
    field: str
    bound: str
    holds: str
    """The bounds that hold instead."""

    def __str__(self) -> str:
        return f"{self.field}: {self.bound} excludes {self.holds} of the policies before it"


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A wish within all enforced policies."""

    effective: Effective
    deviations: tuple[Deviation, ...]
    overruled: tuple[Overruled, ...]


@dataclass(slots=True)
class _Wish:
    """The wish while policies narrow it."""

    slos: tuple[SLO, ...]
    update_policy: UpdatePolicy
    parameters: tuple[Parameter, ...]
    budget: Budget
    retune_policy: RetunePolicy
    benchmark: BenchmarkJob
    windows: tuple[WindowsOf, ...]
    sources: dict[str, FieldSource] = field(default_factory=dict)
    allowed: dict[ParameterName, Parameter] = field(default_factory=dict)
    """Bounds of the enforced policies so far."""
    named: dict[str, str] = field(default_factory=dict)
    """Names that the enforced policies so far have given, by path below spec."""


def apply_overrides(wish: Effective, policies: Sequence[VLLMSLAPolicy]) -> Narrowed:
    """Narrow a wish to what enforced policies allow; report what exceeds any of them.

    ``policies`` come in order of precedence. A policy in Warn or Audit changes nothing; its
    deviations are measured against the narrowed wish: what an enforced policy has already cured is
    nobody's fault.
    """
    state = _Wish(
        slos=wish.slos,
        update_policy=wish.update_policy or UpdatePolicy(),
        parameters=wish.parameters,
        budget=wish.budget or Budget(),
        retune_policy=wish.retune_policy or RetunePolicy(),
        benchmark=wish.benchmark or BenchmarkJob(),
        windows=wish.windows,
        sources={note.field: note for note in wish.sources},
    )
    enforced = [p for p in policies if p.spec.enforcement is Enforcement.ENFORCE]
    others = [p for p in policies if p.spec.enforcement is not Enforcement.ENFORCE]
    found: list[Deviation | Overruled] = []
    for policy in (*enforced, *others):
        if policy.spec.overrides is not None:
            found.extend(_Narrowing(state, policy, policy.spec.overrides).run())
    return Narrowed(
        wish.model_copy(
            update={
                "slos": state.slos,
                "update_policy": state.update_policy,
                "parameters": state.parameters,
                "budget": state.budget,
                "retune_policy": state.retune_policy,
                "benchmark": state.benchmark if state.benchmark != BenchmarkJob() else None,
                "windows": state.windows,
                "sources": tuple(state.sources.values()),
            }
        ),
        tuple(item for item in found if isinstance(item, Deviation)),
        tuple(item for item in found if isinstance(item, Overruled)),
    )


@dataclass(frozen=True, slots=True)
class _Narrowing:
    """One policy at work on a wish."""

    wish: _Wish
    policy: VLLMSLAPolicy
    rules: PolicyOverrides

    def run(self) -> Iterator[Deviation | Overruled]:
        """Yield what exceeds the policy; change the wish if the policy is enforced."""
        yield from self._slos()
        yield from self._update_policy()
        yield from self._frozen()
        yield from self._bounds()
        yield from self._budget()
        yield from self._retune_policy()
        yield from self._benchmark()
        yield from self._windows()

    def _enforced(self) -> bool:
        return self.policy.spec.enforcement is Enforcement.ENFORCE

    def _deviation(self, path: str, wished: object, allowed: object) -> Deviation:
        name = self.policy.metadata.name
        if self._enforced():
            self.wish.sources[path] = FieldSource(field=path, source=SourceKind.POLICY, name=name)
        return Deviation(name, self.policy.spec.enforcement, path, str(wished), str(allowed))

    def _slos(self) -> Iterator[Deviation]:
        for ceiling in self.rules.slos or ():
            if any(implies(slo, ceiling) for slo in self.wish.slos):
                continue
            looser = [slo for slo in self.wish.slos if same_subject(slo, ceiling)]
            wished = describe(looser[0]) if looser else "absent"
            yield self._deviation("slos", wished, describe(ceiling))
            if self._enforced():
                kept = [slo for slo in self.wish.slos if not implies(ceiling, slo)]
                self.wish.slos = (*kept, ceiling)

    def _update_policy(self) -> Iterator[Deviation]:
        rules, now = self.rules, self.wish.update_policy
        if rules.max_mode is not None and rank(now.mode) > rank(rules.max_mode):
            yield self._deviation("updatePolicy.mode", now.mode, rules.max_mode)
            self._update(mode=rules.max_mode)
        if rules.deny_managed and now.allow_managed:
            yield self._deviation("updatePolicy.allowManaged", "true", "false")
            self._update(allow_managed=False)
        floor, gain = rules.minimum_improvement_percent, now.minimum_improvement_percent
        if floor is not None and (gain is None or gain < floor):
            yield self._deviation("updatePolicy.minimumImprovementPercent", gain, floor)
            self._update(minimum_improvement_percent=floor)

    def _update(self, **changes: object) -> None:
        if self._enforced():
            self.wish.update_policy = self.wish.update_policy.model_copy(update=changes)

    def _frozen(self) -> Iterator[Deviation]:
        frozen = set(self.rules.frozen_parameters or ())
        for parameter in self.wish.parameters:
            if parameter.name in frozen:
                yield self._deviation(f"parameters.{parameter.name}", "tuned", "left alone")
        if self._enforced():
            self.wish.parameters = tuple(p for p in self.wish.parameters if p.name not in frozen)

    def _bounds(self) -> Iterator[Deviation | Overruled]:
        for bound in self.rules.parameters or ():
            path = f"parameters.{bound.name}"
            holds = self.wish.allowed.get(bound.name, Parameter(name=bound.name))
            common = intersect(holds, bound)
            if common is None:
                yield Overruled(self.policy.metadata.name, path, range_of(bound), range_of(holds))
                continue
            if self._enforced():
                self.wish.allowed[bound.name] = common
            yield from self._narrow_one(path, common)

    def _narrow_one(self, path: str, bound: Parameter) -> Iterator[Deviation]:
        for index, parameter in enumerate(self.wish.parameters):
            inside = narrow(parameter, bound) if parameter.name is bound.name else parameter
            if inside == parameter:
                continue
            yield self._deviation(path, range_of(parameter), range_of(inside))
            if self._enforced():
                before, after = self.wish.parameters[:index], self.wish.parameters[index + 1 :]
                self.wish.parameters = (*before, inside, *after)

    def _budget(self) -> Iterator[Deviation]:
        caps = self.rules.budget
        if caps is None:
            return
        for name in Budget.model_fields:
            cap, now = getattr(caps, name), getattr(self.wish.budget, name)
            if cap is not None and (now is None or now > cap):
                yield self._deviation(f"budget.{wire_name(name)}", now, cap)
                if self._enforced():
                    self.wish.budget = self.wish.budget.model_copy(update={name: cap})

    def _retune_policy(self) -> Iterator[Deviation]:
        bounds = self.rules.retune_policy
        if bounds is None:
            return
        for name, strictest in (("after_days", min), ("cooldown_seconds", max)):
            bound, now = getattr(bounds, name), getattr(self.wish.retune_policy, name)
            if bound is None or (now is not None and strictest(bound, now) == now):
                continue
            path = f"retunePolicy.{wire_name(name)}"
            yield self._deviation(path, "absent" if now is None else now, bound)
            if self._enforced():
                changed = self.wish.retune_policy.model_copy(update={name: bound})
                self.wish.retune_policy = changed

    def _benchmark(self) -> Iterator[Deviation | Overruled]:
        """A name is not stricter than another: the first policy's holds."""
        rules = self.rules.benchmark or BenchmarkJob()
        for name in BenchmarkJob.model_fields:
            bound, now = getattr(rules, name), getattr(self.wish.benchmark, name)
            path = f"benchmark.{wire_name(name)}"
            holds = self.wish.named.get(path, bound)
            if bound is None:
                continue
            if bound != holds:
                yield Overruled(self.policy.metadata.name, path, bound, holds)
                continue
            if self._enforced():
                self.wish.named[path] = bound
            if now == bound:
                continue
            yield self._deviation(path, now or "absent", bound)
            if self._enforced():
                self.wish.benchmark = self.wish.benchmark.model_copy(update={name: bound})

    def _windows(self) -> Iterator[Deviation]:
        """All rules hold at once, so a policy's windows are added, not merged."""
        bound = self.rules.windows
        if bound is None or any(covers(bound, rule.windows) for rule in self.wish.windows):
            return
        wished = "; ".join(describe_windows(rule.windows) for rule in self.wish.windows)
        yield self._deviation("windows", wished or "at any time", describe_windows(bound))
        if self._enforced():
            rule = WindowsOf(policy=self.policy.metadata.name, windows=bound)
            self.wish.windows = (*self.wish.windows, rule)[:16]
