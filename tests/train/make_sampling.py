# SPDX-FileCopyrightText: The KoZeRO authors
# SPDX-License-Identifier: Apache-2.0
"""make_sampling.py FILE: the tokens and probabilities that transformers' generate samples from, on drawn logits.

Writes tests/fixtures/sampling.json. The processors are those that GenerationMixin makes for the options, in its order.
"""
import json
import pathlib
import sys

import torch
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

VOCAB = 40
OPTIONS = [{}, dict(temperature=0.7), dict(top_k=5), dict(top_p=0.6), dict(min_p=0.2), dict(repetition_penalty=1.3),
           dict(temperature=1.8, top_k=9, top_p=0.8), dict(temperature=0.6, top_k=12, top_p=0.95, min_p=0.05),
           dict(repetition_penalty=2.0, temperature=1.4, top_k=20, top_p=0.9, min_p=0.1),
           dict(repetition_penalty=0.6, top_p=0.7), dict(repetition_penalty=1.2, min_p=0.5, temperature=3.0)]


def cases():
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=4, n_head=1, vocab_size=VOCAB))
    generator = torch.Generator().manual_seed(7)
    for options in OPTIONS:
        for _ in range(3):
            logits = torch.randn(VOCAB, generator=generator) * 2.5
            sequence = torch.randint(VOCAB, (15,), generator=generator)
            config = GenerationConfig(do_sample=True, **(dict(top_k=0) | options))
            processors = model._get_logits_processor(config, input_ids_seq_length=15)
            kept = processors(sequence[None], logits[None].clone())[0]
            probabilities = torch.softmax(kept.double(), 0)
            yield dict(options=options, logits=logits.tolist(), sequence=sequence.tolist(),
                       tokens={str(i): p for i, p in enumerate(probabilities.tolist()) if p > 0})


pathlib.Path(sys.argv[1]).write_text(json.dumps(list(cases())) + "\n")
