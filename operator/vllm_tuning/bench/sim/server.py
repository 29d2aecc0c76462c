"""The HTTP face: vLLM's endpoints on a live simulated engine."""

from __future__ import annotations

import json
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any

from aiohttp import web

from vllm_tuning.bench.sim.exposition import EngineMetrics
from vllm_tuning.bench.sim.live import EngineDeadError, LiveEngine, Stream
from vllm_tuning.bench.sim.memory import EngineSettings, MemoryPlan
from vllm_tuning.bench.sim.payloads import (
    NATURAL_STOP_TOKENS,
    ApiError,
    Chunks,
    Generation,
    block_hashes,
    read_generation,
    tokenize,
    whole_response,
)
from vllm_tuning.bench.sim.scheduler import Request
from vllm_tuning.bench.sim.startlog import VERSION


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What the API server was told, beyond the engine's own settings."""

    models: Sequence[str]
    """Names it answers to; the first is the one in metrics."""
    root: str
    """The model as given on the command line."""
    api_keys: Sequence[str] = ()
    dev_mode: bool = False
    """``VLLM_SERVER_DEV_MODE``: ``/server_info`` and ``/reset_prefix_cache`` exist."""
    track_load: bool = False
    force_usage: bool = False
    prompt_details: bool = False
    max_queued_requests: int | None = None


