# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""check_config_keys.py: the table "Keys of config.json" in docs/weights.md has every key of transformers' configurations
of GPT-2, Llama, Qwen2 and Qwen3, and every key that their networks and masks look up under a name. Needs no torch.
"""
import dataclasses
import pathlib
import re
import sys

import transformers
from transformers import GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config

# Looked up by code that these networks do not use, or that changes how they run and no number.
OTHERS = {"classifier_dropout", "hidden_dropout", "num_labels", "token_classification_bias", "fusion_config",
          "distributed_config", "gradient_checkpointing"}


def keys_of_table():
    page = (pathlib.Path(__file__).parents[2] / "docs/weights.md").read_text()
    section = re.search(r"^### Keys of config\.json\n(.*?)\nThe comparisons", page, re.M | re.S)[1]
    return set(re.findall(r"`([a-z0-9_]+)`", section))


def keys_of_transformers():
    keys = set()
    for config in (GPT2Config, LlamaConfig, Qwen2Config, Qwen3Config):
        keys |= {field.name for field in dataclasses.fields(config)} | set(config.attribute_map)
    folder = pathlib.Path(transformers.__file__).parent
    files = [folder / name for name in ("masking_utils.py", "modeling_rope_utils.py", "modeling_utils.py", "cache_utils.py")]
    files += [folder / f"models/{name}/modeling_{name}.py" for name in ("gpt2", "llama", "qwen2", "qwen3")]
    for file in files:
        keys |= set(re.findall(r'getattr\((?:self\.)?config, "([a-z][a-z0-9_]*)"', file.read_text()))
    return keys - OTHERS


missing = sorted(keys_of_transformers() - keys_of_table())
print(f"transformers {transformers.__version__}: " + (f"not in docs/weights.md: {missing}" if missing else "every key is known"))
sys.exit(len(missing) > 0)
