"""Each rule: a manifest that it finds fault with, and one that it leaves alone."""

from __future__ import annotations

import json

import pytest

from vllm_tuning.engine.lint.model import RULES, Severity
from vllm_tuning.engine.lint.run import lint_manifest
from vllm_tuning.engine.outcome import Refusal


def pod(args, *, version="0.20.2", command=None, **container):
    image = f"vllm/vllm-openai:v{version}" if version else "vllm/vllm-openai:latest"
    described = {"name": "vllm", "image": image, "args": args, **container}
    if command:
        described["command"] = command
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [described]},
    }


def findings(*objects, **options):
    text = "---\n".join(json.dumps(item, indent=1) + "\n" for item in objects)
    found = lint_manifest(text, **options)
    assert not isinstance(found, Refusal), found
    return found


def rules(*objects, **options):
    return {f.rule: f for f in findings(*objects, **options)}


MODULE = ["python3", "-m", "vllm.entrypoints.openai.api_server"]
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "vllm"}}
CASES = [
    # rule, severity, bad, good
    (
        "removed-flag",
        "error",
        pod(["m", "--swap-space=4"]),
        pod(["m", "--swap-space=4"], version="0.16.0"),
    ),
    (
        "removed-flag",
        "error",
        pod(["m", "--disable-log-requests"]),
        pod(["m", "--no-enable-log-requests"]),
    ),
    (
        "removed-flag",
        "warning",
        pod(["m", "--swap-space=4"], version=None),
        pod(["m"], version=None),
    ),
    ("unknown-flag", "error", pod(["m", "--max-num-seq-s=4"]), pod(["m", "--max-num-seqs=4"])),
    (
        "unknown-flag",
        "error",
        pod(["m", "--max-num-active-seqs=4"]),
        pod(["m", "--max-num-active-seqs=4"], version="0.31.0"),
    ),
    (
        "ambiguous-flag",
        "error",
        pod(["m", "--max-num-s=4"], version="0.26.0"),
        pod(["m", "--max-num-s=4"], version="0.25.1"),
    ),
    (
        "abbreviated-flag",
        "note",
        pod(["m", "--gpu-mem=0.9"]),
        pod(["m", "--gpu_memory_utilization=0.9"]),
    ),
    ("missing-value", "error", pod(["m", "--port"]), pod(["m", "--port", "1"])),
    (
        "boolean-with-value",
        "error",
        pod(["m", "--enable-prefix-caching=False"]),
        pod(["m", "--no-enable-prefix-caching"]),
    ),
    (
        "boolean-with-value",
        "error",
        pod(["m", "--enable-prefix-caching", "true"]),
        pod(["m", "--enable-prefix-caching"]),
    ),
    (
        "bad-value",
        "error",
        pod(["m", "--max-num-seqs=1k"]),
        pod(["m", "--max-num-batched-tokens=1k"]),
    ),
    ("bad-value", "error", pod(["m", "--kv-cache-dtype=fp16"]), pod(["m", "--kv-cache-dtype=fp8"])),
    ("flag-and-value-in-one-item", "error", pod(["m", "--port 1"]), pod(["m", "--port=1"])),
    (
        "positional-model-ignored",
        "error",
        pod(["m"], version="0.10.2"),
        pod(["--model=m"], version="0.10.2"),
    ),
    ("positional-model-ignored", "error", pod(["m"], command=MODULE), pod(["m"])),
    ("repeated-serve", "error", pod(["serve", "m"]), pod(["m"])),
    (
        "arguments-not-forwarded",
        "error",
        pod(["vllm serve m", "--port=1"], command=["sh", "-c"]),
        pod(['vllm serve "$@"', "--", "m", "--port=1"], command=["sh", "-c"]),
    ),
    (
        "model-not-first",
        "error",
        pod(["--served-model-name", "a", "m"]),
        pod(["m", "--served-model-name", "a", "b"]),
    ),
    ("duplicate-flag", "warning", pod(["m", "--port=1", "--port=2"]), pod(["m", "--port=1"])),
    (
        "config-file-ignored",
        "warning",
        pod(["m", "--config=/c.yaml"]),
        pod(["m", "--config", "/c.yaml"]),
    ),
    (
        "deprecated-flag",
        "warning",
        pod(["m", "--disable-log-requests"], version="0.12.0"),
        pod(["m"], version="0.12.0"),
    ),
    (
        "tokens-below-seqs",
        "error",
        pod(["m", "--max-num-seqs=64", "--max-num-batched-tokens=32"]),
        pod(["m", "--max-num-seqs=64", "--max-num-batched-tokens=64"]),
    ),
    (
        "seqs-above-default-tokens",
        "warning",
        pod(["m", "--max-num-seqs=4096"]),
        pod(["m", "--max-num-seqs=4096", "--max-num-batched-tokens=8192"]),
    ),
    (
        "seqs-lowered-by-tokens",
        "warning",
        pod(["m", "--max-num-batched-tokens=512"]),
        pod(["m", "--max-num-batched-tokens=512", "--max-num-seqs=256"]),
    ),
    (
        "tokens-cap-batch",
        "note",
        pod(["m", "--max-num-seqs=64", "--max-num-batched-tokens=2048"]),
        pod(["m", "--max-num-seqs=4", "--max-num-batched-tokens=2048"]),
    ),
    (
        "chunked-prefill-off",
        "warning",
        pod(["m", "--no-enable-chunked-prefill"]),
        pod(["m", "--enable-chunked-prefill"]),
    ),
    (
        "chunked-prefill-off",
        "error",
        pod(
            [
                "m",
                "--no-enable-chunked-prefill",
                "--max-model-len=8K",
                "--max-num-batched-tokens=4096",
            ]
        ),
        pod(["m"]),
    ),
    (
        "chunked-prefill-off",
        "warning",
        pod(["--model=m", "--no-enable-chunked-prefill"], version="0.9.1"),
        pod(["--model=m"], version="0.9.1"),
    ),
    (
        "partial-prefills",
        "error",
        pod(["m", "--max-num-partial-prefills=2"]),
        pod(["m", "--max-num-partial-prefills=1"]),
    ),
    (
        "memory-share-too-high",
        "warning",
        pod(["m", "--gpu-memory-utilization=0.98"]),
        pod(["m", "--gpu-memory-utilization=0.95"]),
    ),
    ("memory-share-too-high", "error", pod(["m", "--gpu-memory-utilization=95"]), pod(["m"])),
    (
        "memory-share-ignored",
        "warning",
        pod(["m", "--gpu-memory-utilization=0.9", "--kv-cache-memory-bytes=20G"]),
        pod(["m", "--kv-cache-memory-bytes=20G"]),
    ),
    (
        "prefill-threshold-too-high",
        "error",
        pod(["m", "--long-prefill-token-threshold=9000", "--max-model-len=8K"], version="0.30.0"),
        pod(["m", "--long-prefill-token-threshold=9000", "--max-model-len=8K"], version="0.26.0"),
    ),
    (
        "probe-timeout",
        "warning",
        pod(["m"], livenessProbe={"httpGet": {"path": "/health"}}),
        pod(["m"], livenessProbe={"timeoutSeconds": 15}),
    ),
    (
        "variable-without-effect",
        "warning",
        pod(["m"], env=[{"name": "VLLM_USE_V1", "value": "1"}]),
        pod(["m"], env=[{"name": "X", "value": "1"}]),
    ),
]


