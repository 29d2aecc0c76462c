"""What holds for any wish under any policies."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vllm_tuning.api.benchmark import BenchmarkJob
from vllm_tuning.api.policy import Enforcement, VLLMSLAPolicy
from vllm_tuning.api.policy_rules import PolicyOverrides, RetuneBounds
from vllm_tuning.api.retune import RetunePolicy
from vllm_tuning.api.spec import UpdateMode, VLLMTuningSpec
from vllm_tuning.api.values import SLO
from vllm_tuning.reconcile.bounds import implies
from vllm_tuning.reconcile.policy import Subject, matching, resolve
from vllm_tuning.reconcile.policy_limits import apply_overrides

ANYBODY = Subject("serving", {}, {})
MODES = [str(mode) for mode in UpdateMode]


def _optional(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


latencies = st.builds(
    lambda metric, percentile, bound: {
        "metric": metric,
        "percentile": percentile,
        "maxMilliseconds": bound,
    },
    st.sampled_from(["TTFT", "TPOT"]),
    st.sampled_from([50, 95, 99]),
    st.integers(1, 9),
)
rates = st.builds(
    lambda metric, bound: {"metric": metric, "maxPercent": bound},
    st.sampled_from(["ErrorRate", "PreemptionRate"]),
    st.integers(0, 5),
)
slos = st.lists(
    latencies | rates,
    min_size=1,
    max_size=4,
    unique_by=lambda slo: (slo["metric"], slo.get("percentile")),
)


def _ordered(bounds: dict[str, Any]) -> dict[str, Any]:
    low, high = bounds.get("min"), bounds.get("max")
    return bounds | {"min": min(low, high), "max": max(low, high)} if low and high else bounds


parameters = st.lists(
    st.builds(
        lambda name, bounds: {"name": name, **_ordered(bounds)},
        st.sampled_from(["max_num_seqs", "max_num_batched_tokens"]),
        _optional(min=st.integers(1, 9), max=st.integers(1, 9)),
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda parameter: parameter["name"],
)
seconds = st.integers(1, 9)
budgets = _optional(gpuSeconds=seconds, deadlineSeconds=seconds)
update_policies = _optional(
    mode=st.sampled_from(MODES),
    allowManaged=st.booleans(),
    minimumImprovementPercent=st.integers(0, 9),
)
ages = _optional(afterDays=st.integers(1, 9), cooldownSeconds=seconds)
queues = _optional(queueName=st.sampled_from(["day", "night"]))
workloads = _optional(sharedPrefixPercent=st.integers(0, 9))
wishes = _optional(
    slos=slos,
    profile=st.sampled_from(["Chat", "Batch", "Custom"]),
    workload=workloads,
    parameters=parameters,
    budget=budgets,
    updatePolicy=update_policies,
    retunePolicy=ages,
    benchmark=queues,
)
overrides = _optional(
    slos=slos,
    maxMode=st.sampled_from(MODES),
    denyManaged=st.just(True),
    minimumImprovementPercent=st.integers(0, 9),
    parameters=parameters,
    frozenParameters=st.lists(st.sampled_from(["max_num_seqs"]), min_size=1, max_size=1),
    budget=budgets,
    retunePolicy=ages,
    benchmark=_optional(
        queueName=st.sampled_from(["day", "night"]),
        priorityClassName=st.sampled_from(["low", "lower"]),
    ),
)
bodies = st.builds(
    lambda spec, day: {"spec": spec, "day": day},
    _optional(
        defaults=wishes,
        overrides=overrides,
        priority=st.integers(0, 2),
        enforcement=st.sampled_from([str(word) for word in Enforcement]),
    ),
    st.integers(1, 3),
)


def _policies(found: list[dict[str, Any]]) -> list[VLLMSLAPolicy]:
    return [
        VLLMSLAPolicy.from_object(
            {
                "metadata": {
                    "name": f"p{number}",
                    "creationTimestamp": datetime(2026, 1, body["day"], tzinfo=UTC).isoformat(),
                },
                "spec": body["spec"],
            }
        )
        for number, body in enumerate(found)
    ]


policies = st.lists(bodies, max_size=4).map(_policies)
specs = wishes.map(lambda spec: VLLMTuningSpec.from_object({"targetRef": {"name": "x"}, **spec}))


def _enforced(found: list[VLLMSLAPolicy]) -> list[PolicyOverrides]:
    return [
        policy.spec.overrides
        for policy in matching(found, ANYBODY)
        if policy.spec.enforcement is Enforcement.ENFORCE and policy.spec.overrides is not None
    ]


@given(specs, policies, st.randoms())
def test_the_order_in_which_policies_are_listed_does_not_matter(
    spec: VLLMTuningSpec, found: list[VLLMSLAPolicy], random: Any
) -> None:
    shuffled = list(found)
    random.shuffle(shuffled)

    assert resolve(spec, matching(found, ANYBODY)) == resolve(spec, matching(shuffled, ANYBODY))


@given(specs, policies)
def test_no_enforced_bound_is_exceeded(spec: VLLMTuningSpec, found: list[VLLMSLAPolicy]) -> None:
    resolved = resolve(spec, matching(found, ANYBODY))
    wish, overruled = resolved.effective, {item.policy for item in resolved.overruled}

    for policy in matching(found, ANYBODY):
        rules = policy.spec.overrides
        if rules is None or policy.spec.enforcement is not Enforcement.ENFORCE:
            continue
        for ceiling in rules.slos or ():
            assert any(implies(slo, ceiling) for slo in wish.slos)
        assert wish.update_policy is not None
        if rules.max_mode is not None:
            modes = list(UpdateMode)
            assert wish.update_policy.mode is not None
            assert modes.index(wish.update_policy.mode) <= modes.index(rules.max_mode)
        if rules.deny_managed:
            assert not wish.update_policy.allow_managed
        if rules.budget is not None and rules.budget.gpu_seconds is not None:
            assert wish.budget is not None
            assert wish.budget.gpu_seconds is not None
            assert wish.budget.gpu_seconds <= rules.budget.gpu_seconds
        frozen = rules.frozen_parameters or ()
        assert not any(parameter.name in frozen for parameter in wish.parameters)
        for bound in rules.parameters or () if policy.metadata.name not in overruled else ():
            for parameter in wish.parameters:
                if parameter.name is bound.name:
                    assert bound.min is None or (parameter.min or 0) >= bound.min
                    assert bound.max is None or (parameter.max or 10**9) <= bound.max


@given(specs, policies)
def test_runs_repeat_and_wait_as_every_enforced_policy_says(
    spec: VLLMTuningSpec, found: list[VLLMSLAPolicy]
) -> None:
    resolved = resolve(spec, matching(found, ANYBODY))
    wish, overruled = resolved.effective, {item.policy for item in resolved.overruled}
    policy, job = wish.retune_policy or RetunePolicy(), wish.benchmark or BenchmarkJob()

    for rules in _enforced(found):
        bounds = rules.retune_policy or RetuneBounds()
        assert (policy.after_days or 99) <= (bounds.after_days or 99)
        assert (policy.cooldown_seconds or 0) >= (bounds.cooldown_seconds or 0)
    for enforced in matching(found, ANYBODY):
        rules = enforced.spec.overrides or PolicyOverrides()
        holds = enforced.spec.enforcement is Enforcement.ENFORCE
        if holds and enforced.metadata.name not in overruled and rules.benchmark is not None:
            wished = rules.benchmark.model_dump(exclude_none=True)
            assert wished.items() <= job.model_dump().items()


@given(specs, policies)
def test_an_explicit_field_is_changed_by_enforced_overrides_only(
    spec: VLLMTuningSpec, found: list[VLLMSLAPolicy]
) -> None:
    without = resolve(spec, ()).effective
    wish = resolve(spec, matching(found, ANYBODY)).effective

    if _enforced(found):
        return
    if spec.slos is not None:
        assert wish.slos == without.slos
    if spec.parameters is not None:
        assert wish.parameters == without.parameters
    if spec.update_policy is not None and spec.update_policy.mode is not None:
        assert wish.update_policy is not None
        assert wish.update_policy.mode is spec.update_policy.mode


@given(specs, policies)
def test_every_value_has_one_source_and_every_named_policy_exists(
    spec: VLLMTuningSpec, found: list[VLLMSLAPolicy]
) -> None:
    wish = resolve(spec, matching(found, ANYBODY)).effective

    fields = [note.field for note in wish.sources]
    assert len(fields) == len(set(fields))
    names = {policy.metadata.name for policy in found}
    assert {note.name for note in wish.sources if note.source == "Policy"} <= names


@given(specs, policies)
def test_narrowing_twice_is_narrowing_once(
    spec: VLLMTuningSpec, found: list[VLLMSLAPolicy]
) -> None:
    ordered = matching(found, ANYBODY)
    once = resolve(spec, ordered).effective

    twice = apply_overrides(once, ordered)

    assert twice.effective == once
    assert not any(d.enforcement is Enforcement.ENFORCE for d in twice.deviations)


@given(specs, policies)
def test_the_strictest_sla_is_as_short_as_can_be(
    spec: VLLMTuningSpec, found: list[VLLMSLAPolicy]
) -> None:
    """What a policy adds makes what it implies superfluous; nothing is said twice."""
    wish = resolve(spec, matching(found, ANYBODY)).effective

    assert len({(slo.metric, slo.percentile) for slo in wish.slos}) == len(wish.slos)


@given(latencies | rates, latencies | rates, st.integers(0, 99), st.integers(0, 12))
def test_implication_is_what_it_means(
    strict: dict[str, Any], loose: dict[str, Any], share: int, value: int
) -> None:
    """Whoever has ``share`` percent within ``value`` and meets one, meets the other."""
    a, b = SLO.from_object(strict), SLO.from_object(loose)

    def met(slo: SLO) -> bool:
        if slo.max_percent is not None:
            return value <= slo.max_percent
        assert slo.percentile is not None
        assert slo.max_milliseconds is not None
        return share >= slo.percentile and value <= slo.max_milliseconds

    if implies(a, b) and met(a):
        assert met(b)
