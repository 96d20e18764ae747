#!/usr/bin/env python3
# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""kozero-cuda on the emulated GPU beside kozero on the host: whole runs of tiny models.

  emulate.py BUILD HOST sample    five runs, a minute: for CI
  emulate.py BUILD HOST whole     every case with two seeds, and the tests labeled gpu_emulator if they are built

BUILD is the build folder of the preset cuda with KOZERO_GPU_EMULATOR=ON, HOST the host's kozero. A case fails if a
program fails, if the emulator reports a finding, or if a loss differs from the host's by more than the bound, which is
0 if bits must be equal. Prints a table: case, seed, seconds, instructions, largest relative difference of a loss.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
DECK = HERE.parent / "bench" / "gpt2_124m_f32.toml"
TINY = """model.preset=none model.layers=2 model.dim=64 model.heads=4 model.vocab=259 model.seq=32 train.global_batch=8
train.micro_batch=2 run.steps=3""".split()
LLAMA = "model.arch=llama model.kv_heads=2 model.ffn=128".split()
QWEN = "model.arch=qwen3 model.kv_heads=2 model.head_dim=32 model.ffn=128".split()
OFFLOAD = "zero.offload_optimizer=host zero.offload_mib=1 model.layers=4".split()  # more parts than buffers
# At least ten times the differences seen with AVX-512 products. Other processors add in another order.
BOUNDS = {"f32": 1e-6, "bf16": 5e-4, "fp16": 1e-4}
# The keys of each run, and other keys for the host's run.
RUNS = {
    "gpt2": [],
    "llama": LLAMA,
    "qwen3": QWEN,
    "gpt2 bf16": ["train.precision=bf16"],
    "gpt2 fp16": ["train.precision=fp16"],
    "llama bf16": LLAMA + ["train.precision=bf16"],
    "llama fp16": LLAMA + ["train.precision=fp16"],
    "qwen3 bf16": QWEN + ["train.precision=bf16"],
    "qwen3 fp16": QWEN + ["train.precision=fp16"],
    "dropout, recompute": ["model.dropout=0.1", "train.recompute=full"],
    "vocabulary in blocks": ["model.vocab_block=64"],
    "untied, in blocks": LLAMA + ["model.vocab_block=64", "model.tie_embeddings=false"],
    "buckets": ["zero.bucket_mib=1", "model.layers=4"],
    "offload": OFFLOAD,
    "offload bf16": OFFLOAD + ["train.precision=bf16"],
    "sgd": ["optim.kind=sgd"],
}
HOST_HAS_NOT = ("zero.offload_",)
SAMPLE = ("gpt2", "llama bf16", "dropout, recompute", "offload")


class Failed(Exception):
    pass


