"""A thin face of ``kubernetes.aio`` that speaks plain JSON objects.

Plain objects on purpose: the typed models of the client drop fields that are newer than the client,
and the benchmark pod must carry every field of the target's container.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration

from vllm_tuning.cluster.clock import ServerClock
from vllm_tuning.cluster.errors import NotFound, Unavailable, error_of
from vllm_tuning.reconcile.names import GROUP, VERSION

PAGE = 500
"""Objects per page of a list."""
REQUEST_SECONDS = 30.0
LOG_IDLE_SECONDS = 120.0
"""A followed log that stays silent for so long is asked for again; a bench speaks sooner."""
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Resource:
    """Where a kind lives in the API."""

    api: str
    """``api/v1`` or ``apis/<group>/<version>``."""
    plural: str
    namespaced: bool = True

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Return the URL path of an object or a collection; no namespace = all of them."""
        parts = [self.api]
        if self.namespaced and namespace is not None:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        if name is not None:
            parts.append(name)
        return "/".join(parts)


CLAIMS = Resource("api/v1", "persistentvolumeclaims")
CONFIG_MAPS = Resource("api/v1", "configmaps")
DEPLOYMENTS = Resource("apis/apps/v1", "deployments")
EVENTS = Resource("api/v1", "events")
JOBS = Resource("apis/batch/v1", "jobs")
LEASES = Resource("apis/coordination.k8s.io/v1", "leases")
NAMESPACES = Resource("api/v1", "namespaces", namespaced=False)
NODES = Resource("api/v1", "nodes", namespaced=False)
PODS = Resource("api/v1", "pods")
POLICIES = Resource(f"apis/{GROUP}/{VERSION}", "vllmslapolicies", namespaced=False)
REPLICA_SETS = Resource("apis/apps/v1", "replicasets")
SERVICES = Resource("api/v1", "services")
TRIALS = Resource(f"apis/{GROUP}/{VERSION}", "vllmtrials")
TUNINGS = Resource(f"apis/{GROUP}/{VERSION}", "vllmtunings")


