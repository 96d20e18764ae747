# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# peer_chat.py KOZERO FOLDER: the tokens and the masks of `kozero prepare --chat-template` beside those of transformers'
# apply_chat_template, on generated conversations. Ids are compared with the published templates, which the wheel trl
# carries, masks with the templates below, whose answers have generation markers. Both must be equal, and `auto` must
# find the template by the published text. Needs the wheels transformers, tokenizers, jinja2 and trl (--no-deps).

import array
import importlib.util
import json
import pathlib
import random
import subprocess
import sys

import transformers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|")

CHATML = """{% for message in messages %}{{'<|im_start|>' + message['role'] + '
' + message['content'] + '<|im_end|>' + '
'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant
' }}{% endif %}"""
QWEN2 = CHATML.replace("messages %}{{'", """messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system
You are a helpful assistant.<|im_end|>
' }}{% endif %}{{'""")

# With generation markers, written for this test. A conversation's default system message is its first line.
MARKED_CHATML = """{%- if messages[0].role != 'system' and default_system %}
    {{- '<|im_start|>system\n' + default_system + '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{- message.content + '<|im_end|>' }}{% endgeneration %}
    {%- else %}
        {{- message.content + '<|im_end|>' }}
    {%- endif %}
    {{- '\n' }}
{%- endfor %}"""
MARKED_LLAMA3 = """{{- bos_token }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
    {%- if message.role == 'assistant' %}
        {%- generation %}{{- message.content | trim + '<|eot_id|>' }}{% endgeneration %}
    {%- else %}
        {{- message.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}"""
# Reasoning is trained, an empty think block is not.
MARKED_QWEN3 = """{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages %}
    {%- if message.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}
{%- endfor %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if message.role == 'assistant' %}
        {%- set thought = '' %}
        {%- set content = message.content %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or thought) %}
            {%- set content = content.lstrip('\n') %}
            {%- if thought.strip('\n') %}
                {%- set content = '<think>\n' + thought.strip('\n') + '\n</think>\n\n' + content %}
            {%- else %}
                {{- '<think>\n\n</think>\n\n' }}
            {%- endif %}
        {%- endif %}
        {%- generation %}{{- content + '<|im_end|>' }}{% endgeneration %}
    {%- else %}
        {{- message.content + '<|im_end|>' }}
    {%- endif %}
    {{- '\n' }}
{%- endfor %}"""

WORDS = ["the", "Hello", "world", "caf\u00e9", "cafe\u0301", "12345", "\u4f60\u597d", "\U0001f600", "it's", "x=1;", "...", "\n", "\n\n",
         "  ", "\t", "end.\n", "\u00a0", "\u3000", "<b>", "\u1e9b\u0323"]


def published():
    folder = pathlib.Path(importlib.util.find_spec("trl").submodule_search_locations[0]) / "chat_templates"
    text = {name: (folder / f"{name}.jinja").read_text() for name in ("llama3", "qwen2_5", "qwen3", "qwen3_instruct_2507")}
    return {"chatml": CHATML, "qwen2": QWEN2, "qwen2.5": text["qwen2_5"], "qwen3": text["qwen3"], "llama3": text["llama3"],
            "chatml of 2507": text["qwen3_instruct_2507"]}


def text(chance, size):
    return chance.choice(["", "", " ", "\n", "\u2003"]) + "".join(
        chance.choice(WORDS) + chance.choice([" ", " ", "", "\n"]) for _ in range(size)) + chance.choice(["", " ", "\n"])


def conversation(chance):
    messages = [{"role": "system", "content": text(chance, 5)}] if chance.random() < 0.5 else []
    for _ in range(chance.randint(1, 4)):
        messages += [{"role": "user", "content": text(chance, chance.randint(0, 9))}] * chance.choice([1, 1, 1, 2])
        for _ in range(chance.choice([1, 1, 1, 2])):
            answer = text(chance, chance.randint(1, 9))
            if chance.random() < 0.3:
                answer = "<think>\n" + text(chance, chance.choice([0, 4])) + "\n</think>\n\n" + answer
            messages.append({"role": "assistant", "content": answer})
    return messages


