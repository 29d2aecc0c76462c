"""Failed starts, by the words that engines really print, and what is offered to do."""

# ruff: noqa: E501, ISC004 - log lines stand as engines write them
import pytest

from vllm_tuning.engine.failures import EXCERPT_BYTES, diagnose_start

CORE = "(EngineCore pid=713) ERROR 11-29 19:20:21 [core.py:900] "
API = "(APIServer pid=580) "


def value_error(text):
    """As vLLM logs an error of the engine core: its traceback, then that of the API server."""
    return (
        f"{CORE}EngineCore failed to start.\n{CORE}Traceback (most recent call last):\n"
        f'{CORE}  File "/x/vllm/v1/engine/core.py", line 891, in run_engine_core\n'
        f"{CORE}ValueError: {text}\n"
        f"{API}Traceback (most recent call last):\n"
        f"{API}RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {'EngineCore_0': 1}\n"
    )


def pydantic_error(config, text):
    return (
        f"{API}pydantic_core._pydantic_core.ValidationError: 1 validation error for {config}\n"
        f"{API}  {text} [type=value_error, input_value=ArgsKwargs((), {{'runner': 'x'}}), "
        "input_type=ArgsKwargs]\n"
        f"{API}    For further information visit https://errors.pydantic.dev/2.12/v/value_error\n"
    )


OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
    "79.10 GiB of which 5.31 MiB is free. Including non-PyTorch memory, this process has 78.70 GiB memory in use."
)

CASES = [
    # reason, kind, hint, exit code, log
    (
        "BudgetBelowSeqs",
        "Infeasible",
        8,
        1,
        pydantic_error(
            "SchedulerConfig",
            "Value error, max_num_batched_tokens (4) must be greater than or equal to max_num_seqs (8).",
        ),
    ),
    (
        "BudgetBelowModelLength",
        "Infeasible",
        512,
        1,
        pydantic_error(
            "SchedulerConfig",
            "Value error, max_num_batched_tokens (256) is smaller than max_model_len (512). This effectively limits "
            "the maximum sequence length",
        ),
    ),
    (
        "LongPrefillThresholdTooHigh",
        "Infeasible",
        2048,
        1,
        value_error(
            "long_prefill_token_threshold (4096) cannot be greater than the max_model_len (2048)."
        ),
    ),
    (
        "ActiveSeqsAboveSeqs",
        "Infeasible",
        64,
        1,
        value_error("max_num_active_seqs (96) cannot be greater than max_num_seqs (64)."),
    ),
    (
        "InvalidSchedulerConfig",
        "Infeasible",
        None,
        1,
        pydantic_error(
            "SchedulerConfig", "max_num_seqs\n  Input should be greater than or equal to 1"
        ),
    ),
    (
        "InvalidCacheConfig",
        "Infeasible",
        None,
        1,
        pydantic_error(
            "CacheConfig", "gpu_memory_utilization\n  Input should be less than or equal to 1"
        ),
    ),
    (
        "ConflictingGraphSizes",
        "BadArguments",
        None,
        1,
        value_error(
            "customized max_cudagraph_capture_size(=512) should be consistent with the max value of "
            "cudagraph_capture_sizes(=256)"
        ),
    ),
    (
        "OutOfMemoryAtSamplerWarmUp",
        "Infeasible",
        1024,
        1,
        f"{CORE}{OOM}\n"
        + value_error(
            "CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering "
            "`max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
        ),
    ),
    (
        "TooFewMambaBlocks",
        "Infeasible",
        512,
        1,
        value_error(
            "max_num_seqs (1024) exceeds available Mamba cache blocks (512). Each decode sequence requires one Mamba "
            "cache block, so CUDA graph capture cannot proceed. Please lower max_num_seqs to at most 512 or increase "
            "gpu_memory_utilization."
        ),
    ),
    (
        "NoMemoryForKVCache",
        "Infeasible",
        None,
        1,
        value_error(
            "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing "
            "the engine."
        ),
    ),
    (
        "KVCacheBelowModelLength",
        "Infeasible",
        24320,
        1,
        value_error(
            "To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, "
            "which is larger than the available KV cache memory (2.97 GiB). Based on the available memory, the "
            "estimated maximum model length is 24320. Try increasing `gpu_memory_utilization` or decreasing "
            "`max_model_len`"
        ),
    ),
    (
        "KVCacheBelowModelLength",
        "Infeasible",
        None,
        1,
        value_error(
            "To serve at least one request with the model's max seq len (131072), 16.0 GiB KV cache is needed, which "
            "is larger than the available KV cache memory (2.97 GiB). Try increasing `gpu_memory_utilization`"
        ),
    ),
    (
        "DeviceMemoryInUse",
        "Environment",
        None,
        1,
        value_error(
            "Free memory on device cuda:0 (20.11/79.10 GiB) on startup is less than desired GPU memory utilization "
            "(0.9, 71.19 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
        ),
    ),
    (
        "MemoryShareTooHigh",
        "Infeasible",
        None,
        1,
        value_error(
            "Free memory on device (78.61/79.10 GiB) on startup is less than desired GPU memory utilization (0.995, "
            "78.7 GiB). Decrease GPU memory utilization"
        ),
    ),
    (
        "OutOfMemoryAtGraphCapture",
        "Infeasible",
        None,
        1,
        f'{CORE}  File "gpu_model_runner.py", line 3000, in capture_model\n' + value_error(OOM),
    ),
    (
        "OutOfMemoryAtProfile",
        "Infeasible",
        None,
        1,
        f'{CORE}  File "gpu_worker.py", line 331, in determine_available_memory\n{CORE}    self.model_runner.'
        f"profile_run()\n{CORE}{OOM}\n",
    ),
    (
        "OutOfMemoryAtModelLoad",
        "Infeasible",
        None,
        1,
        f'{CORE}  File "gpu_model_runner.py", line 10, in load_model\n{CORE}{OOM}\n',
    ),
    (
        "DeviceMemoryInUse",
        "Environment",
        None,
        1,
        f"{CORE}torch.OutOfMemoryError: CUDA out of memory. GPU 0 has a total capacity of 79.10 GiB of which 5.31 MiB "
        "is free. Process 4321 has 40.20 GiB memory in use. Process 99 has 38.00 GiB memory in use.\n",
    ),
    ("OutOfMemory", "Infeasible", None, 1, f"{CORE}{OOM}\n"),
    (
        "HostMemoryBelowKVCache",
        "Infeasible",
        None,
        1,
        value_error(
            "Available memory on node 0 (3.11/15.6 GiB) on kv cache allocation is less than requested memory for kv "
            "(8.0 GiB). Decrease --kv-cache-memory-bytes"
        ),
    ),
    (
        "CommandLineRefused",
        "BadArguments",
        None,
        2,
        "usage: vllm serve [model_tag] [options]\nvllm: error: unrecognized arguments: --num-scheduler-steps 8\n",
    ),
    (
        "ServiceEnvironmentClash",
        "Environment",
        None,
        1,
        "ValueError: VLLM_PORT 'tcp://10.0.0.1:80' appears to be a URI. This may be caused by a Kubernetes service "
        "discovery issue,check the warning in: https://docs.vllm.ai\n",
    ),
    ("NoDevice", "Environment", None, 1, "RuntimeError: No CUDA GPUs are available\n"),
    ("NoDevice", "Environment", None, 1, "RuntimeError: Failed to infer device type, please set\n"),
    (
        "DriverTooOld",
        "Environment",
        None,
        1,
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12020).\n",
    ),
    (
        "ModelAccessDenied",
        "Environment",
        None,
        1,
        "huggingface_hub.errors.GatedRepoError: 401 Client Error.\n",
    ),
    (
        "ModelUnavailable",
        "Environment",
        None,
        1,
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files\n",
    ),
    ("DiskFull", "Environment", None, 1, "OSError: [Errno 28] No space left on device\n"),
    (
        "PortInUse",
        "Environment",
        None,
        1,
        "OSError: [Errno 98] error while attempting to bind on address ('127.0.0.1', 8902): address already in use\n",
    ),
    (
        "CollectiveFailed",
        "Environment",
        None,
        1,
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error\n",
    ),
    (
        "BrokenImage",
        "Environment",
        None,
        1,
        "ModuleNotFoundError: No module named 'vllm'\n",
    ),
    (
        "CommandNotFound",
        "Environment",
        None,
        None,
        "cannot run 'vllm': No such file or directory\n",
    ),
    ("CommandNotFound", "Environment", None, 127, "sh: 1: vllm: not found\n"),
    ("Killed", "Environment", None, 137, "loading weights\n"),
    ("EngineCrashed", "Environment", None, 139, "loading weights\n"),
    (
        "Unclassified",
        "Environment",
        None,
        1,
        "Traceback (most recent call last):\nKeyError: 'architectures'\n",
    ),
]


