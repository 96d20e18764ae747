# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""make_reference.py: ten AdamW steps of a tiny GPT-2, Llama, Qwen2 and Qwen3 in plain PyTorch, for the C++ parity test.

  python make_reference.py FOLDER       writes NAME.json and NAME.bin for gpt2, gpt2_without_biases, llama, qwen2, qwen3,
                                        and layers_NAME.json and layers_NAME.bin for gpt2 and llama; needs torch, numpy

NAME.json: the shape, the optimizer's numbers, the tokens (steps, B, T + 1), ten losses, and the tensors in file order.
NAME.bin: float32, little-endian: the initial weights, the first step's gradients, the weights after ten steps, each
tensor after tensor in that order.
layers_NAME: the same run with a learning rate per layer; its losses, and float32 weights after ten steps. The names and orientations are Hugging Face's; the mathematics is written here from
the papers, in float32 on one thread. Each run is repeated in float64, and the distance of the two is printed: this is
the part of the test's bounds that PyTorch's own rounding uses.
"""
import functools
import json
import math
import pathlib
import re
import sys

import numpy as np
import torch
import torch.nn.functional as F

STEPS, BATCH, T, VOCAB, DIM, HEADS, LAYERS = 10, 3, 16, 61, 32, 4, 2
LAYER_DECAY = 0.5
OPTIMIZER = dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)

GPT2 = dict(arch="gpt2", layers=LAYERS, dim=DIM, heads=HEADS, kv_heads=HEADS, ffn=4 * DIM, tie_embeddings=True)
BARE_GPT2 = dict(GPT2, bias=False)
LLAMA = dict(arch="llama", layers=LAYERS, dim=DIM, heads=HEADS, kv_heads=2, ffn=88, tie_embeddings=False)
QWEN = dict(layers=1, dim=DIM, heads=HEADS, kv_heads=2, ffn=24, tie_embeddings=True)
QWEN2 = dict(arch="qwen2", **QWEN)
STRETCH = dict(factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_seq=30)
QWEN3 = dict(arch="qwen3", head_dim=12, rope_scaling=STRETCH, **QWEN)
SHARED = dict(vocab=VOCAB, seq=T, norm_eps=1e-5, rope_theta=10000.0)


def gpt2_shapes():
    shapes = {"wte.weight": (VOCAB, DIM), "wpe.weight": (T, DIM)}
    for layer in range(LAYERS):
        h = f"h.{layer}"
        shapes |= {f"{h}.ln_1.weight": (DIM,), f"{h}.ln_1.bias": (DIM,)}
        shapes |= {f"{h}.attn.c_attn.weight": (DIM, 3 * DIM), f"{h}.attn.c_attn.bias": (3 * DIM,)}
        shapes |= {f"{h}.attn.c_proj.weight": (DIM, DIM), f"{h}.attn.c_proj.bias": (DIM,)}
        shapes |= {f"{h}.ln_2.weight": (DIM,), f"{h}.ln_2.bias": (DIM,)}
        shapes |= {f"{h}.mlp.c_fc.weight": (DIM, 4 * DIM), f"{h}.mlp.c_fc.bias": (4 * DIM,)}
        shapes |= {f"{h}.mlp.c_proj.weight": (4 * DIM, DIM), f"{h}.mlp.c_proj.bias": (DIM,)}
    return shapes | {"ln_f.weight": (DIM,), "ln_f.bias": (DIM,)}


def bare_gpt2_shapes():
    """GPT-2 without biases of linear maps and norms."""
    return {name: shape for name, shape in gpt2_shapes().items() if not name.endswith(".bias")}


def llama_shapes(config):
    head, kv, ffn = config.get("head_dim", DIM // HEADS), config["kv_heads"], config["ffn"]
    shapes = {"model.embed_tokens.weight": (VOCAB, DIM)}
    for layer in range(config["layers"]):
        h = f"model.layers.{layer}"
        shapes |= {f"{h}.self_attn.q_proj.weight": (HEADS * head, DIM)}
        shapes |= {f"{h}.self_attn.k_proj.weight": (kv * head, DIM), f"{h}.self_attn.v_proj.weight": (kv * head, DIM)}
        if config["arch"] == "qwen2":
            rows = dict(q=HEADS * head, k=kv * head, v=kv * head)
            shapes |= {f"{h}.self_attn.{p}_proj.bias": (rows[p],) for p in "qkv"}
        if config["arch"] == "qwen3":
            shapes |= {f"{h}.self_attn.{p}_norm.weight": (head,) for p in "qk"}
        shapes |= {f"{h}.self_attn.o_proj.weight": (DIM, HEADS * head)}
        shapes |= {f"{h}.mlp.gate_proj.weight": (ffn, DIM), f"{h}.mlp.up_proj.weight": (ffn, DIM)}
        shapes |= {f"{h}.mlp.down_proj.weight": (DIM, ffn)}
        shapes |= {f"{h}.input_layernorm.weight": (DIM,), f"{h}.post_attention_layernorm.weight": (DIM,)}
    shapes |= {"model.norm.weight": (DIM,)}
    return shapes if config["tie_embeddings"] else shapes | {"lm_head.weight": (VOCAB, DIM)}


def initial(shapes, seed):
    """Weights with deviation 0.1; gains near but not at 1 and biases near but not at 0."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in shapes.items():
        gain = len(shape) == 1 and name.endswith(".weight")
        weights[name] = torch.randn(shape, generator=generator) * 0.1 + (1.0 if gain else 0.0)
    return weights