def make_tokenizer(folder, split, nfc, special, added, begin):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    chance = random.Random(1)
    tokenizer.train_from_iterator([text(chance, 50) + "user\nassistant\nsystem\n" for _ in range(200)], trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens([AddedToken(each, normalized=False) for each in special])
    tokenizer.add_tokens([AddedToken(each, normalized=False) for each in added])
    if begin:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", special_tokens=[(begin, tokenizer.token_to_id(begin))])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=begin or special[0])


def numbers_in(path, kind, offset=0):
    return list(array.array(kind, path.read_bytes()[offset:]))


def prepared(kozero, folder, template):
    """(ids, mask) of each conversation, without the end-of-text token that begins it."""
    out = folder / "out"
    subprocess.run([kozero, "prepare", folder / "a.jsonl", out, "--tokenizer", folder / "tokenizer.json", "--val-fraction", "0",
                    "--chat-template", template], check=True, stdout=subprocess.DEVNULL)
    shard = out / "train_000000.bin"
    ids = numbers_in(shard, "H", 1024)
    bounds = numbers_in(pathlib.Path(f"{shard}.answers"), "Q")
    mask = [0] * len(ids)
    for first, end in zip(bounds[::2], bounds[1::2]):
        mask[first:end] = [1] * (end - first)
    starts = numbers_in(pathlib.Path(f"{shard}.documents"), "Q") + [len(ids)]
    return [(ids[first:end], mask[first:end]) for first, end in zip(starts, starts[1:])]


def compare(kozero, folder, name, source, tokenizer, conversations):
    template = name.split(" ")[0]
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": source}))
    (folder / "a.jsonl").write_text("".join(json.dumps({"messages": each}) + "\n" for each in conversations))
    marked = {"llama3": MARKED_LLAMA3, "qwen3": MARKED_QWEN3}.get(template, MARKED_CHATML)
    system = {"qwen2": "You are a helpful assistant.",
              "qwen2.5": "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."}.get(template, "")
    wrong = trained = total = 0
    ours = prepared(kozero, folder, "auto")
    if json.loads((folder / "out/tokens.json").read_text())["chat_template"] != template:
        raise SystemExit(f"{name}: auto found another template")
    for messages, (ids, mask) in zip(conversations, ours, strict=True):
        expected = tokenizer.apply_chat_template(messages, chat_template=source, return_dict=True)["input_ids"]
        theirs = tokenizer.apply_chat_template(messages, chat_template=marked, default_system=system, return_dict=True,
                                               return_assistant_tokens_mask=True)
        if template != "llama3":  # whose first token begins the document too
            ids, mask = ids[1:], mask[1:]
        trained, total = trained + sum(mask), total + len(mask)
        if ids == expected and ids == theirs["input_ids"] and mask == theirs["assistant_masks"]:
            continue
        wrong += 1
        if wrong == 1:
            print(f"{name}: {json.dumps(messages)}\n ours   {ids}\n theirs {expected}\n marked {theirs['input_ids']}\n"
                  f" ours   {mask}\n theirs {theirs['assistant_masks']}")
    print(f"{name}: {len(conversations)} conversations, {total} tokens, {trained} trained, {wrong} differ", flush=True)
    return wrong == 0


def main():
    kozero, folder = sys.argv[1], pathlib.Path(sys.argv[2]).absolute()
    qwen = make_tokenizer(folder / "qwen", QWEN, True, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                          ["<think>", "</think>"], None)
    llama = make_tokenizer(folder / "llama", LLAMA3, False, ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
                                                             "<|end_header_id|>", "<|eot_id|>"], [], "<|begin_of_text|>")
    chance = random.Random(7)
    conversations = [conversation(chance) for _ in range(400)]
    equal = True
    for name, source in published().items():
        tokenizer, at = (llama, folder / "llama") if name == "llama3" else (qwen, folder / "qwen")
        equal &= compare(kozero, at, name, source, tokenizer, conversations)
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
