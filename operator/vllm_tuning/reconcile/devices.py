"""The devices of a target: GPUs of its container, the products below its pods, and their reach."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from vllm_tuning.api.reasons import Reason
from vllm_tuning.engine.args import EngineArgs
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.reconcile.pod import GPU_PRODUCT_LABEL

GPU_MEMORY_LABEL: Final = "nvidia.com/gpu.memory"
"""MiB of one GPU, from GPU feature discovery."""

_GPU_RESOURCE: Final = re.compile(r".*/(gpu|mig-.*|npu|gaudi|neuron|tpu|xpu|gpu-.*)$")
_WHOLE_GPU: Final = re.compile(r".*/gpu$")
"""One of these is one device to the engine; a Neuron device or a TPU may be several."""
_DIMENSIONS: Final = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
"""Their product is the number of GPUs that one engine takes."""


def gpu_count(container: Mapping[str, Any]) -> int:
    """Count the GPUs, or slices of them, that a container asks for."""
    return count_resource(container, _GPU_RESOURCE)


def count_resource(container: Mapping[str, Any], resource: re.Pattern[str]) -> int:
    """Count what a container asks for of the extended resources with such names."""
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return sum(int(n) for key, n in asked.items() if resource.match(key) and str(n).isdigit())


def number(args: EngineArgs, name: str) -> int | None:
    """Return a flag's value where it is a whole number."""
    found = args.get(name)
    try:
        return None if found is None or found.value is None else int(found.value)
    except ValueError:
        return None


def refuse_span(args: EngineArgs, container: Mapping[str, Any]) -> Refusal | None:
    """Refuse an engine that is spread over several pods: the benchmark has one."""
    gpus = count_resource(container, _WHOLE_GPU)
    sizes = {name: number(args, name) or 1 for name in _DIMENSIONS}
    world = sizes[_DIMENSIONS[0]] * sizes[_DIMENSIONS[1]] * sizes[_DIMENSIONS[2]]
    nodes = number(args, "nnodes") or 1
    if nodes > 1:
        why = f"nnodes is {nodes}"
    elif gpus and world > gpus:
        told = " times ".join(f"{name} {size}" for name, size in sizes.items() if size > 1)
        why = f"{told} takes {world} GPUs, and its container has {gpus}"
    else:
        return None
    return Refusal(
        Reason.UNSUPPORTED_POD,
        f"the engine is spread over several pods ({why}), and a benchmark of one pod can not stand "
        "for it: measure it with vllm-tuning tune where it runs, and set its limits by hand",
    )


def slowest_node(nodes: Iterable[Mapping[str, str]]) -> Mapping[str, str]:
    """Return the labels of the node with the smallest GPU: limits that hold there hold elsewhere.

    Empty if no node is known.
    """

    def size(labels: Mapping[str, str]) -> tuple[int, str]:
        memory = labels.get(GPU_MEMORY_LABEL, "")
        return (int(memory) if memory.isdigit() else 0, labels.get(GPU_PRODUCT_LABEL, ""))

    return min(nodes, key=size, default={})


def mixed_products(nodes: Iterable[Mapping[str, str]]) -> str | None:
    """Say so if the target's pods run on GPUs of several products."""
    nodes = tuple(nodes)
    products = {labels[GPU_PRODUCT_LABEL] for labels in nodes if GPU_PRODUCT_LABEL in labels}
    if len(products) < 2:
        return None
    smallest = slowest_node(nodes).get(GPU_PRODUCT_LABEL)
    return (
        f"its pods run on different GPUs ({', '.join(sorted(products))}); measured is {smallest}, "
        "the smallest: give each product a Deployment of its own to tune it"
    )
