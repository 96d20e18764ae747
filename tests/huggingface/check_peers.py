# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""check_peers.py KOZERO PRINT_LOGITS FOLDER: import and export against transformers, on random models made here.

For each form of make_folders.py: the imported model's logits are transformers' (relative 1e-4 of the largest), and
its exports (in one file, and in shards) load without custom code, with no missing or unused tensor and with the same
logits; 16-bit exports have torch's rounding; a SentencePiece model gives the library's ids, plain bytes give bytes.
For all four architectures, AutoTokenizer gives the ids of a tokenizer that KoZeRO learned, and torch the loss of eval;
for characters too, with a GPT-2 that has no biases.
"""
import json
import pathlib
import shutil
import string
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
    """Also returns the class that transformers chose, and checks that it found exactly its tensors."""
    model, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype="auto")
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[kind], (str(folder), kind, report[kind])
    return type(model).__name__, make_folders.logits_of(model)


def check_narrow(kozero, run, exported, folder):
    """16-bit exports have the bits of torch's rounding, and transformers loads them as their type."""
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
    """A tokenizer.model is imported and exported, and transformers gives the library's ids with it."""
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


LEARNED = """
[run]
steps = 2
threads = 1
[model]
layers = 1
dim = 32
heads = 4
seq = 64
vocab = 600
[data]
tokenizer = "bpe"
[train]
global_batch = 4
micro_batch = 4
"""
# The published splits and form C differ for digits, blanks, line ends and accents.
WORDS = ["the quick brown fox", " in 2025 and 12345 ways", "don't we'LL I'm", "\r\n\r\n  \n\t x", "e\u0301t\u00e9",
         "  \u4f60\u597d!?...", "\u00bd \u0665\u0666", "::==>>\n\n"]


def trained_ids(kozero, run, text, folder, first=1):
    """KoZeRO's ids of a file with the run's tokenizer, from the first one; number 0 is an end-of-text, if there is one."""
    subprocess.run([kozero, "prepare", str(text), str(folder), "--tokenizer", str(run / "tokenizer.json"),
                    "--val-fraction", "0"], check=True, stdout=subprocess.DEVNULL)
    data = (folder / "train_000000.bin").read_bytes()
    return list(memoryview(data)[1024:].cast("H"))[first:]


def torch_loss(folder, ids, seq):
    """The mean loss over windows of seq + 1 ids, the last one shorter, as `kozero eval` computes it."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    total = 0.0
    with torch.no_grad():
        for first in range(0, len(ids) - 1, seq):
            window = torch.tensor(ids[first:first + seq + 1])
            logits = model(window[None, :-1]).logits[0].double()
            total += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
    return total / (len(ids) - 1)


def check_learned(kozero, root):
    """Learned tokenizers: AutoTokenizer gives KoZeRO's ids, and torch's loss of these ids is that of eval."""
    root.mkdir()
    text = root / "text.txt"
    text.write_bytes("".join(WORDS[i * i % len(WORDS)] + f" {i * 977}" for i in range(900)).encode())
    deck = root / "deck.toml"
    deck.write_text(LEARNED)
    for arch in ("gpt2", "llama", "qwen2", "qwen3"):
        run, out = root / arch, root / f"{arch}-out"
        given = [f'data.text=["{text}"]', f"model.arch={arch}", f"run.dir={run}"]
        subprocess.run([kozero, "train", str(deck), *given], check=True, stdout=subprocess.DEVNULL)
        exported = subprocess.run([kozero, "export", str(run), str(out)], check=True, stdout=subprocess.PIPE, text=True)
        assert "note" not in exported.stdout, exported.stdout
        tokenizer = AutoTokenizer.from_pretrained(out)
        theirs = tokenizer(text.read_bytes().decode(), add_special_tokens=False)["input_ids"]
        ours = trained_ids(kozero, run, text, root / f"{arch}-tokens")
        assert ours == theirs, (arch, len(ours), len(theirs))
        printed = subprocess.run([kozero, "eval", str(run), f'data.text=["{text}"]', "--json"], check=True,
                                 stdout=subprocess.PIPE, text=True)
        ours = json.loads(printed.stdout.splitlines()[-1])["loss"]
        theirs = torch_loss(out, [tokenizer.eos_token_id, *theirs], 64)
        print(f"{arch}: AutoTokenizer's ids are equal; loss {ours:.7f}, torch's {theirs:.7f}")
        assert abs(ours - theirs) <= 1e-6, arch


def check_characters(kozero, root):
    """Characters as tokens, and a GPT-2 without biases: the ids of AutoTokenizer, the loss of torch."""
    root.mkdir()
    text = root / "text.txt"
    text.write_bytes(("".join(WORDS[i % len(WORDS)] + f" {i}" for i in range(300)) + string.printable).encode())
    deck = root / "deck.toml"
    deck.write_text(LEARNED.replace('"bpe"', '"chars"').replace("vocab = 600", ""))
    characters = sorted(set(text.read_bytes().decode()))
    for arch, given in (("gpt2", ["model.bias=false"]), ("llama", [])):
        run, out = root / arch, root / f"{arch}-out"
        given = [*given, f'data.text=["{text}"]', f"model.arch={arch}", f"run.dir={run}"]
        subprocess.run([kozero, "train", str(deck), *given], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([kozero, "export", str(run), str(out)], check=True, stdout=subprocess.DEVNULL)
        tokenizer = AutoTokenizer.from_pretrained(out)
        whole = text.read_bytes().decode()
        theirs = tokenizer(whole)["input_ids"]
        assert theirs == [characters.index(each) for each in whole], arch
        assert trained_ids(kozero, run, text, root / f"{arch}-tokens", first=0) == theirs, arch
        assert tokenizer.decode(theirs) == whole, arch
        printed = subprocess.run([kozero, "eval", str(run), f'data.text=["{text}"]', "--json"], check=True,
                                 stdout=subprocess.PIPE, text=True)
        ours = json.loads(printed.stdout.splitlines()[-1])["loss"]
        kind, _ = loaded_logits(out)
        assert kind == KINDS[arch], kind
        expected = torch_loss(out, theirs, 64)
        print(f"{arch}, characters: ids are equal; loss {ours:.7f}, torch's {expected:.7f}")
        assert abs(ours - expected) <= 1e-6, arch
        tokenizer.save_pretrained(out)  # what tokenizers writes is read too
        again = root / f"{arch}-again"
        subprocess.run([kozero, "import", str(out), str(again)], check=True, stdout=subprocess.DEVNULL)
        assert trained_ids(kozero, again, text, root / f"{arch}-again-tokens", first=0) == theirs, arch


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
        for name, options in (("exported", []), ("shards", ["--max-shard-size", "10KiB"])):
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
    check_learned(kozero, root / "learned")
    check_characters(kozero, root / "characters")
    return 1 if wrong else 0


sys.exit(main())
