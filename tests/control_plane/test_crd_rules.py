"""Each rule of the CRDs on a real API server: what is refused, in which words, and what is not."""

from __future__ import annotations

import pytest

from tests.control_plane.api_server import APIServer
from tests.control_plane.objects import TTFT, policy, trial, tuning
from vllm_tuning.api.crd import KINDS, definition
from vllm_tuning.api.schema import walk

pytestmark = pytest.mark.control_plane

VALID = {
    "six lines": tuning(),
    "an SLA that a policy may bring": tuning(slos=None),
    "a profile instead of slos": tuning(slos=None, profile="Chat"),
    "a custom profile with slos": tuning(profile="Custom"),
    "a rate": tuning(slos=[{"metric": "ErrorRate", "maxPercent": 1}]),
    "no errors at all": tuning(slos=[{"metric": "ErrorRate", "maxPercent": 0}]),
    "two percentiles of one metric": tuning(
        slos=[TTFT, {"metric": "TTFT", "percentile": 50, "maxMilliseconds": 100}]
    ),
    "every metric": tuning(
        slos=[
            *(
                {"metric": metric, "percentile": 99, "maxMilliseconds": 1}
                for metric in ("TTFT", "TPOT", "ITL", "MaxGap", "E2ELatency")
            ),
            {"metric": "ErrorRate", "maxPercent": 1},
            {"metric": "PreemptionRate", "maxPercent": 100},
        ]
    ),
    "open arrivals at a rate": tuning(workload={"arrival": "Open", "requestsPerMinute": 90}),
    "clients without a word on arrival": tuning(workload={"concurrency": 8}),
    "lengths": tuning(
        workload={
            "inputTokens": {"mean": 100, "cvPercent": 150, "max": 100},
            "sharedPrefixPercent": 0,
        }
    ),
    "nothing but what is declared": tuning(workload={"source": "Declared"}),
    "learnt as far as it is not declared": tuning(
        workload={"source": "Auto", "outputTokens": {"mean": 100}}
    ),
    "a trace": tuning(
        workload={
            "traceRef": {"name": "chat.traces", "key": "azure_2024-05.csv"},
            "arrival": "Open",
            "requestsPerMinute": 60,
            "sharedPrefixPercent": 20,
        }
    ),
    "a trace for a number of clients": tuning(
        workload={"traceRef": {"name": "t", "key": "k"}, "concurrency": 8}
    ),
    "a demand and its objective": tuning(
        objective="MinLatencyAtRate", workload={"requestsPerMinute": 60}
    ),
    "clients and their objective": tuning(
        objective="MaxThroughputAtConcurrency", workload={"concurrency": 64}
    ),
    "open bounds": tuning(
        parameters=[
            {"name": "max_num_seqs", "min": 4},
            {"name": "max_num_batched_tokens", "max": 8192},
            {"name": "gpu_memory_utilization", "min": 80, "max": 95},
            {"name": "enable_chunked_prefill"},
        ]
    ),
    "one value only": tuning(parameters=[{"name": "max_num_seqs", "min": 8, "max": 8}]),
    "everything else": tuning(
        budget={
            "gpuSeconds": 600,
            "deadlineSeconds": 600,
            "scheduleDeadlineSeconds": 60,
            "startupDeadlineSeconds": 60,
        },
        benchmark={
            "command": ["vllm", "serve"],
            "python": "/opt/venv/bin/python",
            "labels": {"team": "chat"},
            "queueName": "tuning",
        },
        updatePolicy={
            "mode": "Auto",
            "channel": "Args",
            "allowManaged": True,
            "minimumImprovementPercent": 0,
            "rolloutDeadlineSeconds": 60,
        },
        suspend=True,
        historyLimit=0,
    ),
    "nights of the weekend": tuning(
        windows=[
            {
                "days": ["Saturday", "Sunday"],
                "start": "22:00",
                "durationMinutes": 480,
                "timeZone": "America/Argentina/Buenos_Aires",
            },
            {"start": "02:30", "durationMinutes": 60},
        ]
    ),
    "a queue by Kueue's own label": tuning(
        benchmark={"labels": {"kueue.x-k8s.io/queue-name": "tuning"}}
    ),
    "a retune policy": tuning(
        retunePolicy={"afterDays": 30, "cooldownSeconds": 86_400, "onDrift": "Measure"}
    ),
    "a policy that makes tunings": policy(
        defaults={"profile": "Chat"},
        overrides={"windows": [{"start": "02:30", "durationMinutes": 60}]},
        autoCreate={"selector": {"matchLabels": {"vllmtuning.io/tune": "true"}}},
    ),
    "a policy of defaults": policy(defaults={"slos": [TTFT], "budget": {"gpuSeconds": 60}}),
    "a policy with everything": policy(
        priority=-5,
        namespaceSelector={"matchLabels": {"env": "prod"}},
        excludedNamespaces=["kube-system"],
        selector={
            "matchExpressions": [
                {"key": "app", "operator": "In", "values": ["a", "b"]},
                {"key": "tier", "operator": "Exists"},
            ]
        },
        enforcement="Audit",
        defaults={
            "profile": "Chat",
            "workload": {"concurrency": 8},
            "objective": "MaxRateUnderSLO",
            "parameters": [{"name": "max_num_seqs"}],
            "updatePolicy": {"mode": "Manual"},
            "retunePolicy": {"afterDays": 30, "cooldownSeconds": 60, "onDrift": "Measure"},
            "benchmark": {"queueName": "tuning"},
        },
        overrides={
            "slos": [{"metric": "ErrorRate", "maxPercent": 1}],
            "maxMode": "Manual",
            "denyManaged": True,
            "minimumImprovementPercent": 10,
            "parameters": [{"name": "gpu_memory_utilization", "max": 92}],
            "frozenParameters": ["enable_chunked_prefill"],
            "budget": {"deadlineSeconds": 3600},
            "retunePolicy": {"afterDays": 90, "cooldownSeconds": 3600},
            "benchmark": {"queueName": "tuning", "priorityClassName": "lowest"},
        },
    ),
}

