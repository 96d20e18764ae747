# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""check_choices.py KOZERO FOLDER: `kozero eval --choices` against transformers and lm-evaluation-harness.

Trains a tiny model of two architectures, exports it, and scores the same items with KoZeRO's weights and with the
exported folder: each log-likelihood by transformers (1e-4), and, if this python has lm_eval, acc, acc_norm and each
item's choice by lm_eval with a local task.
"""
import json
import os
import pathlib
import random
import subprocess
import sys

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import numpy
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SEQ = 48
DECK = f"""
[run]
steps = 40
threads = 1
[model]
layers = 2
dim = 32
heads = 4
seq = {SEQ}
vocab = 400
[data]
tokenizer = "bpe"
val_fraction = 0.0
[train]
global_batch = 8
micro_batch = 8
[optim]
lr = 3e-3
"""
WORDS = "the fox dog quick brown lazy jumps over again and \u00e9t\u00e9 na\u00efve \u4f60\u597d 12 345 don't :-) end.".split()
BLANKS = [" ", "  ", "\n", " \t", "\u00a0", "\u3000 "]


def texts(generator, words):
    return " ".join(generator.choice(WORDS) for _ in range(words))


def items(generator):
    """Items of 2 to 5 endings; contexts that are empty, end with white space, or are longer than the model sees."""
    for number in range(150):
        context = texts(generator, generator.choice([1, 3, 8, 20, 90]))
        if number % 10 == 0:
            context = ""
        elif number % 3 == 0:
            context += generator.choice(BLANKS)
        endings = [texts(generator, generator.randint(1, 7)) for _ in range(generator.randint(2, 5))]
        yield dict(ctx=context, endings=endings, label=generator.randrange(len(endings)), activity_label="x")


def tokens_of(tokenizer, context, ending):
    """lm-evaluation-harness's rule, written out."""
    encode = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
    bare = context.rstrip()
    before = encode(bare) if bare else []
    scored = encode(context + " " + ending)[len(before):]
    if not before:
        before = [tokenizer.eos_token_id]
    return before, scored


def log_likelihood(model, tokenizer, context, ending):
    before, scored = tokens_of(tokenizer, context, ending)
    tokens = torch.tensor((before + scored)[-(SEQ + 1):])
    with torch.no_grad():
        logits = model(tokens[None, :-1]).logits[0, -len(scored):].double()
    return torch.log_softmax(logits, -1).gather(1, tokens[-len(scored):, None]).sum().item()


def check_with_transformers(folder, rows, ours):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    worst = 0.0
    for row, item in zip(rows, ours["items"], strict=True):
        theirs = [log_likelihood(model, tokenizer, row["ctx"], ending) for ending in row["endings"]]
        worst = max(worst, *(abs(a - b) for a, b in zip(item["log_likelihoods"], theirs, strict=True)))
        assert item["choice"] == numpy.argmax(theirs), (row, item, theirs)
        lengths = [len(ending) for ending in row["endings"]]
        assert item["choice_norm"] == numpy.argmax(numpy.array(theirs) / lengths), (row, item, theirs)
    print(f"{folder.name}: {len(rows)} items, log-likelihoods differ by at most {worst:.1e} from transformers")
    assert worst < 1e-4


def check_with_lm_eval(folder, data, ours):
    try:
        import lm_eval
        from lm_eval.tasks import TaskManager
    except ImportError as missing:
        print(f"lm_eval: not compared, {missing}")
        return
    tasks = folder.parent / f"{folder.name}-tasks"
    tasks.mkdir()
    (tasks / "local.yaml").write_text(f"""
task: local_choices
dataset_path: json
dataset_kwargs: {{data_files: {{test: "{data}"}}, cache_dir: "{tasks}/cache"}}
output_type: multiple_choice
test_split: test
doc_to_text: ctx
doc_to_choice: endings
doc_to_target: label
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
""")
    result = lm_eval.simple_evaluate(
        model="hf", model_args=dict(pretrained=str(folder), dtype="float32", max_length=SEQ), device="cpu", batch_size=7,
        tasks=["local_choices"], task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        log_samples=True, bootstrap_iters=0)
    theirs = result["results"]["local_choices"]
    samples = sorted(result["samples"]["local_choices"], key=lambda sample: sample["doc_id"])
    for sample, item in zip(samples, ours["items"], strict=True):
        scores = [float(answer[0][0]) for answer in sample["resps"]]
        assert numpy.argmax(scores) == item["choice"], (sample, item)
        assert sample["acc"] == (item["choice"] == item["label"]), (sample, item)
        assert sample["acc_norm"] == (item["choice_norm"] == item["label"]), (sample, item)
    found = [theirs["acc,none"], theirs["acc_norm,none"]]
    print(f"{folder.name}: acc {ours['acc']} acc_norm {ours['acc_norm']}, lm_eval {lm_eval.__version__} {found}")
    assert found == [ours["acc"], ours["acc_norm"]]


def main():
    kozero, root = sys.argv[1], pathlib.Path(sys.argv[2]).absolute()
    torch.set_num_threads(1)
    generator = random.Random(3)
    text, deck, data = root / "text.txt", root / "deck.toml", root / "items.jsonl"
    text.write_text("\n".join(texts(generator, 12) for _ in range(400)))
    deck.write_text(DECK)
    rows = list(items(generator))
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for arch in ("gpt2", "qwen3"):
        run, out = root / arch, root / f"{arch}-out"
        subprocess.run([kozero, "train", str(deck), f'data.text=["{text}"]', f"model.arch={arch}", f"run.dir={run}"],
                       check=True, stdout=subprocess.DEVNULL)
        subprocess.run([kozero, "export", str(run), str(out)], check=True, stdout=subprocess.DEVNULL)
        printed = subprocess.run([kozero, "eval", str(run), "--choices", str(data), "--json"], check=True,
                                 stdout=subprocess.PIPE, text=True)
        ours = json.loads(printed.stdout)
        check_with_transformers(out, rows, ours)
        check_with_lm_eval(out, data, ours)
    return 0


sys.exit(main())
