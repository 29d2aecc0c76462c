"""The HTTP face answers as vLLM 0.32 does."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.sim.serving import FAST, events, serving, until
from vllm_tuning.engine.metrics import read_page

PROMPT = {"prompt": [5, 6, 7, 8, 9], "max_tokens": 6, "ignore_eos": True}


async def test_a_completion_streams_one_event_per_token_and_ends_with_usage():
    async with serving() as (client, _):
        options = {"include_usage": True, "continuous_usage_stats": True}
        body = PROMPT | {"stream": True, "stream_options": options}
        async with client.post("/v1/completions", json=body) as response:
            assert response.status == 200
            assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
            *chunks, usage, done = await events(response)
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert {chunk["id"] for chunk in chunks} == {usage["id"]}
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 6
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert reasons == [None] * (len(chunks) - 1) + ["length"]
    assert all(chunk["choices"][0]["text"] for chunk in chunks)


async def test_without_stream_options_there_is_no_usage_event():
    async with (
        serving() as (client, _),
        client.post("/v1/completions", json=PROMPT | {"stream": True}) as response,
    ):
        *chunks, done = await events(response)
    assert done == "[DONE]"
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


async def test_a_chat_opens_with_the_role_and_goes_on_with_content():
    async with serving() as (client, _):
        body = {
            "messages": [{"role": "user", "content": "Say something."}],
            "max_tokens": 4,
            "ignore_eos": True,
            "stream": True,
        }
        async with client.post("/v1/chat/completions", json=body) as response:
            opening, *chunks, done = await events(response)
    assert done == "[DONE]"
    assert opening["object"] == "chat.completion.chunk"
    assert opening["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert all(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


async def test_an_answer_in_one_piece():
    async with serving("--served-model-name", "a", "b") as (client, _):
        async with client.post("/v1/completions", json=PROMPT | {"model": "b"}) as response:
            answer = await response.json()
        async with client.post(
            "/v1/chat/completions",
            json={"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3},
        ) as response:
            chat = await response.json()
        async with client.get("/v1/models") as response:
            models = await response.json()
    assert answer["model"] == "b"
    assert answer["usage"]["completion_tokens"] == 6
    assert answer["choices"][0]["finish_reason"] == "length"
    assert chat["choices"][0]["message"]["role"] == "assistant"
    assert [card["id"] for card in models["data"]] == ["a", "b"]
    assert {(card["root"], card["max_model_len"]) for card in models["data"]} == {("m", 2048)}


async def test_the_model_stops_by_itself_unless_told_to_go_on():
    async with serving() as (client, _):
        body = {"prompt": "Once upon a time", "max_tokens": 1900}
        async with client.post("/v1/completions", json=body) as response:
            free = await response.json()
        async with client.post("/v1/completions", json=body | {"min_tokens": 1900}) as response:
            forced = await response.json()
    assert free["choices"][0]["finish_reason"] == "stop"
    assert free["usage"]["completion_tokens"] < 1900
    assert forced["choices"][0]["finish_reason"] == "length"
    assert forced["usage"]["completion_tokens"] == 1900


@pytest.mark.parametrize(
    ("body", "status", "kind", "words"),
    [
        ({"model": "other"} | PROMPT, 404, "NotFoundError", "The model `other` does not exist."),
        ({"prompt": [1] * 2048}, 400, "BadRequestError", "contains 2048 input tokens"),
        ({"prompt": [1] * 2000, "max_tokens": 100}, 400, "BadRequestError", "total of 2100"),
        ({"prompt": "x", "max_tokens": 0}, 400, "BadRequestError", "max_tokens"),
        ({"max_tokens": 3}, 400, "BadRequestError", "prompt"),
        ({"prompt": "x", "stream_options": {"include_usage": True}}, 400, "BadRequestError",
         "stream=True"),
        ([], 400, "BadRequestError", "valid dictionary"),
    ],
)  # fmt: skip
async def test_a_bad_request_is_refused_in_the_engines_words(body, status, kind, words):
    async with serving() as (client, _), client.post("/v1/completions", json=body) as response:
        answer = await response.json()
    assert response.status == status
    assert answer["error"]["code"] == status
    assert answer["error"]["type"] == kind
    assert words in answer["error"]["message"]


async def test_text_that_is_no_json_is_refused():
    async with serving() as (client, _), client.post("/v1/completions", data=b"{") as response:
        assert response.status == 400


async def test_a_client_that_goes_frees_its_place():
    async with serving("--max-num-seqs", "1") as (client, engine):
        body = PROMPT | {"max_tokens": 2000, "stream": True}
        response = await client.post("/v1/completions", json=body)
        await response.content.readany()
        response.close()
        await until(lambda: engine.in_flight == 0)
        async with client.post("/v1/completions", json=PROMPT) as after:
            assert after.status == 200
        async with client.get("/metrics") as response:
            page = read_page(await response.text(), model="m")
    assert page.running == 0
    assert page.finished == 1  # vLLM counts a dropped request nowhere


async def test_metrics_count_what_was_served():
    async with serving() as (client, _):
        bodies = [PROMPT | {"prompt": [n] * 40, "max_tokens": 8} for n in range(5)]
        await asyncio.gather(*(client.post("/v1/completions", json=body) for body in bodies))
        async with client.get("/metrics") as response:
            text = await response.text()
    values = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "le" not in sample.labels and sample.labels.get("finished_reason", "length") == "length"
    }
    assert values["vllm:prompt_tokens_total"] == 5 * 40
    assert values["vllm:generation_tokens_total"] == 5 * 8
    assert values["vllm:request_success_total"] == 5
    assert values["vllm:time_to_first_token_seconds_count"] == 5
    assert values["vllm:inter_token_latency_seconds_count"] == 5 * 7
    assert values["vllm:e2e_request_latency_seconds_count"] == 5
    assert values["vllm:request_generation_tokens_sum"] == 5 * 8
    assert values["vllm:num_requests_running"] == 0
    assert values["vllm:cache_config_info"] == 1
    # The gaps of all requests add up to their decode times.
    gaps = values["vllm:inter_token_latency_seconds_sum"]
    assert gaps == pytest.approx(values["vllm:request_decode_time_seconds_sum"])


async def test_the_same_prompt_again_comes_from_the_prefix_cache():
    async with serving("--enable-prompt-tokens-details") as (client, _):
        body = PROMPT | {"prompt": list(range(100, 164))}
        async with client.post("/v1/completions", json=body) as response:
            first = await response.json()
        async with client.post("/v1/completions", json=body) as response:
            second = await response.json()
        async with client.get("/metrics") as response:
            page = read_page(await response.text(), model="m")
    assert first["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    # The last token is always computed, so the block that holds it is not taken from the cache.
    assert second["usage"]["prompt_tokens_details"] == {"cached_tokens": 48}
    assert (page.prefix_queries, page.prefix_hits) == (128, 48)


async def test_keys_queue_limits_and_small_endpoints():
    environment = FAST | {"VLLM_API_KEY": "k", "VLLM_SERVER_DEV_MODE": "1"}
    async with serving("--max-num-seqs", "4", environment=environment) as (client, _):
        async with client.get("/v1/models") as response:
            assert response.status == 401
        async with client.get("/v1/models", headers={"Authorization": "Bearer k"}) as response:
            assert response.status == 200
        async with client.get("/health") as response:
            assert response.status == 200
        async with client.get("/version") as response:
            assert await response.json() == {"version": "0.32.0"}
        async with client.get("/server_info", params={"config_format": "json"}) as response:
            config = (await response.json())["vllm_config"]
        async with client.post("/reset_prefix_cache") as response:
            assert await response.json() == {"success": True}
    assert config["scheduler_config"]["max_num_seqs"] == 4
    assert config["scheduler_config"]["max_num_batched_tokens"] == 2048
    async with serving() as (client, _), client.get("/server_info") as response:
        assert response.status == 404


async def test_more_than_may_queue_is_turned_away():
    async with serving("--max-num-seqs", "1", "--max-num-queued-reqs", "1") as (client, engine):
        body = PROMPT | {"max_tokens": 2000, "stream": True}
        held = [await client.post("/v1/completions", json=body)]
        queued = asyncio.create_task(client.post("/v1/completions", json=body))
        await until(lambda: engine.in_flight == 2)
        async with client.post("/v1/completions", json=PROMPT) as response:
            assert response.status == 503
            assert (await response.json())["error"]["type"] == "ServiceUnavailableError"
        held[0].close()
        (await queued).close()


async def test_an_engine_that_dies_takes_its_requests_with_it():
    environment = FAST | {"SIMULATE_CRASH_AFTER_REQUESTS": "2"}
    async with serving(environment=environment) as (client, engine):
        long = asyncio.create_task(
            client.post("/v1/completions", json=PROMPT | {"max_tokens": 2000})
        )
        for _ in range(2):
            async with client.post("/v1/completions", json=PROMPT) as response:
                await response.read()
        await until(lambda: engine.dead)
        assert (await long).status == 500
        async with client.get("/health") as response:
            assert response.status == 503
        async with client.post("/v1/completions", json=PROMPT) as response:
            assert response.status == 500
            assert "EngineCore encountered an issue" in await response.text()


async def test_the_request_at_whose_end_an_engine_dies_is_answered():
    """Steps are slow, so its last token is delivered alone: nothing else wakes its client."""
    environment = FAST | {"SIMULATE_CRASH_AFTER_REQUESTS": "1", "SIMULATE_CAPACITY_FACTOR": "0.1"}
    async with serving(environment=environment) as (client, engine), asyncio.timeout(20):
        async with client.post("/v1/completions", json=PROMPT) as response:
            assert response.status == 200
        assert engine.dead


async def test_an_engine_that_hangs_still_says_that_it_is_healthy():
    async with serving(environment=FAST | {"SIMULATE_HANG_AFTER": "1"}) as (client, engine):
        stuck = asyncio.create_task(client.post("/v1/completions", json=PROMPT))
        await until(lambda: engine.in_flight == 1)
        done, _ = await asyncio.wait({stuck}, timeout=0.5)
        assert not done
        async with client.get("/health") as response:
            assert response.status == 200
        stuck.cancel()