class Api:
    """Handlers of one server."""

    def __init__(
        self,
        engine: LiveEngine,
        metrics: EngineMetrics,
        settings: EngineSettings,
        memory: MemoryPlan,
        options: ServerOptions,
        *,
        seed: int,
        reset_cache: Callable[[], bool],
    ) -> None:
        self._engine = engine
        self._metrics = metrics
        self._settings = settings
        self._memory = memory
        self._options = options
        self._random = random.Random(seed)  # noqa: S311 - lengths of answers, not secrets
        self._reset_cache = reset_cache
        self._count = 0

    def application(self) -> web.Application:
        """Build the routes."""
        app = web.Application(client_max_size=64 << 20, middlewares=[self._guard])
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/ping", self._health),
                web.get("/version", self._version),
                web.get("/metrics", self._show_metrics),
                web.get("/load", self._load),
                web.get("/v1/models", self._models),
                web.post("/v1/completions", self._completions),
                web.post("/v1/chat/completions", self._chat_completions),
                web.post("/tokenize", self._tokenize),
            ]
        )
        if self._options.dev_mode:
            app.add_routes(
                [
                    web.get("/server_info", self._server_info),
                    web.post("/reset_prefix_cache", self._reset_prefix_cache),
                ]
            )
        return app

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        keys = self._options.api_keys
        if keys and request.path.startswith("/v1"):
            token = request.headers.get("Authorization", "").removeprefix("Bearer ")
            if not any(secrets.compare_digest(token.encode(), key.encode()) for key in keys):
                return web.json_response({"error": "Unauthorized"}, status=401)
        try:
            return await handler(request)
        except ApiError as error:
            return web.json_response(error.body, status=error.status)
        except EngineDeadError as error:
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            body = ApiError(status, "InternalServerError", str(error)).body
            return web.json_response(body, status=status)

    # --- small endpoints ------------------------------------------------------------------------

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response(status=503 if self._engine.dead else 200)

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": VERSION})

    async def _show_metrics(self, _request: web.Request) -> web.Response:
        content_type = "text/plain; version=0.0.4; charset=utf-8"
        return web.Response(body=self._metrics.text(), headers={"Content-Type": content_type})

    async def _load(self, _request: web.Request) -> web.Response:
        load = self._engine.in_flight if self._options.track_load else 0
        return web.json_response({"server_load": load})

    async def _models(self, _request: web.Request) -> web.Response:
        cards: list[dict[str, Any]] = [
            {
                "id": name,
                "object": "model",
                "created": 0,
                "owned_by": "vllm",
                "root": self._options.root,
                "parent": None,
                "max_model_len": self._settings.max_model_len,
                "permission": [],
            }
            for name in self._options.models
        ]
        return web.json_response({"object": "list", "data": cards})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await _json(request)
        tokens = tokenize(str(body.get("prompt", "")))
        longest = self._settings.max_model_len
        return web.json_response(
            {"count": len(tokens), "max_model_len": longest, "tokens": tokens, "token_strs": None}
        )

    async def _server_info(self, request: web.Request) -> web.Response:
        settings = self._settings
        config: dict[str, Any] = {
            "model_config": {
                "model": self._options.root,
                "served_model_name": list(self._options.models),
                "max_model_len": settings.max_model_len,
            },
            "scheduler_config": {
                "max_num_seqs": settings.max_num_seqs,
                "max_num_active_seqs": settings.max_num_active_seqs,
                "max_num_batched_tokens": settings.max_num_batched_tokens,
                "max_num_scheduled_tokens": settings.max_num_batched_tokens,
                "long_prefill_token_threshold": settings.long_prefill_token_threshold,
                "enable_chunked_prefill": settings.enable_chunked_prefill,
                "async_scheduling": settings.async_scheduling,
                "policy": "fcfs",
            },
            "cache_config": {
                "block_size": settings.block_size,
                "gpu_memory_utilization": settings.gpu_memory_utilization,
                "enable_prefix_caching": settings.enable_prefix_caching,
                "num_gpu_blocks": self._memory.blocks,
                "kv_cache_size_tokens": self._memory.kv_tokens,
                "kv_cache_max_concurrency": self._memory.kv_tokens / settings.max_model_len,
            },
            "parallel_config": {"tensor_parallel_size": settings.tensor_parallel_size},
        }
        as_json = request.query.get("config_format") == "json"
        shown = config if as_json else str(asdict(settings))
        return web.json_response({"vllm_config": shown, "vllm_env": {}, "system_env": {}})

    async def _reset_prefix_cache(self, _request: web.Request) -> web.Response:
        return web.json_response({"success": self._reset_cache()})

    # --- generation -----------------------------------------------------------------------------

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=False)

    async def _chat_completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, chat=True)

    async def _generate(self, http: web.Request, *, chat: bool) -> web.StreamResponse:
        generation = read_generation(
            await _json(http),
            chat=chat,
            models=self._options.models,
            settings=self._settings,
            stop_after=self._natural_stop(),
            force_usage=self._options.force_usage,
            cached_details=self._options.prompt_details,
        )
        self._admit()
        self._count += 1
        caching = self._settings.enable_prefix_caching
        request = Request(
            self._count,
            generation.prompt_tokens,
            generation.output_tokens,
            hashes=block_hashes(generation.prompt, self._settings.block_size) if caching else (),
        )
        stream = self._engine.submit(request, generation.stop_reason)
        try:
            if generation.stream:
                return await _stream(http, generation, stream)
            while not stream.done:
                await stream.take()
            return web.json_response(whole_response(generation, request.cached_tokens))
        finally:
            self._engine.abort(stream)  # a client that has gone; nothing if it has ended

    def _natural_stop(self) -> int:
        return max(1, round(self._random.lognormvariate(0.0, 0.6) * NATURAL_STOP_TOKENS))

    def _admit(self) -> None:
        limit = self._options.max_queued_requests
        if limit is not None and self._metrics.waiting >= limit:
            self._metrics.rejected["max_num_queued_reqs"] += 1
            raise ApiError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "ServiceUnavailableError",
                f"The server is overloaded: {self._metrics.waiting} requests wait and "
                f"max_num_queued_reqs is {limit}. Please retry later.",
            )


async def _json(request: web.Request) -> Any:  # noqa: ANN401 - JSON has no one type
    try:
        return await request.json()
    except ValueError as error:
        raise ApiError(
            HTTPStatus.BAD_REQUEST, "BadRequestError", f"JSON decode error: {error}"
        ) from error


async def _stream(http: web.Request, generation: Generation, stream: Stream) -> web.StreamResponse:
    chunks = Chunks(generation)
    count = await stream.take()  # an engine that dies before the first token answers 500
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(http)
    opening = chunks.opening()
    if opening:
        await response.write(opening)
    cached = stream.request.cached_tokens
    try:
        while not stream.done:
            if count:
                await response.write(chunks.tokens(count, None))
            count = await stream.take()
        last = chunks.tokens(count, generation.stop_reason)
        await response.write(last + chunks.closing(cached))
        await response.write_eof()
    except EngineDeadError as error:
        body = ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "InternalServerError", str(error)).body
        await response.write(f"data: {json.dumps(body)}\n\ndata: [DONE]\n\n".encode())
    except ConnectionError:
        pass  # the client has gone between two tokens
    return response