class Cluster:
    """Reads and writes objects of one API server. All methods raise ``cluster.errors`` only."""

    def __init__(self, api: ApiClient, clock: ServerClock | None = None) -> None:
        """``clock`` learns the API server's time from its answers."""
        self._api = api
        self._clock = clock or ServerClock()

    def now(self) -> datetime:
        """Return the API server's time."""
        return self._clock.now()

    async def get(
        self, resource: Resource, namespace: str | None, name: str
    ) -> dict[str, Any] | None:
        """Return the object, or ``None`` if there is none."""
        try:
            body = await self._call("GET", resource.path(namespace, name))
        except NotFound:
            return None
        return dict(body)

    async def list(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        labels: str | None = None,
        fields: str | None = None,
    ) -> list[dict[str, Any]]:
        """Return all objects, page by page, of one namespace or of all."""
        found: list[dict[str, Any]] = []
        query: dict[str, Any] = {"limit": PAGE}
        query |= {"labelSelector": labels} if labels else {}
        query |= {"fieldSelector": fields} if fields else {}
        while True:
            page = await self._call("GET", resource.path(namespace), query=query)
            found.extend(page.get("items") or ())
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return found
            query["continue"] = token

    async def create(
        self, resource: Resource, namespace: str | None, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Create an object; raises ``AlreadyExists`` if the name is taken."""
        return dict(await self._call("POST", resource.path(namespace), body=body))

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Replace an object; with a resourceVersion in it a change in between is a ``Conflict``."""
        return dict(await self._call("PUT", resource.path(namespace, name), body=body))

    async def merge(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        body: Mapping[str, Any],
        *,
        subresource: str = "",
    ) -> dict[str, Any]:
        """JSON merge patch: for maps that we own key by key."""
        path = resource.path(namespace, name) + subresource
        return dict(await self._call("PATCH", path, body=body, content_type=MERGE_PATCH))

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        subresource: str = "",
    ) -> dict[str, Any]:
        """JSON Patch; raises ``GuardFailed`` if one of its ``test`` operations does not hold."""
        path = resource.path(namespace, name) + subresource
        return dict(await self._call("PATCH", path, body=list(operations), content_type=JSON_PATCH))

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str | None = None
    ) -> None:
        """Delete one object in the background; absent is fine. ``uid`` spares a successor."""
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self._call("DELETE", resource.path(namespace, name), body=options)
        except NotFound:
            return

    async def read_log(
        self, namespace: str, pod: str, container: str, *, limit_bytes: int
    ) -> str | None:
        """Return the beginning of a log, at most ``limit_bytes``; ``None`` = there is none."""
        query = {"container": container, "limitBytes": limit_bytes}
        try:
            async with self._open(f"{PODS.path(namespace, pod)}/log", query) as response:
                return (await response.content.read(limit_bytes)).decode(errors="replace")
        except (NotFound, Unavailable):
            return None

    async def follow_log(self, namespace: str, pod: str, container: str) -> AsyncIterator[str]:
        """Yield the lines of a container's log from its beginning until it ends."""
        query = {"container": container, "follow": "true"}
        async with self._open(f"{PODS.path(namespace, pod)}/log", query, follow=True) as response:
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line.decode(errors="replace")
            if rest:
                yield rest.decode(errors="replace")

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,  # noqa: ANN401 - any JSON value
        content_type: str = "application/json",
    ) -> Any:  # noqa: ANN401 - any JSON value
        response = await self._request(method, path, query or {}, body, content_type=content_type)
        try:
            data = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(
                str(error) or type(error).__name__, doing=f"{method} {path}"
            ) from error
        _raise_for(response, data, method, path, guarded=content_type == JSON_PATCH)
        return json.loads(data)

    @asynccontextmanager
    async def _open(
        self, path: str, query: Mapping[str, Any], *, follow: bool = False
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        timeout = (
            aiohttp.ClientTimeout(
                total=None, sock_connect=REQUEST_SECONDS, sock_read=LOG_IDLE_SECONDS
            )
            if follow
            else None
        )
        response = await self._request("GET", path, query, timeout=timeout)
        try:
            if response.status >= 300:
                _raise_for(response, await response.read(), "GET", path, guarded=False)
            yield response
        except (aiohttp.ClientError, TimeoutError) as error:
            raise Unavailable(str(error) or type(error).__name__, doing=f"GET {path}") from error
        finally:
            response.close()

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        body: Any = None,  # noqa: ANN401 - any JSON value
        *,
        content_type: str = "application/json",
        timeout: aiohttp.ClientTimeout | None = None,  # noqa: ASYNC109 - aiohttp's own value
    ) -> aiohttp.ClientResponse:
        suffix = f"?{urlencode(query)}" if query else ""
        try:
            _, url, headers, body, _ = await self._api.param_serialize(
                method,
                f"/{path}{suffix}",
                header_params={"Accept": "application/json", "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
            )
            sent = self._clock.ticks()
            answer = await self._api.call_api(
                method, url, headers, body, _request_timeout=timeout or REQUEST_SECONDS
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(
                str(error) or type(error).__name__, doing=f"{method} {path}"
            ) from error
        response: aiohttp.ClientResponse = answer.response
        self._clock.heard(response.headers.get("Date"), sent)
        return response


def _raise_for(
    response: aiohttp.ClientResponse, data: bytes, method: str, path: str, *, guarded: bool
) -> None:
    if response.status < 300:
        return
    raise error_of(
        response.status,
        data,
        doing=f"{method} {path}",
        creating=method == "POST",
        guarded=guarded,
        retry_after=response.headers.get("Retry-After"),
    )


@asynccontextmanager
async def connect(
    kubeconfig: str | None = None, context: str | None = None
) -> AsyncIterator[Cluster]:
    """Open a client: inside a pod by its service account, else by a kubeconfig file."""
    configuration = Configuration()
    if kubeconfig is None and await asyncio.to_thread(SERVICE_ACCOUNT.joinpath("token").exists):
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]  # the client is untyped
    else:
        await config.load_kube_config(kubeconfig, context, client_configuration=configuration)  # type: ignore[no-untyped-call]  # the client is untyped
    configuration.retries = 0  # our own queue retries, with jitter and a reason
    async with ApiClient(configuration) as api:
        api.user_agent = "vllm-tuning-operator"
        yield Cluster(api)


def current_namespace(kubeconfig: str | None = None, context: str | None = None) -> str:
    """Return the namespace that kubectl would use: the context's, inside a pod the pod's own."""
    if kubeconfig is None and SERVICE_ACCOUNT.joinpath("namespace").exists():
        return SERVICE_ACCOUNT.joinpath("namespace").read_text()
    contexts, current = config.list_kube_config_contexts(kubeconfig)  # type: ignore[no-untyped-call]  # the client is untyped
    chosen = next((c for c in contexts if c["name"] == context), current)
    return str(chosen["context"].get("namespace") or "default")