@pytest.mark.parametrize(
    ("reason", "kind", "hint", "exit_code", "log"), CASES, ids=[c[0] for c in CASES]
)
def test_texts_of_engines(reason, kind, hint, exit_code, log):
    found = diagnose_start("INFO banner\n" + log, exit_code=exit_code)
    assert (found.reason, found.kind, found.hint) == (reason, kind, hint)
    assert found.message
    assert "\n" not in found.message


def test_a_time_out_is_told_with_the_last_line():
    found = diagnose_start("INFO starting\nLoading weights: 3 %\n", exit_code=None, timed_out=True)
    assert (found.kind, found.reason) == ("Timeout", "StartTimedOut")
    assert "Loading weights: 3 %" in found.message


def test_a_kill_of_the_kernel_is_told_from_other_kills():
    found = diagnose_start("loading", exit_code=137, host_oom_kills=1)
    assert found.reason == "HostOutOfMemory"


def test_what_argparse_said_last_is_quoted():
    log = "WARNING error: no matter\nvllm serve: error: argument --max-num-seqs: invalid int value: '1k'\n"
    assert "invalid int value" in diagnose_start(log, exit_code=2).message


def test_silence_is_a_failure_too():
    found = diagnose_start("", exit_code=1)
    assert found.reason == "Unclassified"
    assert "nothing" in found.message


def test_a_warning_of_a_healthy_part_is_no_cause():
    """Every CUDA image logs this import warning; the cause is what ended the start."""
    log = 'WARNING [cuda.py:45] Failed to import from vllm._qutlass_C: ModuleNotFoundError("x")\n'
    found = diagnose_start(
        log + value_error("max_num_active_seqs (2) cannot be greater than max_num_seqs (1)."),
        exit_code=1,
    )
    assert found.reason == "ActiveSeqsAboveSeqs"
    assert diagnose_start(log + "KeyError: 'x'\n", exit_code=1).reason == "Unclassified"


def test_the_excerpt_shows_the_cause_and_the_end_without_secrets():
    noise = "".join(f"{API}INFO line {i}\n" for i in range(400))
    log = (
        noise
        + value_error("No available memory for the cache blocks.")
        + noise
        + "api_key='sk-abcdefghijkl'\n"
    )
    excerpt = diagnose_start(log, exit_code=1).excerpt
    assert len(excerpt.encode()) <= EXCERPT_BYTES
    assert "No available memory for the cache blocks" in excerpt
    assert excerpt.endswith("api_key='***'\n")
