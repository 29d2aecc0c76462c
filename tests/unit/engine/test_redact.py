"""Secrets do not leave the pod; everything else does."""

import pytest

from vllm_tuning.engine.redact import redact, redact_argv


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("token hf_abcdefghijklmnop used", "token *** used"),
        ("--api-key s3cret --port 80", "--api-key *** --port 80"),
        ("--api-key=s3cret", "--api-key=***"),
        ("{'api_key': ['s3cret'], 'port': 80}", "{'api_key': ['***'], 'port': 80}"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer ***"),
        ("HF_TOKEN=hfsecret", "HF_TOKEN=***"),
        ("AWS_SECRET_ACCESS_KEY=abc/def", "AWS_SECRET_ACCESS_KEY=***"),
        ("http://user:pw@proxy:80/", "http://***@proxy:80/"),
        ("id AKIAABCDEFGHIJKLMNOP", "id ***"),
    ],
)
def test_masks(text, masked):
    assert redact(text) == masked
    assert redact(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "non-default args: {'max_num_batched_tokens': 8192, 'tokenizer_mode': 'auto'}",
        "GPU KV cache size: 920,192 tokens",
        "'api_key': None",
        "max_tokens=128 tokens",
        "ValueError: max_num_batched_tokens (4) must be greater than or equal to max_num_seqs (8).",
    ],
)
def test_leaves_the_rest(text):
    assert redact(text) == text


def test_a_command_line():
    argv = ["vllm", "serve", "m", "--api-key", "one", "two", "--port", "80", "--max-num-seqs=4"]
    assert redact_argv(argv) == (
        "vllm", "serve", "m", "--api-key", "***", "***", "--port", "80", "--max-num-seqs=4",
    )  # fmt: skip
