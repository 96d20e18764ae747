# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""check_peers.py KOZERO PRINT_LOGITS FOLDER: import and export against transformers, on random models made here.

For each form of make_folders.py: the imported model's logits are transformers' (relative 1e-4 of the largest), and
what is exported from it (in one file, and in shards) loads with no code, no tensor missing or left over, with the same
logits; 16-bit exports hold torch's own rounding; a SentencePiece model gives the library's ids, plain bytes give bytes.
"""
import json
import pathlib
import shutil
import subprocess
import sys

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import make_folders

BOUND = 1e-4
KINDS = dict(gpt2="GPT2LMHeadModel", llama="LlamaForCausalLM", llama3="LlamaForCausalLM", qwen2="Qwen2ForCausalLM",
             qwen3="Qwen3ForCausalLM")


def distance(ours, theirs):
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / max(abs(b) for b in theirs)


def loaded_logits(folder):
    """Also says which class transformers chose, and that it found exactly its tensors."""
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype="auto")
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[kind], (str(folder), kind, report[kind])
    return type(model).__name__, make_folders.logits_of(model)


def check_narrow(kozero, run, exported, folder):
    """16-bit exports hold what torch rounds to, in bits, and transformers takes them as their type."""
    exact = load_file(exported / "model.safetensors")
    for name, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16)):
        out = folder / name
        subprocess.run([kozero, "export", str(run), str(out), "--dtype", name], check=True, stdout=subprocess.DEVNULL)
        narrow = load_file(out / "model.safetensors")
        assert narrow.keys() == exact.keys(), (folder, name)
        for tensor, values in exact.items():
            assert torch.equal(narrow[tensor], values.to(dtype)), (str(folder), name, tensor)
        assert AutoModelForCausalLM.from_pretrained(out, dtype="auto").dtype == dtype, (str(folder), name)


def check_sentencepiece(kozero, root):
    """A tokenizer.model goes in and out, and transformers makes the library's ids of it."""
    try:
        import google.protobuf  # noqa: F401  transformers reads the model by it
        import sentencepiece
    except ImportError as missing:
        print(f"tokenizer.model: not compared, {missing}")
        return
    model = pathlib.Path(__file__).parent.parent / "data/tokenizers/bpe.model"
    folder = root / "with-model"
    make_folders.save(folder, make_folders.randomized(make_folders.llama(vocab_size=500), 20))
    shutil.copy(model, folder / "tokenizer.model")
    subprocess.run([kozero, "import", str(folder), str(folder / "run")], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([kozero, "export", str(folder / "run"), str(folder / "out")], check=True, stdout=subprocess.DEVNULL)
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(model))
    tokenizer = AutoTokenizer.from_pretrained(folder / "out")
    for text in ("the quick brown fox", "x qzq", "a\nb", "line 1: the lazy dog.", "\u00e9t\u00e9 \u4f60"):
        assert tokenizer(text)["input_ids"] == theirs.encode(text), text
    print("tokenizer.model: ids equal")


def check_bytes(kozero, root):
    """The export of a run on plain bytes: AutoTokenizer's ids are the text's bytes."""
    folder = root / "with-bytes"
    make_folders.save(folder, make_folders.randomized(make_folders.llama(vocab_size=256), 21))
    (folder / "tokenizer.json").write_text('{"kozero_tokenizer": "bytes"}\n')
    subprocess.run([kozero, "import", str(folder), str(folder / "run")], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([kozero, "export", str(folder / "run"), str(folder / "out")], check=True, stdout=subprocess.DEVNULL)
    tokenizer = AutoTokenizer.from_pretrained(folder / "out")
    for text in ("the quick brown fox", "a'll don't 123  ", "\u00e9t\u00e9 \u4f60\n\t <|endoftext|> \u0100"):
        ids = tokenizer(text)["input_ids"]
        assert ids == list(text.encode()), (text, ids)
        assert tokenizer.decode(ids) == text, text
    print("bytes: ids equal")


def main():
    kozero, print_logits, root = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    torch.set_num_threads(1)
    make_folders.all_forms(root)
    wrong = 0
    for folder in sorted(root.iterdir()):
        wanted = json.loads((folder / "logits.json").read_text())
        run = folder / "imported"
        subprocess.run([kozero, "import", str(folder), str(run)], check=True, stdout=subprocess.DEVNULL)
        tokens = [str(token) for token in wanted["tokens"]]
        printed = subprocess.run([print_logits, str(folder), str(run), *tokens], check=True, stdout=subprocess.PIPE,
                                 text=True)
        found = {"imported": distance([float(word) for word in printed.stdout.split()], wanted["logits"])}
        for name, options in (("exported", []), ("shards", ["--max-shard-mib", "0.01"])):
            out = folder / name
            subprocess.run([kozero, "export", str(run), str(out), *options], check=True, stdout=subprocess.DEVNULL)
            kind, logits = loaded_logits(out)
            assert kind == KINDS[folder.name.split("-")[0]], kind
            found[name] = distance(logits, wanted["logits"])
        check_narrow(kozero, run, folder / "exported", folder)
        print(folder.name, *(f"{name} {value:.2e}" for name, value in found.items()))
        wrong += any(not value <= BOUND for value in found.values())
    check_sentencepiece(kozero, root)
    check_bytes(kozero, root)
    return 1 if wrong else 0


sys.exit(main())
