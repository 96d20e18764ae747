# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""check_peft.py KOZERO FOLDER: adapters out to Hugging Face's PEFT and in from it, on random models made here.

For GPT-2, Llama, Qwen2 and Qwen3: PEFT loads exported adapters without a missing or unused tensor, with the loss of
`eval` and the logits of the merged export in transformers (relative 1e-5); adapters made by PEFT give `eval` and the
first step of training PEFT's loss; 16-bit merges have torch's rounding of the sum; what PEFT can store and KoZeRO
cannot is refused in one line, and nothing is written.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import warnings

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

import make_folders

BOUND = 1e-5
SEQ = 16
DECK = """
[run]
steps = 3
threads = 1
[model.lora]
rank = 3
alpha = 24
{targets}
[data]
val_fraction = 0.0
[train]
global_batch = 2
micro_batch = 2
[optim]
lr = 0.05
warmup_steps = 0
[checkpoint]
every = 0
"""
MODELS = dict(
    gpt2=(make_folders.gpt2, 'targets = ["attn.c_proj", "c_fc", "h.0.attn.c_attn"]'),
    llama=(make_folders.llama, ""),
    qwen2=(make_folders.qwen2, 'targets = ["layers.1.*"]\nrslora = true'),
    qwen3=(lambda **keys: make_folders.qwen3(tie_word_embeddings=True, **keys), 'targets = ["q_proj", "*.down_proj"]'))


def run(*command, fails=False):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert (done.returncode != 0) == fails, (command, done.stdout, done.stderr)
    return done.stderr if fails else done.stdout


def close(ours, theirs, what):
    distance = (ours - theirs).abs().max().item() / theirs.abs().max().item()
    assert distance <= BOUND, (what, distance)
    return distance


def logits_of(model):
    with torch.no_grad():
        return model.eval()(torch.tensor([make_folders.TOKENS])).logits


def loss_of(model, text):
    """The mean loss over windows of SEQ + 1 ids, the last one shorter, a 0 before the text: that of `kozero eval`."""
    ids = torch.tensor([0, *text])
    total = 0.0
    with torch.no_grad():
        for first in range(0, len(ids) - 1, SEQ):
            window = ids[first:first + SEQ + 1]
            logits = model.eval()(window[None, :-1]).logits[0].double()
            total += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
    return total / (len(ids) - 1)


def evaluated(kozero, text, *arguments):
    printed = run(kozero, "eval", *arguments, f'data.text=["{text}"]', "run.threads=1", "--json")
    return json.loads(printed.splitlines()[-1])["loss"]