@pytest.mark.parametrize(
    ("rule", "severity", "bad", "good"), CASES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_rule(rule, severity, bad, good):
    found = rules(bad)
    assert rule in found
    finding = found[rule]
    assert finding.severity == severity
    assert finding.where.startswith("Pod/p[vllm]")
    assert finding.message
    assert finding.instead
    assert finding.line is not None
    assert rule not in rules(good)


def test_every_rule_has_a_case():
    elsewhere = {"service-named-vllm", "config-file-false"}
    assert {rule for rule, *_ in CASES} | elsewhere == set(RULES)


def test_service_named_vllm():
    assert rules(SERVICE, pod(["m"]))["service-named-vllm"].severity == "error"
    quiet = pod(["m"])
    quiet["spec"]["enableServiceLinks"] = False
    assert "service-named-vllm" not in rules(SERVICE, quiet)
    own = pod(["m"], env=[{"name": "VLLM_PORT", "value": "1"}])
    assert "service-named-vllm" not in rules(SERVICE, own)
    other = {**SERVICE, "metadata": {"name": "chat"}}
    assert "service-named-vllm" not in rules(other, pod(["m"]))


def test_false_in_a_config_file():
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    engine = pod(["m", "--config", "/c/v.yaml"], volumeMounts=[{"name": "c", "mountPath": "/c"}])
    engine["spec"]["volumes"] = [{"name": "c", "configMap": {"name": "c"}}]
    bad = {**config, "data": {"v.yaml": "enable-prefix-caching: false\n"}}
    found = rules(bad, engine)["config-file-false"]
    assert found.instead == "no-enable-prefix-caching: true"
    good = {**config, "data": {"v.yaml": "no-enable-prefix-caching: true\n"}}
    assert "config-file-false" not in rules(good, engine)


def test_the_prompt_length_decides_whether_the_budget_caps_the_batch():
    item = pod(["m", "--max-num-seqs=64", "--max-num-batched-tokens=2048"])
    assert "64 prompts of 512 tokens are 32,768 tokens" in rules(item)["tokens-cap-batch"].message
    assert "tokens-cap-batch" not in rules(item, prompt_tokens=32)


def test_a_given_version_counts_more_than_the_image():
    item = pod(["m", "--swap-space=4"], version="0.16.0")
    assert "removed-flag" in rules(item, version="0.20.2")


def test_what_can_not_be_read_is_said():
    item = pod([], command=["sh", "-c", 'eval "vllm serve m"'])
    found = rules(item)["not-read"]
    assert found.severity is Severity.WARNING
    assert "eval" in found.message


def test_lines_point_at_the_word():
    text = """apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers:
  - name: vllm
    command:
    - sh
    - -c
    - |
      # start
      exec vllm serve m \\
        --port 1 \\
        --max-num-seqs=1k
"""
    found = {f.rule: f.line for f in lint_manifest(text)}
    assert found["bad-value"] == 14


def test_nothing_to_say_about_a_good_manifest():
    assert findings(pod(["m", "--max-num-seqs=64", "--max-num-batched-tokens=32768"])) == []
