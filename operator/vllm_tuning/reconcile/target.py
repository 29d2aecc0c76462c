"""The target as it concerns us: vLLM container, flags, limits in force, GPU, other managers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vllm_tuning.api.benchmark import Benchmark
from vllm_tuning.api.reasons import Reason
from vllm_tuning.api.spec import VLLMTuningSpec
from vllm_tuning.engine.args import EngineArgs, read_args
from vllm_tuning.engine.containers import find_vllm_container
from vllm_tuning.engine.defaults import default_limits
from vllm_tuning.engine.flags.version import at_least
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.reconcile.devices import (
    GPU_MEMORY_LABEL,
    gpu_count,
    mixed_products,
    number,
    refuse_span,
    slowest_node,
)
from vllm_tuning.reconcile.entrypoint import Entrypoint, build_entrypoint
from vllm_tuning.reconcile.observed import Body, Observed
from vllm_tuning.reconcile.pod import GPU_PRODUCT_LABEL, refuse_pod
from vllm_tuning.reconcile.volumes import refuse_volumes, shared_node
from vllm_tuning.tuning.model import Limits

OLDEST_ENGINE: Final = "0.11"
"""The first release with nothing but the V1 engine, which live limits need."""
TUNED_FLAGS: Final = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "enable_chunked_prefill",
    "long_prefill_token_threshold",
)
"""Flags that a recommendation may set; a fingerprint leaves them out."""

_TAG_VERSION: Final = re.compile(
    r"(?:^|.*vllm[-_])v?(\d+\.\d+(?:\.\d+)?(?:(?:rc|post)\d+)?)(?![\d.])"
)
_MANAGERS: Final = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux Kustomization",
    "helm.toolkit.fluxcd.io/name": "Flux HelmRelease",
}
_UNREPRESENTED: Final = {
    "speculative_config": "speculative decoding accepts more or fewer drafts on random tokens",
    "enable_lora": "LoRA adapters are not asked for by the benchmark",
    "enable_expert_parallel": "random tokens spread over experts unlike real ones",
    "limit_mm_per_prompt": "the benchmark sends text only",
}


@dataclass(frozen=True, slots=True)
class Target:
    """What was found. ``container`` is the container as written, the others are derived."""

    uid: str
    name: str
    generation: int
    pod_spec: Mapping[str, Any]
    container: Mapping[str, Any]
    container_path: str
    """JSON pointer from the Deployment, e.g. ``/spec/template/spec/containers/0``."""
    args: EngineArgs
    entrypoint: Entrypoint
    limits: Limits
    """In force: written, else the version's default for this device."""
    gpu_count: int
    version: str | None = None
    max_model_len: int | None = None
    image_id: str | None = None
    """``repository@sha256:…`` as the pods run it."""
    gpu_product: str | None = None
    managers: tuple[str, ...] = ()
    """Whoever writes this Deployment again and again, e.g. ``Argo CD team/chat``."""
    unrepresented: str | None = None
    """Why the benchmark does not stand for its traffic."""
    shared_node: str | None = None
    """The node that the benchmark has to run on, because of a volume."""


def resolve_target(observed: Observed, spec: VLLMTuningSpec) -> Target | Refusal:
    """Find the vLLM container of the observed Deployment and read everything that is known of it.

    Refused with one of the reasons of the condition ``TargetResolved``.
    """
    deployment = observed.target
    if deployment is None:
        return Refusal(
            Reason.TARGET_NOT_FOUND,
            f"there is no Deployment {spec.target_ref.name} in namespace "
            f"{observed.tuning['metadata']['namespace']}: create it, or make a tuning for the "
            "right name; this one goes on by itself once the Deployment is there",
        )
    pod_spec = deployment["spec"]["template"]["spec"]
    found = find_vllm_container(pod_spec, name=spec.target_ref.container_name)
    if isinstance(found, Refusal):
        ambiguous = "Ambiguous" in found.reason
        return Refusal(
            Reason.CONTAINER_AMBIGUOUS if ambiguous else Reason.CONTAINER_NOT_FOUND, found.message
        )
    container = found.container
    version = version_of_image(container.get("image", ""))
    args = read_args(
        container,
        version=version,
        config_maps=observed.config_maps,
        volumes=pod_spec.get("volumes") or (),
    )
    benchmark = spec.benchmark or Benchmark()
    entrypoint = build_entrypoint(container, command=benchmark.command, python=benchmark.python)
    for refusal in (
        entrypoint,
        None if benchmark.command or args.refusal is None else _unreadable(args.refusal),
        _refuse_unknown(args),
        refuse_pod(pod_spec),
        refuse_span(args, container),
        refuse_volumes(pod_spec, observed.volume_claims, observed.target_pods),
        _refuse_engine(version),
    ):
        if isinstance(refusal, Refusal):
            return refusal
    assert not isinstance(entrypoint, Refusal)
    metadata = deployment["metadata"]
    labels = slowest_node(observed.target_nodes)
    return Target(
        uid=metadata["uid"],
        name=metadata["name"],
        generation=metadata.get("generation", 0),
        pod_spec=pod_spec,
        container=container,
        container_path="/".join(("", "spec", "template", "spec", *map(str, found.path))),
        args=args,
        entrypoint=entrypoint,
        limits=_limits(args, version, labels),
        gpu_count=gpu_count(container),
        version=version,
        max_model_len=number(args, "max_model_len"),
        image_id=_image_id(observed.target_pods, container["name"]),
        gpu_product=labels.get(GPU_PRODUCT_LABEL),
        managers=tuple(managers(metadata)),
        unrepresented=_unrepresented(args) or mixed_products(observed.target_nodes),
        shared_node=shared_node(pod_spec, observed.volume_claims, observed.target_pods),
    )


