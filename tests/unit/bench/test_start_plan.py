"""The command line of a start, and whether the engine took it."""

import pytest

from vllm_tuning.bench.intent import check_intent
from vllm_tuning.bench.plan import plan_start
from vllm_tuning.engine.args import read_args
from vllm_tuning.engine.outcome import Refusal
from vllm_tuning.engine.startlog import read_start_log
from vllm_tuning.tuning.model import Limits

LIMITS = Limits(64, 2048)


def flags(argv):
    return {name: value.value for name, value in read_args({"command": list(argv)}).flags.items()}


@pytest.mark.parametrize(
    ("argv", "model"),
    [
        (["vllm", "serve", "/m", "--max-num-seqs", "8", "--dtype=bfloat16"], "/m"),
        (["vllm", "serve", "/m", "--served-model-name", "a", "b", "--dtype=bfloat16"], "a"),
        (["vllm", "serve", "/m", "--served-model-name=a", "--dtype=bfloat16"], "a"),
        (["bash", "-c", "vllm serve /m --served-model-name=a --dtype=bfloat16 && echo done"], "a"),
        (["python", "-m", "vllm.entrypoints.openai.api_server", "--model=/m", "--seed=1"], "/m"),
        (["sh", "-c", "exec vllm serve /m --max-num-seqs 8 --dtype=bfloat16"], "/m"),
    ],
)  # fmt: skip
def test_only_the_intended_flags_change(argv, model):
    plan = plan_start(argv, LIMITS, nonce="nonce", port=8902)
    assert not isinstance(plan, Refusal)
    before, after = flags(argv), flags(plan.argv)
    names = after.pop("served_model_name").split()
    assert names[-1] == "nonce"
    assert names[0] == plan.model == model
    before.pop("served_model_name", None)
    expected = {
        "max_num_seqs": "64",
        "max_num_batched_tokens": "2048",
        "host": "127.0.0.1",
        "port": "8902",
    }
    assert after == before | expected


def test_optional_limits_are_set_only_when_wanted():
    limits = Limits(8, 512, gpu_memory_utilization_percent=85, enable_chunked_prefill=False)
    after = flags(plan_start(["vllm", "serve", "/m"], limits, nonce="n", port=1).argv)
    assert after["gpu_memory_utilization"] == "0.85"
    assert after["enable_chunked_prefill"] == "false"
    assert "long_prefill_token_threshold" not in after


def test_no_secret_and_no_certificate_is_needed_on_loopback():
    argv = [
        "vllm",
        "serve",
        "/m",
        "--api-key",
        "s3cret",
        "--ssl-keyfile",
        "/k",
        "--ssl-certfile",
        "/c",
    ]
    plan = plan_start(argv, LIMITS, nonce="n", port=1)
    assert not {"s3cret", "/k", "/c"} & set(plan.argv)
    assert plan.env == {"VLLM_API_KEY": None}


def test_a_name_that_only_the_shell_knows_comes_from_the_environment():
    argv = ["sh", "-c", "vllm serve $MODEL"]
    assert plan_start(argv, LIMITS, nonce="n", port=1, env={"MODEL": "qwen"}).model == "qwen"


def test_what_cannot_be_edited_is_refused_with_its_reason():
    assert isinstance(plan_start(["ray", "start"], LIMITS, nonce="n", port=1), Refusal)


def said(args, *lines):
    return read_start_log("\n".join([f"INFO non-default args: {args!r}", *lines, ""]))


def test_an_engine_as_asked_passes():
    args = {"max_num_seqs": 64, "max_num_batched_tokens": 2048}
    assert check_intent(LIMITS, said(args)) is None


@pytest.mark.parametrize(
    ("args", "line", "word"),
    [
        ({"max_num_seqs": 16, "max_num_batched_tokens": 2048}, "", "max_num_seqs 16, not 64"),
        ({"max_num_batched_tokens": 2048}, "", "max_num_seqs None, not 64"),
        (
            {"max_num_seqs": 64, "max_num_batched_tokens": 2048},
            "Chunked prefill is enabled with max_num_batched_tokens=4096.",
            "max_num_batched_tokens 4096, not 2048",
        ),
    ],
)
def test_an_engine_with_other_limits_measures_nothing(args, line, word):
    failure = check_intent(LIMITS, said(args, line))
    assert failure.reason == "ArgumentsNotTaken"
    assert word in failure.message


def test_the_memory_share_is_compared_when_the_engine_tells_it():
    limits = Limits(64, 2048, gpu_memory_utilization_percent=85)
    args = {"max_num_seqs": 64, "max_num_batched_tokens": 2048}
    assert check_intent(limits, said({**args, "gpu_memory_utilization": 0.85})) is None
    assert check_intent(limits, said(args)) is None  # its default is in no line
    assert check_intent(limits, said({**args, "gpu_memory_utilization": 0.9})) is not None


def test_a_silent_engine_is_not_trusted():
    assert check_intent(LIMITS, read_start_log("")).reason == "ArgumentsNotVerified"
