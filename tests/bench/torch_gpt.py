# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# torch_gpt.py: the peer of tests/bench/peers.sh and tests/gpu.sh in PyTorch: GPT-2's or Llama's shape, one process
# or several (torchrun): DDP, ZeroRedundancyOptimizer (stage 1), FSDP2 (stage 3), DeepSpeed's ZeRO 1 to 3. Prints one JSON line:
# tokens per second over all processes, the median of the steps after the warm-up, and the peak resident MiB of a process.
import argparse
import json
import os
import resource
import statistics
import time

import torch
import torch.distributed
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--arch", choices=["gpt2", "llama"], default="gpt2")
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--dim", type=int, default=768)
parser.add_argument("--heads", type=int, default=12)
parser.add_argument("--kv-heads", type=int, default=0, help="0: as many as heads")
parser.add_argument("--ffn", type=int, default=0, help="0: 4 dim, of a Llama the next multiple of 64 of 8/3 dim")
parser.add_argument("--vocab", type=int, default=50304)
parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
parser.add_argument("--batch", type=int, default=4, help="sequences of a process")
parser.add_argument("--seq", type=int, default=256)
parser.add_argument("--dtype", choices=["f32", "bf16"], default="f32")
parser.add_argument("--mode", choices=["single", "ddp", "zero1", "fsdp2", "deepspeed1", "deepspeed2", "deepspeed3"],
                    default="single")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--steps", type=int, default=6)
parser.add_argument("--warmup", type=int, default=2, help="steps; then two seconds of steps, if one process is on a GPU")
parser.add_argument("--threads", type=int, default=2)
options = parser.parse_args()
llama = options.arch == "llama"
LAYERS, DIM, HEADS, VOCAB = options.layers, options.dim, options.heads, options.vocab
KV_HEADS, HEAD_DIM = options.kv_heads or HEADS, DIM // HEADS


def norm():
    return nn.RMSNorm(DIM, eps=1e-5) if llama else nn.LayerNorm(DIM)


def turned(x, cosines, sines):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), dim=-1).to(x.dtype)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.sizes = [HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM]
        self.qkv = nn.Linear(DIM, sum(self.sizes), bias=not llama)
        self.out = nn.Linear(DIM, DIM, bias=not llama)

    def forward(self, x, angles):
        batch = x.shape[0]
        heads = [part.view(batch, options.seq, -1, HEAD_DIM).transpose(1, 2) for part in self.qkv(x).split(self.sizes, dim=-1)]
        if llama:
            heads[:2] = [turned(part, *angles) for part in heads[:2]]
        attended = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=KV_HEADS != HEADS)
        return self.out(attended.transpose(1, 2).reshape(batch, options.seq, DIM))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        hidden = options.ffn or ((8 * DIM // 3 + 63) // 64 * 64 if llama else 4 * DIM)
        self.up = nn.Linear(DIM, 2 * hidden if llama else hidden, bias=not llama)
        self.down = nn.Linear(hidden, DIM, bias=not llama)

    def forward(self, x):
        if not llama:
            return self.down(F.gelu(self.up(x), approximate="tanh"))
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2, self.attention, self.mlp = norm(), norm(), Attention(), FeedForward()

    def forward(self, x, angles):
        x = x + self.attention(self.norm_1(x), angles)
        return x + self.mlp(self.norm_2(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, DIM)
        self.positions = None if llama else nn.Embedding(options.seq, DIM)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), norm()
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
        self.head.weight = self.tokens.weight
        angle = torch.outer(torch.arange(options.seq), 10000.0 ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM))
        self.register_buffer("cosines", angle.cos(), persistent=False)
        self.register_buffer("sines", angle.sin(), persistent=False)

    def forward(self, inputs, targets):
        x = self.tokens(inputs)
        if self.positions is not None:
            x = x + self.positions.weight
        for block in self.blocks:
            x = block(x, (self.cosines, self.sines))
        return F.cross_entropy(self.head(self.norm(x)).float().view(-1, VOCAB), targets.reshape(-1))


def sharded(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy()
    if options.dtype == "bf16":
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


class DeepSpeed:
    """A step of DeepSpeed's engine, which holds model and optimizer."""

    def __init__(self, model):
        import deepspeed
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        settings = {"train_micro_batch_size_per_gpu": options.batch, "gradient_clipping": 1.0,
                    "bf16": {"enabled": options.dtype == "bf16"}, "zero_allow_untested_optimizer": True,
                    "zero_optimization": {"stage": int(options.mode[-1])}, "steps_per_print": 1 << 30}
        self.engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)

    def step_seconds(self):
        window = torch.randint(0, VOCAB, (options.batch, options.seq + 1))
        start = time.perf_counter()
        self.engine.backward(self.engine(window[:, :-1], window[:, 1:]))
        self.engine.step()
        return time.perf_counter() - start


def optimizer_of(model):
    if options.mode != "zero1":
        return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    from torch.distributed.optim import ZeroRedundancyOptimizer
    return ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, foreach=True, lr=1e-4)


def wait_for_device():
    if options.device == "cuda":
        torch.cuda.synchronize()


def step_seconds(model, optimizer):
    window = torch.randint(0, VOCAB, (options.batch, options.seq + 1), device=options.device)
    wait_for_device()
    start = time.perf_counter()
    with torch.autocast(options.device, torch.bfloat16, enabled=options.dtype == "bf16"):
        loss = model(window[:, :-1], window[:, 1:])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    wait_for_device()
    return time.perf_counter() - start


def main():
    torch.set_num_threads(options.threads)
    of_deepspeed = options.mode.startswith("deepspeed")
    if of_deepspeed:
        os.environ["DS_ACCELERATOR"] = "cpu"
        import deepspeed
        deepspeed.init_distributed("gloo")
    elif options.mode != "single":
        torch.distributed.init_process_group("gloo")
    ranks = torch.distributed.get_world_size() if options.mode != "single" else 1
    torch.manual_seed(1)
    model = Gpt().to(options.device)
    if of_deepspeed:
        engine = DeepSpeed(model)
        seconds = [engine.step_seconds() for _ in range(options.warmup + options.steps)][options.warmup:]
    else:
        if options.mode == "fsdp2":
            model = sharded(model)
        elif options.mode != "single":
            model = nn.parallel.DistributedDataParallel(model)
        optimizer = optimizer_of(model)
        stepped = torch.compile(model) if options.compile else model
        for _ in range(options.warmup):
            step_seconds(stepped, optimizer)
        end = time.perf_counter() + (2 if options.device == "cuda" and options.mode == "single" else 0)
        while time.perf_counter() < end:
            step_seconds(stepped, optimizer)
        seconds = [step_seconds(stepped, optimizer) for _ in range(options.steps)]
    speed = ranks * options.batch * options.seq / statistics.median(seconds)
    if int(os.environ.get("RANK", 0)) == 0:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        row = {"tokens_per_s": round(speed, 1), "peak_rss_mib": round(peak)}
        if options.device == "cuda":
            row["peak_device_mib"] = round(torch.cuda.max_memory_allocated() / 1024**2)
        print(json.dumps(row))
    if options.mode != "single":
        torch.distributed.destroy_process_group()


main()