def _unreadable(refusal: Refusal) -> Refusal:
    return Refusal(Reason.UNSUPPORTED_FLAGS, f"{refusal.reason}: {refusal.message}")


def _refuse_unknown(args: EngineArgs) -> Refusal | None:
    """Refuse a limit whose value cannot be read: a default in its place would be a wrong baseline.

    A Secret is never read, and a script may compute anything.
    """
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        found = args.get(name)
        if found is not None and found.value is None:
            return Refusal(
                Reason.UNSUPPORTED_FLAGS,
                f"{name} comes from {found.where}, which can not be read: write a number, or take "
                "it from a plain variable or a ConfigMap",
            )
    return None


def _refuse_engine(version: str | None) -> Refusal | None:
    if at_least(version, OLDEST_ENGINE) is False:
        return Refusal(
            Reason.UNSUPPORTED_ENGINE,
            f"vLLM {version} is older than {OLDEST_ENGINE}, the first that can be measured: "
            "upgrade the image",
        )
    return None


def version_of_image(image: str) -> str | None:
    """Read vLLM's version from an image tag: ``v0.11.0``, ``rocm6.2_vllm_0.6.4``.

    A date, a hash or a word is no version.
    """
    _, _, tag = image.partition("@")[0].rpartition("/")[2].partition(":")
    found = _TAG_VERSION.match(tag)
    return found.group(1) if found else None


def managers(metadata: Mapping[str, Any]) -> Iterable[str]:
    """Name everybody who reconciles the object, so that a patch of ours would be undone."""
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            yield f"{owner['kind']} {owner['name']}"
    seen = set()
    for key, tool in _MANAGERS.items():
        for where in ("annotations", "labels"):
            value = (metadata.get(where) or {}).get(key)
            if value and tool not in seen:
                seen.add(tool)
                yield f"{tool} {value.partition(':')[0]}"


def _limits(args: EngineArgs, version: str | None, node_labels: Mapping[str, str]) -> Limits:
    """Return the limits in force. What is not written is what this version picks on this device."""
    memory = node_labels.get(GPU_MEMORY_LABEL)
    chunked = _boolean(args, "enable_chunked_prefill")
    chosen = default_limits(
        version,
        int(memory) * 2**20 if memory and memory.isdigit() else None,
        node_labels.get(GPU_PRODUCT_LABEL),
        max_model_len=number(args, "max_model_len"),
        max_num_seqs=number(args, "max_num_seqs"),
        max_num_batched_tokens=number(args, "max_num_batched_tokens"),
        chunked_prefill=chunked is not False,
    )
    return Limits(
        max_num_seqs=chosen.max_num_seqs,
        max_num_batched_tokens=chosen.max_num_batched_tokens,
        gpu_memory_utilization_percent=_percent(args),
        enable_chunked_prefill=chunked,
        long_prefill_token_threshold=number(args, "long_prefill_token_threshold"),
    )


def _boolean(args: EngineArgs, name: str) -> bool | None:
    found = args.get(name)
    return None if found is None or found.value is None else found.value == "true"


def _percent(args: EngineArgs) -> int | None:
    found = args.get("gpu_memory_utilization")
    try:
        return None if found is None or found.value is None else round(100 * float(found.value))
    except ValueError:
        return None


def _image_id(pods: Iterable[Body], container: str) -> str | None:
    """Return the digest that all running pods agree on; an image without a registry has none."""
    found = {
        status["imageID"].removeprefix("docker-pullable://")
        for pod in pods
        for status in (pod.get("status") or {}).get("containerStatuses") or ()
        if status["name"] == container and "@sha256:" in status.get("imageID", "")
    }
    return found.pop() if len(found) == 1 else None


def _unrepresented(args: EngineArgs) -> str | None:
    return next((why for name, why in _UNREPRESENTED.items() if args.get(name) is not None), None)
