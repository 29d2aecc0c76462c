"""Write a Llama-3-8B-shaped configuration and its tokenizer, for vLLM's dummy weights.

Needs transformers and tokenizers, which come with vLLM:
``python benchmarks/h200/make_model.py /tmp/model``.
"""

import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast

ENTRIES = 128_256

folder = sys.argv[1]
words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(ENTRIES)}, unk_token="w0"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(
    tokenizer_object=words, bos_token="w1", eos_token="w2", unk_token="w0", model_max_length=8192
).save_pretrained(folder)
LlamaConfig(
    architectures=["LlamaForCausalLM"],
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    vocab_size=ENTRIES,
    max_position_embeddings=8192,
    rope_theta=500000.0,
    torch_dtype="bfloat16",
).save_pretrained(folder)
