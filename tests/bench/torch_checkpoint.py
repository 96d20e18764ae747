# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# torch_checkpoint.py FOLDER RUNS: torch.distributed.checkpoint of GPT-2 124M's state in f32 (parameters and two
# moments, sharded over 2 ranks by rows), as `kozero bench checkpoint` saves it. Prints a line per run: seconds of a
# synced save on the slowest rank, and seconds for which an asynchronous save blocks its caller.
import os
import shutil
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

LAYERS, DIM, SEQ, VOCAB, RANKS = 12, 768, 256, 50304, 2


def shapes():
    yield "wte", (VOCAB, DIM)
    yield "wpe", (SEQ, DIM)
    for layer in range(LAYERS):
        for name, shape in (("ln_1.weight", (DIM,)), ("ln_1.bias", (DIM,)), ("c_attn.weight", (DIM, 3 * DIM)),
                            ("c_attn.bias", (3 * DIM,)), ("attn.c_proj.weight", (DIM, DIM)), ("attn.c_proj.bias", (DIM,)),
                            ("ln_2.weight", (DIM,)), ("ln_2.bias", (DIM,)), ("c_fc.weight", (DIM, 4 * DIM)),
                            ("c_fc.bias", (4 * DIM,)), ("mlp.c_proj.weight", (4 * DIM, DIM)), ("mlp.c_proj.bias", (DIM,))):
            yield f"h.{layer}.{name}", shape
    yield "ln_f.weight", (DIM,)
    yield "ln_f.bias", (DIM,)


def slowest(seconds):
    value = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return value.item()


def clear(rank, folder):
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    dist.barrier()


def work(rank, folder, runs):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511"}
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    mesh = init_device_mesh("cpu", (RANKS,))
    state = {f"{group}.{name}": distribute_tensor(torch.rand(shape), mesh, [Shard(0)])
             for group in ("parameters", "exp_avg", "exp_avg_sq") for name, shape in shapes()}
    for _ in range(runs):
        clear(rank, folder)
        start = time.perf_counter()
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, sync_files=True))
        saved = slowest(time.perf_counter() - start)
        clear(rank, folder)
        start = time.perf_counter()
        future = dcp.async_save(state, storage_writer=dcp.FileSystemWriter(folder, sync_files=True))
        stalled = slowest(time.perf_counter() - start)
        getattr(future, "upload_completion", future).result()
        if rank == 0:
            print(f"{saved:.3f} {stalled:.3f}", flush=True)
    clear(rank, folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    multiprocessing.spawn(work, (sys.argv[1], int(sys.argv[2])), nprocs=RANKS)
