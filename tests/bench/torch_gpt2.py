# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# torch_gpt2.py: the peer of gpt2_124m_f32.toml in PyTorch: the same shape, batch, precision and optimizer.
# Prints tokens per second, the median of the steps after two of warm-up.
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

LAYERS, DIM, HEADS, SEQ, BATCH, VOCAB = 12, 768, 12, 256, 4, 50304
torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
torch.manual_seed(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        split = self.qkv(self.norm_1(x)).view(BATCH, SEQ, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*split, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(BATCH, SEQ, DIM))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, DIM), nn.Embedding(SEQ, DIM)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(DIM)

    def forward(self, inputs, targets):
        x = self.norm(self.blocks(self.tokens(inputs) + self.positions.weight))
        return F.cross_entropy(F.linear(x, self.tokens.weight).view(-1, VOCAB), targets.view(-1))


model = Gpt2()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
seconds = []
for _ in range(8):
    window = torch.randint(0, VOCAB, (BATCH, SEQ + 1))
    start = time.perf_counter()
    model(window[:, :-1], window[:, 1:]).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    seconds.append(time.perf_counter() - start)
print(f"{BATCH * SEQ / statistics.median(seconds[2:]):.1f}")
