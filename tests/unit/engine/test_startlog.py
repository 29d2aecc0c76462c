"""Start logs in the spellings of the releases."""

# ruff: noqa: E501 - log lines stand as engines write them
import pytest

from vllm_tuning.engine.startlog import parse_args_line, read_start_log

V024 = """\
(APIServer pid=580) INFO 11-29 19:19:34 [api_utils.py:339]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.24.0
(APIServer pid=580) INFO 11-29 19:19:34 [api_utils.py:273] non-default args: {'host': '127.0.0.1', 'port': 54131, 'max_model_len': 4096, 'served_model_name': ['m', 'n'], 'max_num_batched_tokens': 8192, 'max_num_seqs': 256}
(APIServer pid=580) INFO 11-29 19:19:57 [scheduler.py:252] Chunked prefill is enabled with max_num_batched_tokens=8192.
(EngineCore pid=713) INFO 11-29 19:20:21 [core.py:114] Initializing a V1 LLM engine (v0.24.0) with config: model='M', max_seq_len=4096, data_parallel_size=1, enable_prefix_caching=False, enable_chunked_prefill=True
(EngineCore pid=713) INFO 11-29 19:20:40 [gpu_model_runner.py:1] Model loading took 14.99 GiB memory and 3.250000 seconds
(EngineCore pid=713) INFO 11-29 19:20:44 [gpu_worker.py:1] Available KV cache memory: 112.33 GiB
(EngineCore pid=713) INFO 11-29 19:20:44 [kv_cache_utils.py:1] GPU KV cache size: 920,192 tokens
(EngineCore pid=713) INFO 11-29 19:20:44 [kv_cache_utils.py:1] Maximum concurrency for 4,096 tokens per request: 224.66x
(EngineCore pid=713) INFO 11-29 19:20:48 [model_runner.py:726] Graph capturing finished in 4 secs, took 0.59 GiB
(EngineCore pid=713) INFO 11-29 19:21:00 [core.py:337] init engine (profile, create kv cache, warmup model) took 36.18 s (compilation: 17.36 s)
"""


def test_facts_of_a_release_with_two_capacity_lines():
    facts = read_start_log(V024)
    assert facts.version == "0.24.0"
    assert facts.kv_cache_tokens == 920_192
    assert facts.max_concurrency == 224.66
    assert (facts.max_model_len, facts.max_num_seqs, facts.max_num_batched_tokens) == (
        4096,
        256,
        8192,
    )
    assert facts.kv_cache_memory_bytes == int(112.33 * (1 << 30))
    assert (facts.chunked_prefill, facts.prefix_caching) == (True, False)
    assert facts.args["served_model_name"] == ["m", "n"]
    assert (facts.load_seconds, facts.init_seconds, facts.compilation_seconds) == (
        3.25,
        36.18,
        17.36,
    )
    assert facts.graph_capture_seconds == 4
    assert facts.non_default_args.startswith("{'host'")


@pytest.mark.parametrize(
    ("line", "tokens"),
    [
        ("GPU KV cache size: 188,640 tokens", 188_640),
        (
            "CPU KV cache size: 65,536 tokens, Maximum concurrency for 2,048 tokens per request: 32.00x",
            65_536,
        ),
        (
            "GPU + host KV cache size: 1,188,640 tokens, Maximum concurrency for 2,048 tokens per request: 9.5x",
            1_188_640,
        ),
    ],
)
def test_every_spelling_of_the_capacity(line, tokens):
    assert read_start_log(f"INFO [kv_cache_utils.py:1] {line}\n").kv_cache_tokens == tokens


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ('{"level":3,"cudagraph_capture_sizes":[512,504,1],"max_capture_size":512}', 512),
        ("{'cudagraph_capture_sizes': [1, 2, 256], 'max_cudagraph_capture_size': 256}", 256),
        ('{"cudagraph_capture_sizes":[],"full_cuda_graph":false,"max_capture_size":512}', None),
        ("{'cudagraph_capture_sizes': [], 'max_cudagraph_capture_size': None}", None),
        ("{}", None),
    ],
)
def test_every_spelling_of_the_largest_cuda_graph(config, tokens):
    line = f"INFO [core.py:114] Initializing a V1 LLM engine (v0.24.0) with config: model='M', compilation_config={config}"
    assert read_start_log(line + "\n").graph_tokens == tokens


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("INFO [api_server.py:1896] vLLM API server version 0.11.0", "0.11.0"),
        ("INFO vLLM server version 0.32.0, serving model /model", "0.32.0"),
        (
            "INFO [core.py:77] Initializing a V1 LLM engine (v0.11.1rc2.dev1+g12) with config: x",
            "0.11.1rc2.dev1+g12",
        ),
    ],
)
def test_every_spelling_of_the_version(line, version):
    assert read_start_log(line + "\n").version == version


def test_data_parallel_ranks_give_the_smallest_capacity():
    log = "".join(
        f"(EngineCore_DP{rank} pid=1) INFO GPU KV cache size: {tokens:,} tokens\n"
        for rank, tokens in enumerate((9600, 9584))
    )
    facts = read_start_log(log + "config: data_parallel_size=2, max_seq_len=4096")
    assert (facts.kv_cache_tokens, facts.data_parallel_ranks) == (9584, 2)


def test_an_empty_log_says_nothing():
    facts = read_start_log("")
    assert facts.version is None
    assert facts.kv_cache_tokens is None
    assert facts.data_parallel_ranks == 1


def test_a_value_that_is_no_literal_costs_only_itself():
    line = (
        "{'model': 'M', 'compilation_config': CompilationConfig(level=3, sizes=[1, 2]), 'port': 80, "
        "'gpu_memory_utilization': 0.8, 'enable_prefix_caching': False, 'max_num_seqs': 64}"
    )
    assert parse_args_line(line) == {
        "model": "M",
        "port": 80,
        "gpu_memory_utilization": 0.8,
        "enable_prefix_caching": False,
        "max_num_seqs": 64,
    }
