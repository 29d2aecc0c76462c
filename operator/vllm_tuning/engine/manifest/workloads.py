"""The engines in a stream of Kubernetes objects: workloads, Lists, objects of other operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from vllm_tuning.engine.containers import find_vllm_container
from vllm_tuning.engine.images import engine_version
from vllm_tuning.engine.launch.text import Path
from vllm_tuning.engine.outcome import Refusal


@dataclass(frozen=True, slots=True)
class Engine:
    """One container, or one fragment of another operator's object, that runs vLLM."""

    document: int
    """Position of the document in the stream."""
    object_path: Path
    """The object in its document; not empty in a List."""
    path: Path
    """The container or fragment, below the object."""
    kind: str
    object_name: str
    name: str
    """The container's name."""
    container: Mapping[str, Any]
    managed: bool = False
    """Whether the program is added by a controller, so that only args stand here."""
    volumes: tuple[Mapping[str, Any], ...] = ()

    @property
    def title(self) -> str:
        """For people: ``Deployment/chat[vllm]``."""
        return f"{self.kind}/{self.object_name}[{self.name}]"

    @property
    def version(self) -> str | None:
        """The engine's version, if the image's name tells it."""
        return engine_version(str(self.container.get("image", "")))


@dataclass(frozen=True, slots=True)
class Misfit:
    """An object that runs an engine in a way that is not edited here."""

    document: int
    title: str
    refusal: Refusal


Finding = Engine | Misfit


@dataclass(frozen=True, slots=True)
class _Object:
    """One Kubernetes object of the stream."""

    document: int
    path: Path
    item: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.item["kind"])

    @property
    def title(self) -> str:
        return f"{self.kind}/{_name(self.item)}"

    def at(self, path: Path) -> Any:  # noqa: ANN401 - YAML data
        """The value below the object; ``None`` = not there."""
        value: Any = self.item
        for key in path:
            if isinstance(value, Mapping):
                value = value.get(key)
            elif isinstance(value, list) and isinstance(key, int):
                value = value[key]
            else:
                return None
        return value

    def engine(
        self,
        path: Path,
        container: Mapping[str, Any],
        spec: Mapping[str, Any],
        *,
        managed: bool = False,
    ) -> Engine:
        """The engine in the container at ``path``, in the pod of ``spec``."""
        volumes = tuple(v for v in spec.get("volumes") or () if isinstance(v, Mapping))
        name = str(container.get("name", path[-1]))
        return Engine(
            self.document,
            self.path,
            path,
            self.kind,
            _name(self.item),
            name,
            container,
            managed,
            volumes,
        )

    def misfit(self, reason: str, message: str) -> Misfit:
        """The object is not edited here."""
        return Misfit(self.document, self.title, Refusal(reason, message))


_POD_SPECS: Final[dict[str, Path]] = {
    "Pod": ("spec",),
    "PodTemplate": ("template", "spec"),
    "CronJob": ("spec", "jobTemplate", "spec", "template", "spec"),
    "ServingRuntime": ("spec",),
    "ClusterServingRuntime": ("spec",),
    "LLMInferenceService": ("spec", "template"),
    **dict.fromkeys(
        ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "Rollout"),
        ("spec", "template", "spec"),
    ),
}


def find_engines(values: Sequence[Any]) -> list[Finding]:
    """All engines of a stream's documents, in order."""
    return [
        finding
        for document, value in enumerate(values)
        for path, item in _objects(value, ())
        for finding in _in_object(_Object(document, path, item))
    ]


def config_maps(values: Sequence[Any]) -> dict[str, dict[str, str]]:
    """The data of every ConfigMap in the stream, by name."""
    found = {}
    for value in values:
        for _, item in _objects(value, ()):
            if item.get("kind") == "ConfigMap":
                data = item.get("data") or {}
                found[_name(item)] = {str(k): str(v) for k, v in data.items()}
    return found


def find_config_map(values: Sequence[Any], name: str) -> tuple[int, Path] | None:
    """Document and path of the ConfigMap of that name, if exactly one is in the stream."""
    hits = [
        (document, path)
        for document, value in enumerate(values)
        for path, item in _objects(value, ())
        if item.get("kind") == "ConfigMap" and _name(item) == name
    ]
    return hits[0] if len(hits) == 1 else None


