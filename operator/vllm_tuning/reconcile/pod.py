"""The benchmark pod: the target's own container under our launcher, and the bench beside it.

::

    initContainers   the target's own   may fetch the model
                     tools              copies launcher and hook into an emptyDir, makes a one-time
                     token engine             native sidecar: the target's container, started by the
                     launcher
    containers       bench              drives the load; its end is the pod's end

What must not come along is dropped by name, everything else is copied: a field that is newer than
this code comes along too. Probes, lifecycle hooks and host ports belong to serving; pod affinity,
spread and priority belong to production; host namespaces, privileges and API tokens have no place
in a benchmark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from vllm_tuning.api.reasons import Reason
from vllm_tuning.api.workload import TraceRef
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.reconcile.entrypoint import Entrypoint
from vllm_tuning.reconcile.names import BENCH, ENGINE, SPEC_FILE, TOOLS
from vllm_tuning.reconcile.observed import Settings

GPU_PRODUCT_LABEL: Final = "nvidia.com/gpu.product"
RUN_DIRECTORY: Final = "/run/vllm-tuning"
"""Token, shared by tools, engine and bench."""
SPEC_DIRECTORY: Final = "/etc/vllm-tuning"
TRACE_PATH: Final = "/etc/vllm-tuning-trace/trace"
"""The workload's trace, in the bench's container."""
CACHE_DIRECTORY: Final = "/var/cache/vllm-tuning"
"""Compile caches: kept over the starts of one run, never shared with production."""
GRACE_SECONDS: Final = 30

_POD_FIELDS: Final = (
    "dnsConfig",
    "dnsPolicy",
    "hostAliases",
    "imagePullSecrets",
    "nodeSelector",
    "os",
    "overhead",
    "runtimeClassName",
    "schedulerName",
    "securityContext",
    "serviceAccountName",
    "tolerations",
)
_SERVING_FIELDS: Final = (
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "resizePolicy",
)
_VOLUMES: Final = ("vllm-tuning-tools", "vllm-tuning-run", "vllm-tuning-spec", "vllm-tuning-cache")
_TRACE: Final = "vllm-tuning-trace"
_SHM: Final = "vllm-tuning-shm"
_SHM_PATH: Final = "/dev/shm"  # noqa: S108 - the mount point of shared memory, not a temporary file


@dataclass(frozen=True, slots=True)
class Copied:
    """What of the target goes into the pod."""

    pod_spec: Mapping[str, Any]
    container: Mapping[str, Any]
    entrypoint: Entrypoint
    pinned_image: str | None = None
    """The image by digest, as the target's pods run it."""
    gpu_product: str | None = None
    """Value of the node label that the benchmark must find too."""
    node: str | None = None
    """The only node that the benchmark may run on."""
    trace: TraceRef | None = None
    """The workload's recorded requests."""


def refuse_pod(source: Mapping[str, Any]) -> Refusal | None:
    """Say why this pod cannot be copied; ``None`` = it can."""
    claims = source.get("resourceClaims") or ()
    named = [claim["name"] for claim in claims if "resourceClaimName" in claim]
    if named:
        return Refusal(
            Reason.UNSUPPORTED_POD,
            f"the target uses ResourceClaims by name ({', '.join(named)}), which are production's "
            "own devices: use a resourceClaimTemplateName, so that the benchmark gets its own",
        )
    return None


def build_pod_spec(copied: Copied, config_map: str, settings: Settings) -> dict[str, Any]:
    """Build the pod's spec; ``config_map`` holds the run's spec. ``refuse_pod`` has been asked."""
    source = copied.pod_spec
    spec: dict[str, Any] = {key: source[key] for key in _POD_FIELDS if key in source}
    spec |= {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "initContainers": [
            *(
                _own_init_container(c)
                for c in source.get("initContainers") or ()
                if c["name"] != copied.container["name"]  # the engine itself may be a sidecar
            ),
            _tools(spec, settings),
            _engine(copied),
        ],
        "containers": [_bench(spec, settings)],
        "volumes": [*_copied_volumes(source), *_own_volumes(config_map)],
    }
    if copied.trace is not None:
        _mount_trace(spec, copied.trace)
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    if claims := source.get("resourceClaims"):
        spec["resourceClaims"] = list(claims)
    if affinity := _affinity(source, copied.gpu_product, copied.node):
        spec["affinity"] = affinity
    if source.get("hostIPC") and not _mounts_shm(copied.container):
        spec["volumes"].append({"name": _SHM, "emptyDir": {"medium": "Memory"}})
        spec["initContainers"][-1]["volumeMounts"].append({"name": _SHM, "mountPath": _SHM_PATH})
    return spec


def _engine(copied: Copied) -> dict[str, Any]:
    container = _without_serving(copied.container) | {
        "name": ENGINE,
        "restartPolicy": "Always",
        "command": list(copied.entrypoint.command),
        "args": list(copied.entrypoint.args),
    }
    if copied.pinned_image:
        container |= {"image": copied.pinned_image, "imagePullPolicy": "IfNotPresent"}
    container["env"] = [
        *(e for e in container.get("env") or () if e["name"] != "VLLM_CACHE_ROOT"),
        {"name": "VLLM_CACHE_ROOT", "value": CACHE_DIRECTORY},
    ]
    container["volumeMounts"] = [
        *(container.get("volumeMounts") or ()),
        {"name": _VOLUMES[0], "mountPath": "/tools", "readOnly": True},
        {"name": _VOLUMES[1], "mountPath": RUN_DIRECTORY},
        {"name": _VOLUMES[3], "mountPath": CACHE_DIRECTORY},
    ]
    return container