class Emulation:
    def __init__(self, build, host, settings=""):
        self.folder = build / "gpu_emulator"
        self.program, self.host, self.build = build / "kozero-cuda", host, build
        self.settings = settings and "," + settings
        cache = (build / "CMakeCache.txt").read_text()
        self.launcher = re.search(r"^KOZERO_MPIEXEC:INTERNAL=(.*)$", cache, re.M).group(1).split(";")
        self.mock = build / "tests" / "distributed" / "libkozero_nccl_mock.so"

    def run(self, seed, *arguments, ranks=1, settings="", **environment):
        """The output of kozero-cuda, and its thread instructions in millions."""
        launch = [*self.launcher, "-n", str(ranks)] if ranks > 1 else []
        command = [HERE / "emulated.sh", self.folder, *launch, self.program, *arguments]
        more = {"KOZERO_GPU_EMULATOR": f"counts,seed={seed}{settings}{self.settings}", "OMP_NUM_THREADS": "1",
                "CUDA_DEVICE_MAX_CONNECTIONS": "32", **environment}
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env={**os.environ, **more},
                              timeout=600)
        text = done.stdout + done.stderr
        for mutant in sorted(set(re.findall(r"^gpu_emulator: mutant: .*$", text, re.M))):
            print(mutant, flush=True)
        findings = re.findall(r"^gpu_emulator: (?!\d+ launches|mutant).*$", text, re.M)
        if done.returncode != 0 or findings:
            raise Failed("\n".join(findings) or text[-3000:])
        return text, sum(float(n) for n in re.findall(r"([\d.]+) M thread instructions", text))

    def run_host(self, *arguments):
        done = subprocess.run([str(self.host), *map(str, arguments)], capture_output=True, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false"})
        if done.returncode != 0:
            raise Failed("on the host: " + done.stderr[-2000:])
        return done.stdout


def losses(folder):
    return [json.loads(line)["loss"] for line in pathlib.Path(folder, "metrics.jsonl").read_text().splitlines()]


def largest_difference(got, wanted):
    if len(got) != len(wanted):
        raise Failed(f"{len(got)} losses instead of {len(wanted)}")
    return max(abs(a - b) / abs(b) for a, b in zip(got, wanted))


def train_case(emulation, seed, keys):
    arguments = ["train", DECK, *TINY, *keys]
    on_host = [a for a in arguments if not str(a).startswith(HOST_HAS_NOT)]
    emulation.run_host(*on_host, "run.device=host", "run.dir=host")
    _, instructions = emulation.run(seed, *arguments, "run.dir=gpu")
    difference = largest_difference(losses("gpu"), losses("host"))
    bound = BOUNDS[next((k.split("=")[1] for k in keys if k.startswith("train.precision")), "f32")]
    if difference > bound:
        raise Failed(f"a loss differs by {difference:.2g} of the host's (accepted: {bound:g})")
    return instructions, f"{difference:.1e}"


def resume_case(emulation, seed):
    """4 steps in one run, and 2 steps that are resumed in another order of execution: the losses have the same bits."""
    keys = [*TINY, "checkpoint.every=2", "run.steps=4"]
    _, first = emulation.run(seed, "train", DECK, *keys, "run.dir=once", settings=",exact")
    steps = sorted(pathlib.Path("once").rglob("step*2*"))
    if not steps:
        raise Failed("no checkpoint of step 2 in " + ", ".join(str(p) for p in pathlib.Path("once").rglob("*")))
    _, second = emulation.run(seed + 1, "train", DECK, *keys, "run.dir=again", f"checkpoint.resume={steps[0]}",
                              settings=",exact")
    if losses("once")[2:] != losses("again")[-2:]:
        raise Failed(f"losses after the resumption: {losses('again')} instead of {losses('once')}")
    return first + second, "bits"


def order_case(emulation, seed, keys):
    """Threads, warps, blocks and streams in another order: the losses have the same bits."""
    arguments = ["train", DECK, *TINY, *keys]
    instructions = emulation.run(0, *arguments, "run.dir=first")[1]
    instructions += emulation.run(seed + 1, *arguments, "run.dir=second", settings=",exact")[1]
    if losses("first") != losses("second"):
        raise Failed(f"losses {losses('first')} and {losses('second')}")
    return instructions, "bits"


def eval_and_generate_case(emulation, seed):
    """A run of the host, evaluated on the GPU: the same validation loss and the same text."""
    text = "data.text=" + json.dumps([str(HERE / "emulate.py")])
    keys = [*TINY, text, "data.tokenizer=bytes", "data.synthetic=false", "data.val_fraction=0.1"]
    emulation.run_host("train", DECK, *keys, "run.device=host", "run.dir=trained")
    answers = []
    for run in (lambda *a: emulation.run_host(*a, "run.device=host"), lambda *a: emulation.run(seed, *a)[0]):
        loss = float(re.search(r"loss\D*([\d.]+)", run("eval", "trained")).group(1))
        text = run("generate", "trained", "--prompt", "import ", "--tokens", "12", "--temperature", "0")
        answers.append((loss, [line for line in text.splitlines() if line.startswith("import")]))
    if abs(answers[0][0] - answers[1][0]) > 1e-4 or answers[0][1] != answers[1][1]:
        raise Failed(f"host and GPU: {answers}")
    return 0.0, "same text"


def ladder_case(emulation, seed, ranks, keys, nccl):
    """`verify` compares the bits of the stages."""
    environment = {"KOZERO_NCCL_LIBRARY": str(emulation.mock)} if nccl else {}
    backend = f"comm.backend={'nccl' if nccl else 'auto'}"
    verify = ["verify", DECK, *TINY, *keys, backend, "--steps", "2"]
    return emulation.run(seed, *verify, ranks=ranks, **environment)[1], "bits"


def cases(which, emulation):
    for name, keys in RUNS.items():
        if which == "whole" or name in SAMPLE:
            yield name, lambda seed, keys=keys: train_case(emulation, seed, keys)
    if which == "sample":
        yield "stages on 2 ranks", lambda seed: ladder_case(emulation, seed, 2, [], False)
        return
    for name in ("gpt2", "llama bf16", "qwen3 bf16", "dropout, recompute", "vocabulary in blocks", "offload"):
        yield f"other order: {name}", lambda seed, keys=RUNS[name]: order_case(emulation, seed, keys)
    yield "checkpoint and resume", lambda seed: resume_case(emulation, seed)
    yield "eval, generate", lambda seed: eval_and_generate_case(emulation, seed)
    for ranks in (1, 2, 4):
        for exact in ("true", "false"):
            for nccl in (False, True) if emulation.mock.exists() else (False,):
                name = f"stages on {ranks} ranks, exact {exact}" + (", NCCL mock" if nccl else "")
                yield name, lambda seed, a=(ranks, [f"comm.exact={exact}"], nccl): ladder_case(emulation, seed, *a)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("host", type=pathlib.Path)
    parser.add_argument("which", choices=("sample", "whole"))
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--seeds", default="", help="such as 0,7")
    parser.add_argument("--settings", default="", help="more of KOZERO_GPU_EMULATOR, such as skip=3")
    given = parser.parse_args()
    emulation = Emulation(given.build.resolve(), given.host.resolve(), given.settings)
    seeds = [int(s) for s in given.seeds.split(",")] if given.seeds else [7] if given.which == "sample" else [0, 7]
    failures = 0
    print(f"{'case':42} seed      s  M instr.  loss differs")
    for name, case in cases(given.which, emulation):
        if given.only not in name:
            continue
        for seed in seeds:
            begin = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                before = os.getcwd()
                os.chdir(folder)
                try:
                    instructions, difference = case(seed)
                    seconds = time.monotonic() - begin
                    print(f"{name:42} {seed:4} {seconds:6.1f} {instructions:9.1f}  {difference}", flush=True)
                except (Failed, subprocess.TimeoutExpired) as failure:
                    failures += 1
                    print(f"{name:42} {seed:4} FAILED: {failure}", flush=True)
                finally:
                    os.chdir(before)
    if given.which == "whole" and not given.only:
        if not emulation.mock.exists():
            print("not run: stages with the NCCL mock, which needs KOZERO_TESTS=ON")
        tests = subprocess.run(["ctest", "--test-dir", given.build, "-L", "gpu_emulator", "--output-on-failure",
                                "--no-tests=error"], check=False)
        failures += tests.returncode != 0
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