INVALID = {
    "a time that is none": (
        tuning(windows=[{"start": "24:00", "durationMinutes": 60}]),
        "spec.windows[0].start",
    ),
    "a time without quotes": (
        tuning(windows=[{"start": 1320, "durationMinutes": 60}]),
        'must be of type string: "integer"',
    ),
    "a day in short": (
        tuning(windows=[{"start": "22:00", "durationMinutes": 60, "days": ["Sat"]}]),
        'supported values: "Monday"',
    ),
    "a window that stays open": (
        tuning(windows=[{"start": "22:00", "durationMinutes": 10_081}]),
        "less than or equal to 10080",
    ),
    "drift that is applied": (
        tuning(retunePolicy={"onDrift": "Reapply"}),
        'supported values: "Report", "Measure"',
    ),
    "a queue named twice": (
        tuning(
            benchmark={"queueName": "a", "labels": {"kueue.x-k8s.io/queue-name": "a", "team": "b"}}
        ),
        "keep queueName and remove the label kueue.x-k8s.io/queue-name",
    ),
    "a queue that can not be a label": (
        tuning(benchmark={"queueName": "Night Shift"}),
        "spec.benchmark.queueName",
    ),
    "a priority that only policies give": (
        tuning(benchmark={"priorityClassName": "system-cluster-critical"}),
        'unknown field "spec.benchmark.priorityClassName"',
    ),
    "a policy that says what drift means": (
        policy(overrides={"retunePolicy": {"onDrift": "Measure"}}),
        'unknown field "spec.overrides.retunePolicy.onDrift"',
    ),
    "tunings for everybody": (
        policy(defaults={"profile": "Chat"}, autoCreate={"selector": {}}),
        "an empty selector would tune every vLLM server",
    ),
    "tunings without an SLA": (
        policy(
            defaults={"budget": {"gpuSeconds": 60}},
            autoCreate={"selector": {"matchLabels": {"tune": "true"}}},
        ),
        "a tuning that is made needs an SLA",
    ),
    "no target": (tuning(targetRef=None), "spec.targetRef: Required value"),
    "no name": (tuning(targetRef={}), "spec.targetRef.name: Required value"),
    "a StatefulSet": (
        tuning(targetRef={"name": "chat", "kind": "StatefulSet"}),
        'supported values: "Deployment"',
    ),
    "a name with capitals": (tuning(targetRef={"name": "Chat"}), "spec.targetRef.name"),
    "an empty list": (tuning(slos=[]), "should have at least 1 items"),
    "an unknown profile": (
        tuning(profile="chat"),
        'supported values: "Chat", "Batch", "Mixed", "Custom"',
    ),
    "an unknown metric": (
        tuning(slos=[TTFT | {"metric": "ttft"}]),
        'supported values: "TTFT", "TPOT", "ITL"',
    ),
    "no bound": (
        tuning(slos=[{"metric": "TTFT", "percentile": 95}]),
        "an SLO needs a bound: add maxMilliseconds",
    ),
    "a rate without bound": (tuning(slos=[{"metric": "ErrorRate"}]), "an SLO needs a bound"),
    "both bounds": (tuning(slos=[TTFT | {"maxPercent": 5}]), "an SLO has one bound"),
    "a latency in percent": (
        tuning(slos=[{"metric": "TTFT", "percentile": 95, "maxPercent": 5}]),
        "write maxMilliseconds instead of maxPercent",
    ),
    "a rate in milliseconds": (
        tuning(slos=[{"metric": "ErrorRate", "maxMilliseconds": 5}]),
        "write maxPercent instead of maxMilliseconds",
    ),
    "a rate with percentile": (
        tuning(slos=[{"metric": "ErrorRate", "percentile": 95, "maxPercent": 1}]),
        "a rate has no percentile: remove percentile",
    ),
    "a latency without percentile": (
        tuning(slos=[{"metric": "TTFT", "maxMilliseconds": 300}]),
        "e.g. percentile: 95",
    ),
    "a finer percentile": (
        tuning(slos=[TTFT | {"percentile": 99.9}]),
        "spec.slos[0].percentile",
    ),
    "percentile 100": (tuning(slos=[TTFT | {"percentile": 100}]), "less than or equal to 99"),
    "the same objective twice": (
        tuning(slos=[TTFT, TTFT | {"maxMilliseconds": 500}]),
        "two slos for the same metric and percentile: keep the stricter one",
    ),
    "the same rate twice": (
        tuning(slos=[{"metric": "ErrorRate", "maxPercent": p} for p in (1, 2)]),
        "two slos for the same metric",
    ),
    "a bound in words": (
        tuning(slos=[TTFT | {"maxMilliseconds": "300ms"}]),
        "must be of type integer",
    ),
    "too many slos": (
        tuning(slos=[TTFT | {"percentile": p} for p in range(1, 18)]),
        "must have at most 16 items",
    ),
    "a trace and lengths": (
        tuning(
            workload={"traceRef": {"name": "t", "key": "k"}, "outputTokens": {"mean": 100}},
        ),
        "a trace brings its own lengths: remove inputTokens and outputTokens, or traceRef",
    ),
    "a trace that is learnt": (
        tuning(workload={"traceRef": {"name": "t", "key": "k"}, "source": "Auto"}),
        "with a trace nothing is learnt: remove source, or traceRef",
    ),
    "a trace without a key": (
        tuning(workload={"traceRef": {"name": "t"}}),
        "spec.workload.traceRef.key: Required value",
    ),
    "a trace of another namespace": (
        tuning(workload={"traceRef": {"name": "other/t", "key": "k"}}),
        "spec.workload.traceRef.name",
    ),
    "a key with a path": (
        tuning(workload={"traceRef": {"name": "t", "key": "../k"}}),
        "spec.workload.traceRef.key",
    ),
    "a source that is none": (
        tuning(workload={"source": "Target"}),
        'supported values: "Auto", "Declared"',
    ),
    "a trace for everybody": (
        policy(defaults={"workload": {"traceRef": {"name": "t", "key": "k"}}}),
        (
            "a trace lies in a tuning's own namespace: name it in the VLLMTuning, or write "
            "inputTokens and outputTokens here"
        ),
    ),
    "clients with open arrivals": (
        tuning(workload={"arrival": "Open", "concurrency": 8}),
        "write arrival: Closed, or remove concurrency",
    ),
    "a rate with closed arrivals": (
        tuning(workload={"arrival": "Closed", "requestsPerMinute": 8}),
        "concurrency instead of requestsPerMinute",
    ),
    "two demands": (
        tuning(workload={"concurrency": 8, "requestsPerMinute": 8}),
        "either requestsPerMinute (open arrivals) or concurrency (closed): remove one",
    ),
    "a maximum below the mean": (
        tuning(workload={"inputTokens": {"mean": 100, "max": 99}}),
        "raise max or lower mean",
    ),
    "no demand for its objective": (
        tuning(objective="MinLatencyAtRate", workload={"inputTokens": {"mean": 9}}),
        "add workload.requestsPerMinute",
    ),
    "no clients for their objective": (
        tuning(objective="MaxThroughputAtConcurrency"),
        "add workload.concurrency",
    ),
    "an unknown parameter": (
        tuning(parameters=[{"name": "max-num-seqs"}]),
        'supported values: "max_num_seqs", "max_num_batched_tokens"',
    ),
    "min above max": (
        tuning(parameters=[{"name": "max_num_seqs", "min": 9, "max": 8}]),
        "min is above max: swap them",
    ),
    "bounds of a switch": (
        tuning(parameters=[{"name": "enable_chunked_prefill", "max": 1}]),
        "listing it lets both be measured; remove min and max",
    ),
    "a share above one": (
        tuning(parameters=[{"name": "gpu_memory_utilization", "max": 100}]),
        "write max: 92 for 0.92",
    ),
    "a share as a fraction": (
        tuning(parameters=[{"name": "gpu_memory_utilization", "max": 0.92}]),
        "spec.parameters[0].max",
    ),
    "a quoted number": (
        tuning(parameters=[{"name": "max_num_seqs", "max": "64"}]),
        "must be of type integer",
    ),
    "a parameter twice": (
        tuning(parameters=[{"name": "max_num_seqs", "min": 1}, {"name": "max_num_seqs"}]),
        "Duplicate value",
    ),
    "a channel that does not exist": (
        tuning(updatePolicy={"channel": "Helm"}),
        'supported values: "Args"',
    ),
    "mode Off": (tuning(updatePolicy={"mode": False}), "spec.updatePolicy.mode"),
    "no budget": (tuning(budget={"gpuSeconds": 0}), "greater than or equal to 1"),
    "a policy that says nothing": (
        policy(priority=1),
        "the policy says nothing: add defaults (the tuning wins) or overrides (the policy wins)",
    ),
    "a selector without values": (
        policy(defaults={}, selector={"matchExpressions": [{"key": "app", "operator": "NotIn"}]}),
        "In and NotIn need values; Exists and DoesNotExist take none",
    ),
    "values for nothing": (
        policy(
            defaults={},
            selector={"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
        ),
        "Exists and DoesNotExist take none",
    ),
    "a policy's bound without number": (
        policy(overrides={"slos": [{"metric": "TPOT", "percentile": 9}]}),
        "an SLO needs a bound",
    ),
    "a permission that is none": (
        policy(overrides={"denyManaged": False}),
        "spec.overrides.denyManaged",
    ),
    "a name too long for a label": (
        tuning() | {"metadata": {"name": "x" * 64}},
        "choose a name of at most 63 characters",
    ),
}


@pytest.mark.parametrize("name", VALID)
def test_accepted(server: APIServer, name: str) -> None:
    done = server.try_create(VALID[name])

    assert done.ok, done.words
    assert "unknown field" not in done.words


@pytest.mark.parametrize("name", INVALID)
def test_refused_with_words_that_help(server: APIServer, name: str) -> None:
    body, words = INVALID[name]

    done = server.try_create(body)

    assert not done.ok
    assert words in done.words


def test_every_rule_has_a_case() -> None:
    schemas = [
        definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS
    ]
    messages = {
        rule["message"]
        for schema in schemas
        for _, node in walk(schema)
        for rule in node.get("x-kubernetes-validations", ())
        if "oldSelf" not in rule["rule"]
    }
    expected = [words for _, words in INVALID.values()]

    untested = {text for text in messages if not any(words in text for words in expected)}

    assert not untested


def test_a_misspelt_field_is_refused(server: APIServer) -> None:
    done = server.try_create(tuning(updatepolicy={"mode": "Auto"}))

    assert not done.ok
    assert 'unknown field "spec.updatepolicy"' in done.words


def test_the_target_can_not_be_exchanged_but_its_container_can_be_named(
    server: APIServer, namespace: str
) -> None:
    server.create(namespace, tuning())

    other = server.patch(namespace, "vt/chat", {"spec": {"targetRef": {"name": "other"}}})
    named = server.patch(namespace, "vt/chat", {"spec": {"targetRef": {"containerName": "vllm"}}})

    assert not other.ok
    assert "targetRef is immutable: create another VLLMTuning" in other.words
    assert named.ok, named.words


def test_a_trial_is_a_record(server: APIServer, namespace: str) -> None:
    server.create(namespace, trial())

    done = server.patch(namespace, "vtrial/chat-t01", {"spec": {"purpose": "Confirm"}})

    assert not done.ok
    assert "a trial is a record: its spec can not be changed" in done.words
