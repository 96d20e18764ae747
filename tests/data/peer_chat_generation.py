# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# peer_chat_generation.py KOZERO FOLDER: conversations of `kozero generate --chat` beside transformers. For each published
# template a tiny random Llama is asked in turns; the ids of every prompt must be those of apply_chat_template with
# add_generation_prompt, and every greedy answer, to its stop token, that of generate with the same repetition penalty.
# Needs what peer_chat.py needs, and torch.

import json
import pathlib
import random
import shutil
import subprocess
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import peer_chat

NEW = 12
PENALTY = 1.2
STOPS = {"llama3": ["<|eot_id|>", "<|end_of_text|>"]}


def make_model(folder, tokenizer, stop):
    """Random weights under which the answer's end is picked often, and no other special token ever."""
    torch.manual_seed(3)
    model = LlamaForCausalLM(LlamaConfig(
        num_hidden_layers=2, hidden_size=32, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48,
        max_position_embeddings=1024, vocab_size=len(tokenizer), tie_word_embeddings=False, bos_token_id=0, eos_token_id=0,
        pad_token_id=0)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(torch.randn(weight.shape) * 0.3 + (1.0 if weight.dim() == 1 else 0.0))
        for token in tokenizer.get_added_vocab().values():
            model.lm_head.weight[token] *= 2.5 if token == stop else 0.0
    model.save_pretrained(folder)
    return model


def question(chance):
    return "What " + " ".join(peer_chat.text(chance, chance.randint(1, 6)).split("\n")) + chance.choice(["?", " ", ""])


def chat(kozero, folder, questions, options):
    asked = subprocess.run(
        [kozero, "generate", folder, "--chat", "--json", "--temperature", "0", "--tokens", str(NEW), "--context", "1024",
         "--repetition-penalty", str(PENALTY), *options], check=True, input="".join(f"{each}\n" for each in questions),
        text=True, stdout=subprocess.PIPE)
    return json.loads(asked.stdout)["turns"]


def compare(name, turns, model, tokenizer, messages, keys, stops):
    ended = tokens = 0
    for turn in turns:
        messages.append({"role": "user", "content": turn["question"]})
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, **keys)["input_ids"]
        if turn["prompt_ids"] != prompt:
            raise SystemExit(f"{name}: prompt of {messages}\n ours   {turn['prompt_ids']}\n theirs {prompt}")
        ids = torch.tensor([prompt])
        with torch.no_grad():
            theirs = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False,
                                    repetition_penalty=PENALTY, eos_token_id=stops, pad_token_id=0)[0, len(prompt):].tolist()
        ours = turn["ids"] + ([theirs[-1]] if turn["end"] == "end_of_answer" and theirs[-1] in stops else [])
        if ours != theirs:
            raise SystemExit(f"{name}: answer to {messages}\n ours   {turn['ids']}, {turn['end']}\n theirs {theirs}")
        messages.append({"role": "assistant", "content": turn["answer"]})
        ended += turn["end"] == "end_of_answer"
        tokens += len(theirs)
    print(f"{name}: {len(turns)} turns, {tokens} tokens, {ended} answers ended by a stop token: equal", flush=True)
    if not 0 < ended < len(turns):
        raise SystemExit(f"{name}: {ended} of {len(turns)} answers ended, which tests too little")


def main():
    kozero, root = sys.argv[1], pathlib.Path(sys.argv[2]).absolute()
    shutil.rmtree(root, ignore_errors=True)
    torch.set_num_threads(1)
    qwen = peer_chat.make_tokenizer(root / "qwen", peer_chat.QWEN, True, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                                    ["<think>", "</think>"], None)
    llama = peer_chat.make_tokenizer(
        root / "llama", peer_chat.LLAMA3, False,
        ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], [],
        "<|begin_of_text|>")
    chance = random.Random(5)
    for number, (name, source) in enumerate(peer_chat.published().items()):
        template = name.split(" ")[0]
        tokenizer, at = (llama, root / "llama") if template == "llama3" else (qwen, root / "qwen")
        stops = tokenizer.convert_tokens_to_ids(STOPS.get(template, ["<|im_end|>", "<|endoftext|>"]))
        tokenizer.chat_template = source
        (at / "tokenizer_config.json").write_text(json.dumps({"chat_template": source}))
        model = make_model(at, tokenizer, stops[0])
        for system in (None, "Be brief."):
            thinks = template != "qwen3" or system is None
            options = ([] if system is None else ["--system", system]) + ([] if thinks else ["--no-thinking"])
            turns = chat(kozero, at, [question(chance) for _ in range(12)], options)
            messages = [] if system is None else [{"role": "system", "content": system}]
            compare(name, turns, model, tokenizer, messages, {} if thinks else dict(enable_thinking=False), stops)
    return 0


sys.exit(main())
