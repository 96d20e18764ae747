# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""make_lora_reference.py: eight AdamW steps of PEFT's adapters beside the models of make_reference.py.

  python make_lora_reference.py FOLDER     writes lora_NAME.json and lora_NAME.bin; needs torch, transformers, peft

FOLDER has the files of make_reference.py, whose initial weights are the base and whose first tokens are the data.
lora_NAME.json: PEFT's keys of the adapters, eight losses, and the tensors in file order, by PEFT's names without
"base_model.model." and GPT-2's "transformer.".
lora_NAME.bin: float32, little-endian: the adapters as PEFT begins them, then after eight steps.
The models are those of transformers, in float32 on one thread.
"""
import json
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from peft import LoraConfig, get_peft_model
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)

from make_reference import OPTIMIZER

STEPS = 8
ADAPTERS = dict(
    gpt2=dict(r=3, lora_alpha=6, target_modules="all-linear", fan_in_fan_out=True),
    llama=dict(r=4, lora_alpha=16, target_modules="all-linear"),
    qwen2=dict(r=4, lora_alpha=4, target_modules="all-linear", use_rslora=True),
    qwen3=dict(r=2, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"]))


def gpt2(config):
    return GPT2LMHeadModel(GPT2Config(
        n_layer=config["layers"], n_embd=config["dim"], n_head=config["heads"], n_inner=config["ffn"],
        n_positions=config["seq"], vocab_size=config["vocab"], layer_norm_epsilon=config["norm_eps"],
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager"))


def rotary(model, keys, config):
    rope = dict(rope_type="default", rope_theta=config["rope_theta"])
    if "rope_scaling" in config:
        scaling = dict(config["rope_scaling"])
        rope |= dict(rope_type="llama3", original_max_position_embeddings=scaling.pop("original_seq"), **scaling)
    return model(keys(
        num_hidden_layers=config["layers"], hidden_size=config["dim"], num_attention_heads=config["heads"],
        num_key_value_heads=config["kv_heads"], head_dim=config.get("head_dim", config["dim"] // config["heads"]),
        intermediate_size=config["ffn"], max_position_embeddings=config["seq"], vocab_size=config["vocab"],
        rms_norm_eps=config["norm_eps"], tie_word_embeddings=config["tie_embeddings"], rope_parameters=rope,
        attn_implementation="eager"))


MODELS = dict(
    gpt2=gpt2,
    llama=lambda config: rotary(LlamaForCausalLM, LlamaConfig, config),
    qwen2=lambda config: rotary(Qwen2ForCausalLM, Qwen2Config, config),
    qwen3=lambda config: rotary(Qwen3ForCausalLM, Qwen3Config, config))


def base(folder, arch):
    """The record of make_reference.py, and a model of transformers with its initial weights."""
    record = json.loads((folder / f"{arch}.json").read_text())
    values = np.fromfile(folder / f"{arch}.bin", "<f4")
    model = MODELS[arch](record["config"])
    weights = dict(model.named_parameters())
    begin = 0
    with torch.no_grad():
        for tensor in record["tensors"]:
            count = int(np.prod(tensor["shape"]))
            name = "transformer." + tensor["name"] if arch == "gpt2" else tensor["name"]
            weights.pop(name).copy_(torch.from_numpy(values[begin:begin + count].reshape(tensor["shape"])))
            begin += count
    assert not weights, weights.keys()
    return record, model


def own_name(name):
    """The tensor's name in KoZeRO, of PEFT's name in memory."""
    return name.removeprefix("base_model.model.").removeprefix("transformer.").replace(".default.", ".")


def write(folder, arch, seed):
    record, model = base(folder, arch)
    torch.manual_seed(seed)
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **ADAPTERS[arch]))
    adapters = {own_name(name): value for name, value in model.named_parameters() if value.requires_grad}
    first = [value.detach().numpy().copy() for value in adapters.values()]
    optimizer = torch.optim.AdamW(adapters.values(), **OPTIMIZER)
    losses = []
    for batch in torch.tensor(record["tokens"][:STEPS]):
        optimizer.zero_grad()
        logits = model(batch[:, :-1], use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    last = [value.detach().numpy() for value in adapters.values()]
    print(arch, len(adapters), "tensors, losses", losses[0], losses[-1])
    described = dict(lora=ADAPTERS[arch], losses=losses,
                     tensors=[dict(name=name, shape=list(value.shape)) for name, value in adapters.items()])
    (folder / f"lora_{arch}.json").write_text(json.dumps(described) + "\n")
    np.concatenate([values.astype("<f4").ravel() for values in first + last]).tofile(folder / f"lora_{arch}.bin")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for number, name in enumerate(MODELS):
        write(pathlib.Path(sys.argv[1]), name, number)
