# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""make_folders.py: tiny random Hugging Face models in the forms that import reads, with the logits transformers gives.

  python make_folders.py FOLDER          the folders in tests/fixtures/huggingface (gpt2, llama, llama3, qwen2, qwen3); needs torch and transformers
  python make_folders.py FOLDER all      the full list of forms, for check_peers.py

Each folder holds config.json, safetensors and logits.json: {"tokens": [...], "logits": [...]}, the logits after the
last token, in float32 with the stored weights.
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)

VOCAB = 61
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 53, 58, 60]


def gpt2(**changes):
    shape = dict(n_layer=2, n_embd=16, n_head=4, n_positions=16, vocab_size=VOCAB, bos_token_id=0, eos_token_id=0)
    return GPT2LMHeadModel(GPT2Config(**(shape | changes)))


# Of 4 pairs of channels one keeps its frequency, one is slowed, and two are between; 11 tokens show the difference.
LLAMA3 = dict(rope_type="llama3", rope_theta=10.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=30)


def rotary(make, **changes):
    """A model of Llama's family: make(config's keys)."""
    shape = dict(num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2,
                 intermediate_size=24, max_position_embeddings=16, vocab_size=VOCAB, bos_token_id=0, eos_token_id=0, pad_token_id=0,
                 tie_word_embeddings=False, rms_norm_eps=1e-5)
    return make(shape | changes)


def llama(**changes):
    return rotary(lambda keys: LlamaForCausalLM(LlamaConfig(**keys)), **changes)


def qwen2(**changes):
    return rotary(lambda keys: Qwen2ForCausalLM(Qwen2Config(**keys)), **changes)


def qwen3(**changes):
    return rotary(lambda keys: Qwen3ForCausalLM(Qwen3Config(**keys)), **(dict(head_dim=6) | changes))


def randomized(model, seed):
    """Weights of deviation 0.2 and gains near 1, so that the logits depend visibly on every tensor."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            gain = weight.dim() == 1 and name.endswith("weight")
            weight.copy_(torch.randn(weight.shape, generator=generator) * 0.2 + (1.0 if gain else 0.0))
    return model.eval()


def logits_of(model):
    with torch.no_grad():
        return model.eval()(torch.tensor([TOKENS])).logits[0, -1].tolist()


def save(folder, model, dtype=torch.float32, **how):
    folder.mkdir(parents=True)
    model.to(dtype).save_pretrained(folder, **how)
    (folder / "generation_config.json").unlink(missing_ok=True)
    # Loaded again, since to(dtype) has also rounded RoPE's frequencies, which are in no file.
    stored = type(model).from_pretrained(folder, dtype=torch.float32)
    (folder / "logits.json").write_text(json.dumps(dict(tokens=TOKENS, logits=logits_of(stored))) + "\n")


def rename(folder, change):
    """Applies change(name) to every tensor of a folder's one file; None leaves it out."""
    path = folder / "model.safetensors"
    tensors = {change(name): value for name, value in load_file(path).items()}
    tensors.pop(None, None)
    save_file(tensors, path, metadata={"format": "pt"})


def edit_config(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config, indent=2) + "\n")


def old_form(config):
    """rope_theta, rope_scaling and torch_dtype in the form before transformers 5."""
    parameters = config.pop("rope_parameters")
    theta = parameters.pop("rope_theta")
    scaling = None if parameters["rope_type"] == "default" else parameters
    config.update(rope_theta=theta, rope_scaling=scaling, torch_dtype=config.pop("dtype"))


def stored(root):
    save(root / "gpt2", randomized(gpt2(), 1))
    rename(root / "gpt2", lambda name: name.removeprefix("transformer."))
    save(root / "llama", randomized(llama(), 2), torch.bfloat16, max_shard_size="6KB")
    small = dict(num_hidden_layers=1, tie_word_embeddings=True)
    save(root / "llama3", randomized(llama(rope_parameters=LLAMA3, head_dim=8, **small), 11), torch.bfloat16)
    save(root / "qwen2", randomized(qwen2(**small), 12), torch.bfloat16)
    save(root / "qwen3", randomized(qwen3(num_hidden_layers=1), 13), torch.bfloat16)


def all_forms(root):
    save(root / "gpt2-prefixed", randomized(gpt2(), 3))
    save(root / "gpt2-plain", randomized(gpt2(), 4))
    rename(root / "gpt2-plain", lambda name: name.removeprefix("transformer."))
    tensors = load_file(root / "gpt2-plain" / "model.safetensors")
    for layer in range(2):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(16, 16, dtype=torch.uint8).tril().view(1, 1, 16, 16)
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, root / "gpt2-plain" / "model.safetensors", metadata={"format": "pt"})
    save(root / "gpt2-untied", randomized(gpt2(tie_word_embeddings=False, n_inner=40), 5))
    save(root / "gpt2-f16-shards", randomized(gpt2(layer_norm_epsilon=1e-4), 6), torch.float16, max_shard_size="8KB")
    save(root / "llama-gqa", randomized(llama(), 7))
    save(root / "llama-bf16-shards", randomized(llama(), 8), torch.bfloat16, max_shard_size="6KB")
    theta = dict(rope_type="default", rope_theta=500000.0)
    save(root / "llama-tied", randomized(llama(tie_word_embeddings=True, rope_parameters=theta, head_dim=6), 9))
    save(root / "llama-old-config", randomized(llama(num_key_value_heads=4, rope_parameters=theta), 10))
    edit_config(root / "llama-old-config", old_form)
    save(root / "llama3", randomized(llama(rope_parameters=LLAMA3, head_dim=8), 14))
    save(root / "llama3-old-config", randomized(llama(rope_parameters=LLAMA3 | dict(factor=32.0), head_dim=8), 15))
    edit_config(root / "llama3-old-config", old_form)
    million = dict(rope_type="default", rope_theta=1000000.0)
    save(root / "qwen2-tied", randomized(qwen2(tie_word_embeddings=True, rope_parameters=million), 16))
    save(root / "qwen2-f16-shards", randomized(qwen2(num_key_value_heads=4), 17), torch.float16, max_shard_size="6KB")
    save(root / "qwen2-old-config", randomized(qwen2(rope_parameters=million), 18))
    edit_config(root / "qwen2-old-config", old_form)
    save(root / "qwen3-tied", randomized(qwen3(tie_word_embeddings=True, rope_parameters=million), 19))
    save(root / "qwen3-bf16-shards", randomized(qwen3(head_dim=16), 20), torch.bfloat16, max_shard_size="6KB")
    save(root / "qwen3-scaled", randomized(qwen3(rope_parameters=LLAMA3, num_key_value_heads=1), 21))


if __name__ == "__main__":
    torch.set_num_threads(1)
    (all_forms if sys.argv[2:] == ["all"] else stored)(pathlib.Path(sys.argv[1]))