def _own_init_container(container: Mapping[str, Any]) -> dict[str, Any]:
    copy = _without_serving(container)
    if copy["name"] in (TOOLS, ENGINE, BENCH):
        copy["name"] = f"target-{copy['name']}"
    return copy


def _without_serving(container: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a container without what belongs to serving and without privileges."""
    copy = {key: value for key, value in container.items() if key not in _SERVING_FIELDS}
    if ports := copy.get("ports"):
        copy["ports"] = [{k: v for k, v in port.items() if k != "hostPort"} for port in ports]
    if context := copy.get("securityContext"):
        copy["securityContext"] = {k: v for k, v in context.items() if k != "privileged"}
    return copy


def _tools(pod: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    return {
        "name": TOOLS,
        "image": settings.bench_image,
        "imagePullPolicy": settings.bench_image_pull_policy,
        "command": ["vllm-tuning", "tools", "--to", "/tools"],
        "resources": {
            "requests": {"cpu": "50m", "memory": "64Mi"},
            "limits": {"memory": settings.bench_memory_limit},
        },
        "securityContext": _restricted(pod),
        "volumeMounts": [
            {"name": _VOLUMES[0], "mountPath": "/tools"},
            {"name": _VOLUMES[1], "mountPath": RUN_DIRECTORY},
        ],
    }


def _bench(pod: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Build the main container. No CPU limit: a throttled client would measure itself."""
    return {
        "name": BENCH,
        "image": settings.bench_image,
        "imagePullPolicy": settings.bench_image_pull_policy,
        "command": ["vllm-tuning", "bench", "--spec", f"{SPEC_DIRECTORY}/{SPEC_FILE}"],
        "resources": {
            "requests": {"cpu": settings.bench_cpu_request, "memory": "256Mi"},
            "limits": {"memory": settings.bench_memory_limit},
        },
        "securityContext": _restricted(pod),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": _VOLUMES[1], "mountPath": RUN_DIRECTORY, "readOnly": True},
            {"name": _VOLUMES[2], "mountPath": SPEC_DIRECTORY, "readOnly": True},
        ],
    }


def _mount_trace(spec: dict[str, Any], ref: TraceRef) -> None:
    """Mount one key as a file: by ``subPath``, since such a mount keeps what it had at the start.

    The whole ConfigMap as a volume would follow edits, and a run would measure two traces.
    """
    file = {"key": ref.key, "path": "trace"}
    spec["volumes"].append({"name": _TRACE, "configMap": {"name": ref.name, "items": [file]}})
    spec["containers"][0]["volumeMounts"].append(
        {"name": _TRACE, "mountPath": TRACE_PATH, "subPath": "trace", "readOnly": True}
    )


def _restricted(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Pod Security "restricted". The user is the image's own unless the target's pod says root."""
    context: dict[str, Any] = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if (pod.get("securityContext") or {}).get("runAsUser") == 0:
        context["runAsUser"] = 65532
    return context


def _copied_volumes(source: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Copy the volumes without tokens for the API server; those for others (clouds) come along."""
    for volume in source.get("volumes") or ():
        copy = dict(volume)
        if projected := copy.get("projected"):
            copy["projected"] = projected | {
                "sources": [
                    entry
                    for entry in projected.get("sources") or ()
                    if (entry.get("serviceAccountToken") or {"audience": "none"}).get("audience")
                ]
            }
        yield copy


def _own_volumes(config_map: str) -> list[dict[str, Any]]:
    tools, run, spec, cache = _VOLUMES
    return [
        {"name": tools, "emptyDir": {}},
        {"name": run, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {
            "name": spec,
            "configMap": {"name": config_map, "items": [{"key": SPEC_FILE, "path": SPEC_FILE}]},
        },
        {"name": cache, "emptyDir": {}},
    ]


def _affinity(
    source: Mapping[str, Any], product: str | None, only_node: str | None
) -> dict[str, Any] | None:
    """Keep the target's node affinity; ask for its GPU product and node in every alternative."""
    node = dict((source.get("affinity") or {}).get("nodeAffinity") or {})
    pins = {
        "matchExpressions": [
            {"key": GPU_PRODUCT_LABEL, "operator": "In", "values": [value]}
            for value in (product,)
            if value is not None
        ],
        "matchFields": [
            {"key": "metadata.name", "operator": "In", "values": [value]}
            for value in (only_node,)
            if value is not None
        ],
    }
    pins = {key: terms for key, terms in pins.items() if terms}
    if pins:
        required = node.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        terms: list[dict[str, Any]] = required.get("nodeSelectorTerms") or [{}]
        node["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [
                term | {key: [*(term.get(key) or ()), *pin] for key, pin in pins.items()}
                for term in terms
            ]
        }
    return {"nodeAffinity": node} if node else None


def _mounts_shm(container: Mapping[str, Any]) -> bool:
    mounts = container.get("volumeMounts") or ()
    return any(mount["mountPath"].rstrip("/") == _SHM_PATH for mount in mounts)
