"""A tokenizer for the tools that insist on one: a thousand words, each one token."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = 1024


def write_tokenizer(folder: Path) -> None:
    """Write what ``AutoTokenizer`` loads; no model and no download is involved."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {f"w{number}": number for number in range(WORDS)},
            "unk_token": "w0",
        },
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "w1",
        "eos_token": "w2",
        # No unk_token here: special tokens are left out of a decoded text, and what a tool makes
        # of words that this vocabulary does not have would be empty.
        "model_max_length": 8192,
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
