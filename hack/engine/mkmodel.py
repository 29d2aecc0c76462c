"""Write a tiny Llama-shaped model into a folder: configuration and tokenizer, no weights.

vLLM fills the weights at random (``--load-format dummy``). Every word ``w0`` … ``w1023`` is one
token, so a prompt of n words has n tokens. Run with the engine's own Python:
``python mkmodel.py FOLDER``.
"""

import json
import sys
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

VOCABULARY = 1024
CONTEXT = 4096

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}

TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "w1",
    "eos_token": "w2",
    "unk_token": "w0",
    "model_max_length": CONTEXT,
}


def main(folder: Path) -> None:
    """Write the three files."""
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(TOKENIZER_CONFIG))
    (folder / "config.json").write_text(json.dumps(CONFIG))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