def _objects(value: object, path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """The Kubernetes objects in a document; a List is opened."""
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        return
    items = value.get("items")
    if value["kind"].endswith("List") and isinstance(items, Sequence):
        for index, item in enumerate(items):
            yield from _objects(item, (*path, "items", index))
        return
    yield path, value


def _name(item: Mapping[str, Any]) -> str:
    metadata = item.get("metadata")
    return str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""


def _in_object(found: _Object) -> Iterator[Finding]:
    reader = _READERS.get(found.kind)
    if reader is not None:
        yield from reader(found)
    elif found.kind.startswith("Ray"):
        yield found.misfit(
            "RayManaged",
            "Ray starts this engine; change the engine arguments in the Ray Serve application"
            " (serveConfigV2 or its runtime_env), not in the pod",
        )
    elif (spec_path := _POD_SPECS.get(found.kind)) is not None:
        yield from _pod_spec(found, spec_path)
    elif found.kind != "ConfigMap":
        for path in _embedded(found.item, ()):
            yield from _pod_spec(found, path)


def _embedded(value: object, path: Path) -> Iterator[Path]:
    """Pod specs anywhere in an object of a kind that is not known."""
    if isinstance(value, Mapping):
        containers = value.get("containers")
        if isinstance(containers, list) and containers and isinstance(containers[0], Mapping):
            yield path
            return
        for key, inner in value.items():
            yield from _embedded(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _embedded(inner, (*path, index))


def _pod_spec(found: _Object, spec_path: Path) -> Iterator[Finding]:
    spec = found.at(spec_path)
    if not isinstance(spec, Mapping):
        return
    one = find_vllm_container(spec)
    if not isinstance(one, Refusal):
        yield found.engine((*spec_path, *one.path), one.container, spec)
    elif one.reason == "AmbiguousContainer":
        for container in spec.get("containers") or ():
            named = find_vllm_container(spec, name=str(container.get("name")))
            if not isinstance(named, Refusal):
                yield found.engine((*spec_path, *named.path), named.container, spec)


def _leader_worker_set(found: _Object) -> Iterator[Finding]:
    """The leader holds the scheduler; without its own template, the workers' serves both."""
    base: Path = ("spec", "leaderWorkerTemplate")
    for template in ("leaderTemplate", "workerTemplate"):
        if found.at((*base, template)) is not None:
            yield from _pod_spec(found, (*base, template, "spec"))
            return


def _inference_service(found: _Object) -> Iterator[Finding]:
    where: Path = ("spec", "predictor", "model")
    model = found.at(where)
    if not isinstance(model, Mapping):
        yield from _pod_spec(found, ("spec", "predictor"))
    elif model.get("args") or model.get("command"):
        managed = not model.get("command")
        yield found.engine(where, model, found.at(where[:-1]), managed=managed)


def _kubeai_model(found: _Object) -> Iterator[Finding]:
    """``env`` of a KubeAI model is a map, and its args are passed on as they are."""
    spec = found.at(("spec",))
    is_kubeai = str(found.item.get("apiVersion", "")).startswith("kubeai.org/")
    if is_kubeai and isinstance(spec, Mapping) and spec.get("engine") in ("VLLM", None):
        fragment = {"name": "spec", "args": spec.get("args") or [], "image": spec.get("image", "")}
        yield found.engine(("spec",), fragment, {}, managed=True)


def _dynamo(found: _Object) -> Iterator[Finding]:
    services = found.at(("spec", "services"))
    for name, service in (services or {}).items() if isinstance(services, Mapping) else ():
        where: Path = ("spec", "services", name, "extraPodSpec", "mainContainer")
        container = found.at(where)
        if isinstance(container, Mapping) and "dynamo.vllm" in str(container):
            yield found.engine(where, {"name": name, **container}, {})
        elif "dynamo.vllm" in str(service):
            yield found.misfit(
                "DynamoManaged",
                "Dynamo renders this worker; change its args in the DynamoGraphDeployment",
            )


_READERS: Final[dict[str, Callable[[_Object], Iterator[Finding]]]] = {
    "LeaderWorkerSet": _leader_worker_set,
    "InferenceService": _inference_service,
    "Model": _kubeai_model,
    "DynamoGraphDeployment": _dynamo,
}