def attention(q, k, v):
    """q (B, T, H, D), k and v (B, T, KV, D) -> (B, T, H * D); causal."""
    groups = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k.repeat_interleave(groups, 2), v.repeat_interleave(groups, 2)))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    future = torch.ones(T, T, dtype=torch.bool).triu(1)
    return (scores.masked_fill(future, -math.inf).softmax(-1) @ v).transpose(1, 2).flatten(2)


def stretched(frequencies, factor, low_freq_factor, high_freq_factor, original_seq):
    """Llama 3.1's rule, by the number of a pair's turns within the original window."""
    turns = original_seq * frequencies / (2 * math.pi)
    kept = ((turns - low_freq_factor) / (high_freq_factor - low_freq_factor)).clamp(0, 1)
    return kept * frequencies + (1 - kept) * frequencies / factor


def rotated(x, scaling=None):
    """RoPE in Hugging Face's half-split form: channel i is paired with channel i + D/2."""
    half = x.shape[-1] // 2
    frequencies = SHARED["rope_theta"] ** (-torch.arange(half, dtype=x.dtype) / half)
    if scaling:
        frequencies = stretched(frequencies, **scaling)
    angles = torch.outer(torch.arange(T, dtype=x.dtype), frequencies)[:, None, :]
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


def gpt2_logits(w, tokens):
    def norm(x, name):
        return F.layer_norm(x, (DIM,), w[name + ".weight"], w.get(name + ".bias"), SHARED["norm_eps"])

    def linear(x, name):
        y = x @ w[name + ".weight"]
        return y + w[name + ".bias"] if name + ".bias" in w else y

    x = w["wte.weight"][tokens] + w["wpe.weight"]
    for layer in range(LAYERS):
        h = f"h.{layer}"
        qkv = linear(norm(x, f"{h}.ln_1"), f"{h}.attn.c_attn").unflatten(-1, (3, HEADS, DIM // HEADS))
        x = x + linear(attention(*qkv.unbind(2)), f"{h}.attn.c_proj")
        hidden = linear(norm(x, f"{h}.ln_2"), f"{h}.mlp.c_fc")
        x = x + linear(F.gelu(hidden, approximate="tanh"), f"{h}.mlp.c_proj")
    return norm(x, "ln_f") @ w["wte.weight"].T


def llama_logits(config, w, tokens):
    """Llama's family: has a bias, and a norm of q and k, if their tensors exist."""
    head, scaling = config.get("head_dim", DIM // HEADS), config.get("rope_scaling")

    def norm(x, name):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + SHARED["norm_eps"]) * w[name + ".weight"]

    def linear(x, name):
        y = x @ w[name + ".weight"].T
        return y + w[name + ".bias"] if name + ".bias" in w else y

    def turned(x, name):
        return rotated(norm(x, name) if name + ".weight" in w else x, scaling)

    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(config["layers"]):
        h = f"model.layers.{layer}"
        y = norm(x, f"{h}.input_layernorm")
        q, k, v = (linear(y, f"{h}.self_attn.{p}_proj").unflatten(-1, (-1, head)) for p in "qkv")
        q, k = turned(q, f"{h}.self_attn.q_norm"), turned(k, f"{h}.self_attn.k_norm")
        x = x + linear(attention(q, k, v), f"{h}.self_attn.o_proj")
        y = norm(x, f"{h}.post_attention_layernorm")
        x = x + linear(F.silu(linear(y, f"{h}.mlp.gate_proj")) * linear(y, f"{h}.mlp.up_proj"), f"{h}.mlp.down_proj")
    vocabulary = "model.embed_tokens.weight" if config["tie_embeddings"] else "lm_head.weight"
    return norm(x, "model.norm") @ w[vocabulary].T


def layer_of(name):
    """The embedding is layer 0, the blocks are 1 to LAYERS, what follows them is of the last one."""
    found = re.search(r"\.(\d+)\.", "." + name)
    if found:
        return int(found.group(1)) + 1
    return 0 if re.search(r"wte|wpe|embed_tokens", name) else LAYERS


def group_of(name, value, layer_decay):
    """The parameter group of one tensor."""
    keys = dict(OPTIMIZER, lr=OPTIMIZER["lr"] * layer_decay ** (LAYERS - layer_of(name)))
    return dict(keys, params=[value], weight_decay=OPTIMIZER["weight_decay"] if value.dim() > 1 else 0.0)


def train(logits, start, tokens, clip, dtype, layer_decay=1.0):
    """Losses of all steps, the first gradients, the last weights."""
    w = {name: value.to(dtype).clone().requires_grad_() for name, value in start.items()}
    optimizer = torch.optim.AdamW([group_of(name, value, layer_decay) for name, value in w.items()])
    losses, first = [], None
    for batch in tokens:
        optimizer.zero_grad()
        loss = F.cross_entropy(logits(w, batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        first = first or {name: value.grad.clone() for name, value in w.items()}
        if clip:
            torch.nn.utils.clip_grad_norm_(w.values(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses, first, {name: value.detach() for name, value in w.items()}


def distance(a, b):
    """The largest difference of two sets of tensors, as a share of each tensor's largest entry. GPT-2's key biases are
    excluded: their exact gradient is zero, so Adam divides one rounding error by another."""
    def one(name):
        difference = (a[name] - b[name]).abs()
        if name.endswith("c_attn.bias"):
            difference[DIM : 2 * DIM] = 0.0
        return (difference.max() / b[name].abs().max()).item()

    return max(one(name) for name in a)


def write(folder, config, shapes, logits, seed, clip, name=None):
    generator = torch.Generator().manual_seed(seed + 100)
    tokens = torch.randint(0, VOCAB, (STEPS, BATCH, T + 1), generator=generator)
    start = initial(shapes, seed)
    losses, gradients, weights = train(logits, start, tokens, clip, torch.float32)
    exact = train(logits, start, tokens, clip, torch.float64)
    print(config["arch"], "float32 against float64: losses", max(abs(a / b - 1) for a, b in zip(losses, exact[0])),
          "gradients", distance(gradients, exact[1]), "weights", distance(weights, exact[2]))
    record = dict(config=config | SHARED, optimizer=OPTIMIZER, clip=clip, batch=BATCH, tokens=tokens.tolist(),
                  losses=losses, tensors=[dict(name=n, shape=list(s)) for n, s in shapes.items()])
    path = pathlib.Path(folder) / (name or config["arch"])
    path.with_suffix(".json").write_text(json.dumps(record) + "\n")
    parts = [values[n].numpy().astype("<f4").ravel() for values in (start, gradients, weights) for n in shapes]
    np.concatenate(parts).tofile(path.with_suffix(".bin"))


def write_layers(folder, arch, logits):
    """The run of write() with rates by layer."""
    path = pathlib.Path(folder) / arch
    record = json.loads(path.with_suffix(".json").read_text())
    values, start = np.fromfile(path.with_suffix(".bin"), "<f4"), {}
    for tensor in record["tensors"]:
        begin = sum(value.numel() for value in start.values())
        count = math.prod(tensor["shape"])
        start[tensor["name"]] = torch.from_numpy(values[begin:begin + count].reshape(tensor["shape"]))
    losses, _, weights = train(logits, start, torch.tensor(record["tokens"]), record["clip"], torch.float32, LAYER_DECAY)
    path = path.with_name("layers_" + arch)
    path.with_suffix(".json").write_text(json.dumps(dict(layer_decay=LAYER_DECAY, losses=losses)) + "\n")
    np.concatenate([weights[name].numpy().astype("<f4").ravel() for name in start]).tofile(path.with_suffix(".bin"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    write(sys.argv[1], GPT2, gpt2_shapes(), gpt2_logits, seed=1, clip=0.0)
    write(sys.argv[1], BARE_GPT2, bare_gpt2_shapes(), gpt2_logits, seed=5, clip=1.0, name="gpt2_without_biases")
    for seed, config in enumerate((LLAMA, QWEN2, QWEN3), start=2):
        write(sys.argv[1], config, llama_shapes(config), functools.partial(llama_logits, config), seed, clip=1.0)
    write_layers(sys.argv[1], "gpt2", gpt2_logits)
    write_layers(sys.argv[1], "llama", functools.partial(llama_logits, LLAMA))
