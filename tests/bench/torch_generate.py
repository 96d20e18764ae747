# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# torch_generate.py MODEL [--make] [--prompt FILE] [--batch N] [--tokens N] [--precision f32|bf16] [--check FILE]:
# transformers' side of generation.sh. --make writes the model, GPT-2 124M's shape with random weights; --check compares the greedy text with
# the JSON line of `kozero generate`; else one timed generation, as a JSON line.

import argparse
import itertools
import json
import sys
import time

import torch
import transformers


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--make", action="store_true")
    parser.add_argument("--prompt")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--precision", choices=["f32", "bf16"], default="f32")
    parser.add_argument("--check")
    return parser.parse_args()


def make(folder):
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    with torch.no_grad():
        for parameter in model.parameters():  # a deviation so large that texts are not one repeated token
            if parameter.dim() > 1:
                parameter.normal_(0.0, 0.06)
    model.save_pretrained(folder)


def continued(model, prompt, count, **options):
    with torch.no_grad():
        text = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, min_new_tokens=count,
                              do_sample=False, use_cache=True, pad_token_id=0, **options)
    return text[:, prompt.shape[1]:]


def check(model, prompt, count, path):
    """KoZeRO's byte tokenizer picks from the first 256 ids."""
    others = list(range(256, model.config.vocab_size))
    expected = continued(model, prompt[:1], count, suppress_tokens=others)[0].tolist()
    with open(path) as file:
        texts = json.load(file)["texts"]
    equal = min(sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(text["ids"], expected)))
                for text in texts)
    print(f"greedy text: the first {equal} of {count} tokens are equal")
    return 0 if equal == count or model.dtype == torch.bfloat16 else 1


def main():
    asked = arguments()
    torch.set_num_threads(2)
    if asked.make:
        return make(asked.model)
    dtype = torch.bfloat16 if asked.precision == "bf16" else torch.float32
    model = transformers.GPT2LMHeadModel.from_pretrained(asked.model, dtype=dtype).eval()
    with open(asked.prompt, "rb") as file:
        prompt = torch.tensor([list(file.read())] * asked.batch)
    if asked.check:
        return check(model, prompt, asked.tokens, asked.check)
    continued(model, prompt, 2)
    start = time.perf_counter()
    continued(model, prompt, 1)
    first = time.perf_counter()
    continued(model, prompt, asked.tokens)
    end = time.perf_counter()
    whole, prompt_only = end - first, first - start
    print(json.dumps({"whole_tokens_per_s": asked.tokens * asked.batch / whole,
                      "step_tokens_per_s": (asked.tokens - 1) * asked.batch / (whole - prompt_only)}))
    return 0


sys.exit(main())