def base_model(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


def check_out(kozero, root, name, text):
    """Trains adapters, exports them in both forms, and loads both."""
    base, trained, out = root / "base", root / "run", root / "adapter"
    deck = root / "deck.toml"
    deck.write_text(DECK.format(targets=MODELS[name][1]))
    run(kozero, "train", deck, f"model.init={base}", f'data.text=["{text}"]', f"run.dir={trained}")
    assert "--adapter" in run(kozero, "export", trained, root / "plain", fails=True)
    run(kozero, "export", trained, out, "--adapter")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = PeftModel.from_pretrained(base_model(base), out)
    assert not [each for each in caught if "adapter" in str(each.message).lower()], caught
    loaded = {key.replace(".default.", ".") for key in model.state_dict() if ".lora_" in key}
    assert loaded == set(load_file(out / "adapter_model.safetensors")), (name, "other tensors")
    with_adapter = logits_of(model)
    assert (with_adapter - logits_of(base_model(base))).abs().max() > 1e-2, (name, "the adapters change nothing")
    run(kozero, "export", trained, root / "merged", "--merge")
    off = close(logits_of(base_model(root / "merged")), with_adapter, (name, "merged"))
    theirs = loss_of(model, text.read_bytes())
    for ours in (evaluated(kozero, text, trained), evaluated(kozero, text, base, "--adapter", out)):
        assert abs(ours / theirs - 1) <= BOUND, (name, ours, theirs)
    print(f"{name}: loss {theirs:.7f} in PEFT and KoZeRO, merged logits off by {off:.1e}")
    check_rounding(kozero, root, trained)
    assert f"base         {base}" in run(kozero, "inspect", base, "--adapter", out)


def check_rounding(kozero, root, trained):
    """A merge in bf16 rounds the f32 sum once, and leaves tensors without adapters as they are."""
    run(kozero, "export", trained, root / "bf16", "--merge", "--dtype", "bf16")
    exact, narrow = (load_file(root / out / "model.safetensors") for out in ("merged", "bf16"))
    for tensor, values in exact.items():
        assert torch.equal(narrow[tensor], values.to(torch.bfloat16)), tensor
    run(kozero, "export", trained, root / "merged.h5", "--merge", "--weights-only")
    assert len(run(kozero, "inspect", root / "merged.h5", "--tensors", "*").splitlines()) >= len(exact)


def check_in(kozero, root, name, text):
    """PEFT's adapters, with random B, in KoZeRO: evaluated, trained on, and the folder's keys taken."""
    base, out = root / "base", root / "theirs"
    torch.manual_seed(5)
    config = LoraConfig(r=4, lora_alpha=6, lora_dropout=0.0, target_modules="all-linear", use_rslora=name == "llama",
                        task_type="CAUSAL_LM", fan_in_fan_out=name == "gpt2")
    model = get_peft_model(base_model(base), config)
    with torch.no_grad():
        for key, value in model.named_parameters():
            if "lora_B" in key:
                value.copy_(torch.randn(value.shape) * 0.1)
    model.save_pretrained(out)
    theirs = loss_of(model, text.read_bytes())
    ours = evaluated(kozero, text, base, "--adapter", out)
    assert abs(ours / theirs - 1) <= BOUND, (name, ours, theirs)
    deck = root / "go_on.toml"
    deck.write_text(DECK.format(targets="").replace("rank = 3\nalpha = 24", f'init = "{out}"'))
    run(kozero, "train", deck, f"model.init={base}", f'data.text=["{text}"]', f"run.dir={root}/go_on", "optim.lr=1e-30")
    ours = evaluated(kozero, text, root / "go_on")
    assert abs(ours / theirs - 1) <= BOUND, (name, "model.lora.init", ours, theirs)
    print(f"{name}: loss of PEFT's adapters {theirs:.7f}")
    return out


def check_refusals(kozero, root, text, theirs):
    """One line with the key or the tensor, and nothing is written."""
    def edited(change):
        folder = root / "edited"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(theirs, folder)
        config = json.loads((folder / "adapter_config.json").read_text())
        tensors = load_file(folder / "adapter_model.safetensors")
        change(config, tensors)
        (folder / "adapter_config.json").write_text(json.dumps(config))
        save_file(tensors, folder / "adapter_model.safetensors")
        return folder

    def rename(tensors, old, new):
        for key in [key for key in tensors if old in key]:
            tensors[key.replace(old, new)] = tensors.pop(key)

    first = sorted(load_file(theirs / "adapter_model.safetensors"))[0]
    cases = {
        "use_dora": lambda config, _: config.update(use_dora=True),
        "bias": lambda config, _: config.update(bias="all"),
        "modules_to_save": lambda config, _: config.update(modules_to_save=["lm_head"]),
        "rank_pattern": lambda config, _: config.update(rank_pattern={"q_proj": 2}),
        "alpha_pattern": lambda config, _: config.update(alpha_pattern={"q_proj": 2}),
        "layers_to_transform": lambda config, _: config.update(layers_to_transform=[0]),
        "init_lora_weights": lambda config, _: config.update(init_lora_weights="pissa"),
        "peft_type": lambda config, _: config.update(peft_type="LOHA"),
        "invented_next_year": lambda config, _: config.update(invented_next_year=1),
        "shape": lambda config, _: config.update(r=5),
        "lora_magnitude_vector": lambda _, tensors: tensors.update(
            {first.replace("lora_A.weight", "lora_magnitude_vector"): torch.ones(16)}),
        "layers.7": lambda _, tensors: rename(tensors, "layers.1", "layers.7"),
        "is missing": lambda _, tensors: tensors.pop(first),
        "not finite": lambda _, tensors: tensors[first].fill_(float("nan")),
    }
    deck = root / "go_on.toml"
    for expected, change in cases.items():
        given = [f"model.init={root}/base", f"model.lora.init={edited(change)}", f'data.text=["{text}"]']
        said = run(kozero, "train", deck, *given, f"run.dir={root}/refused", fails=True)
        assert expected in said and len(said.strip().splitlines()) == 1, (expected, said)
        assert not (root / "refused").exists(), expected
    said = run(kozero, "train", deck, f"model.init={root}/base", f'data.text=["{text}"]', f"run.dir={root}/refused",
               f"model.lora.init={theirs}", "model.lora.rank=2", fails=True)
    assert "model.lora.rank = 2" in said, said
    said = run(kozero, "train", deck, f"model.init={root}/base", f'data.text=["{text}"]', f"run.dir={root}/refused",
               f"model.lora.init={theirs}", "model.lora.targets=q_proj", fails=True)
    assert "these targets have no such adapter" in said and not (root / "refused").exists(), said
    print(f"{len(cases) + 2} refusals")


def check_bases(kozero, root, text):
    """Adapters beside a changed base are refused before anything is written."""
    shutil.copytree(root / "base", root / "other")
    tensors = load_file(root / "other" / "model.safetensors")
    next(iter(tensors.values())).view(-1)[0] += 1.0
    save_file(tensors, root / "other" / "model.safetensors", metadata={"format": "pt"})
    said = run(kozero, "eval", root / "other", "--adapter", root / "adapter", f'data.text=["{text}"]', fails=True)
    assert "not those below the adapters" in said, said
    shutil.copy(root / "other" / "model.safetensors", root / "base" / "model.safetensors")
    for how in (["--merge"], ["--merge", "--weights-only"]):
        said = run(kozero, "export", root / "run", root / "none", *how, fails=True)
        assert "not those below the adapters" in said and not (root / "none").exists(), said
    print("changed bases are refused")


if __name__ == "__main__":
    torch.set_num_threads(1)
    program, top = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    words = top / "text.txt"
    words.write_bytes(b"the quick brown fox jumps over the lazy dog, again and again. " * 20)
    for number, (arch, (make, _)) in enumerate(MODELS.items()):
        place = top / arch
        make_folders.save(place / "base", make_folders.randomized(make(vocab_size=256), number))
        (place / "base" / "tokenizer.json").write_text('{"kozero_tokenizer": "bytes"}\n')
        check_out(program, place, arch, words)
        made = check_in(program, place, arch, words)
        if arch == "llama":
            check_refusals(program, place, words, made)
            check_bases(program, place, words)
