# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# make_tokenizers.py FOLDER: makes tests/fixtures/tokenizers: small tokenizers of each kind that KoZeRO reads, and
# expected.json: for each tokenizer, texts with the original library's ids and the text to which it decodes them.
# Needs the wheels tokenizers (0.23.3) and sentencepiece (0.2.3).

import io
import json
import pathlib
import sys

import sentencepiece
import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

TEXTS = [
    "", " ", "a", "Hello world", "it's we've I'd they'll YOU'RE it'S o'clock ''s 'sun", "'\u017f long s", "12 345 6789 1,234.56 x2y",
    "  two  blanks \n\n\n  and lines\r\n\r\nof both\tkinds  \t x ", "end.\nnext!\r\n/path/to", "\n", "\n\n a", "   ",
    "caf\u00e9 cafe\u0301 \u212b A\u030a \u1e9b\u0323 \uac00 \u1100\u1161 q\u0307\u0323 \u0344 \u2126",
    "marks \U00010f40\U00010f49\U00010f47 \u0d15\u0d3b\u0334 \U00011935\U00011930 a\u0316\u1ac1\u0301 a\u0301\u0316",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002 \u3053\u3093\u306b\u3061\u306f \uc548\ub155 \u0645\u0631\u062d\u0628\u0627 \u0928\u092e\u0938\u094d\u0924\u0947",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f\U0001f44d\U0001f3fd!", "\u3000wide\u00a0hard\u2003em\u2028line\u0085next \u180emvs\u200bzero",
    "<|endoftext|>", "a<|endoftext|>b <|im_start|>user\nhi<|im_end|>\n<|im_start", "<|begin_of_text|>The<|begin_of_text|> end",
    "caf\u00e9<normal>caf\u00e9 <s>x</s> <unk> <0x41>", "\x00\x01\x1c\x1f\x7f\x85", "snake_case CamelCase XMLHttp #include <x.hpp> a=b+c; // !!!\n",
    "\u00bd \u2155 \u0663\u0664 \u2167 x\u00b2", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "The cat sat on the mat. " * 4,
]
CORPUS = TEXTS + ["the quick brown fox jumps over the lazy dog and then the other things that were there",
                  "it is not what they said when we were walking in the street 1234 2024 1999",
                  "for (int i = 0; i < n; ++i) { sum += values[i]; }\n\n    return sum;\n"] * 8


def byte_level(corpus, vocab, *, split=None, prefix=False, normalizer=None, added=(), ignore_merges=False, begin=None):
    """A tokenizer of Hugging Face's library, trained on the corpus; `split` None means GPT-2's split."""
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=ignore_merges))
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=split is None)
    tokenizer.pre_tokenizer = last if split is None else pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(split), "isolated"), last])
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet,
                                                              show_progress=False))
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in added])
    if begin is not None:
        tokenizer.post_processor = processors.Sequence(
            [processors.ByteLevel(), processors.TemplateProcessing(single=f"{begin} $A", special_tokens=[
                (begin, tokenizer.token_to_id(begin))])])
    return tokenizer


def gpt2_like(corpus, vocab):
    return byte_level(corpus, vocab, added=["<|endoftext|>"])


def llama3_like(corpus, vocab):
    return byte_level(corpus, vocab, split=LLAMA3, ignore_merges=True, begin="<|begin_of_text|>",
                      added=["<|begin_of_text|>", "<|end_of_text|>"])


def qwen_like(corpus, vocab):
    return byte_level(corpus, vocab, split=QWEN, normalizer=normalizers.NFC(),
                      added=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])


def sentencepiece_model(corpus, vocab, kind, **options):
    model = io.BytesIO()
    lines = [line for text in corpus for line in text.splitlines() if line.strip() and "\0" not in line]
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=model, vocab_size=vocab,
                                             model_type=kind, minloglevel=2, num_threads=1, **options)
    return model.getvalue()


def llama2_like(corpus, vocab):
    return sentencepiece_model(corpus, vocab, "bpe", byte_fallback=True, normalization_rule_name="identity",
                               remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True, character_coverage=0.98)


def small_set():
    yield "gpt2.json", gpt2_like(CORPUS, 400)
    yield "llama3.json", with_duplicate_makers(llama3_like(CORPUS, 400))
    qwen = qwen_like(CORPUS, 400)
    qwen.add_tokens([AddedToken("caf\u00e9", normalized=True), AddedToken("<normal>", normalized=True)])
    yield "qwen.json", qwen
    yield "o200k.json", byte_level(CORPUS, 400, split=O200K, added=["<|endoftext|>"])
    yield "prefix.json", byte_level(CORPUS, 400, prefix=True, added=["<|endoftext|>"])
    yield "bpe.model", llama2_like(CORPUS, 500)
    rules = pathlib.Path(sys.argv[1], "rules.tsv")
    rules.write_text("".join(f"{ord(a):x}\t{' '.join(f'{ord(c):x}' for c in b)}\n" for a, b in
                             [("\u212b", "\u00c5"), ("\uff0c", ","), ("\u00bd", "1\u20442"), ("\t", " "), ("\u3000", " ")]))
    yield "unigram.model", sentencepiece_model(CORPUS, 150, "unigram", normalization_rule_tsv=str(rules),
                                               hard_vocab_limit=False, user_defined_symbols=["<normal>"])
    rules.unlink()


def with_duplicate_makers(tokenizer):
    """Merges as in Llama 3's file: several pairs may make one token; one token here is made by no merge."""
    data = json.loads(tokenizer.to_str())
    vocab, merges = data["model"]["vocab"], data["model"]["merges"]
    known = {tuple(merge) for merge in merges}
    for token in sorted(vocab, key=vocab.get):
        for cut in range(1, len(token)):
            pair = (token[:cut], token[cut:])
            if pair[0] in vocab and pair[1] in vocab and pair not in known and len(merges) % 3:
                merges.append(list(pair))
    unreachable = "".join(chr(c) for c in (0x120, 0x71, 0x7a, 0x71))  # " qzq"
    removed = max((t for t in vocab if t not in {c["content"] for c in data["added_tokens"]}), key=vocab.get)
    data["model"]["merges"] = [m for m in merges if removed not in (m[0], m[1], m[0] + m[1])]
    vocab[unreachable] = vocab.pop(removed)
    return tokenizers.Tokenizer.from_str(json.dumps(data))


def file_of(name, tokenizer):
    """Writes the file; GPT-2's has each merge as one text, as in older files."""
    data = json.loads(tokenizer.to_str())
    if name == "gpt2.json":
        data["model"]["merges"] = [" ".join(merge) for merge in data["model"]["merges"]]
        del data["model"]["type"]
        assert tokenizers.Tokenizer.from_str(json.dumps(data)).encode("Hello").ids == tokenizer.encode("Hello").ids
    return json.dumps(data).encode() + b"\n"


def cases(tokenizer):
    for text in TEXTS + ["x qzq zq qzq"]:
        if isinstance(tokenizer, bytes):
            library = sentencepiece.SentencePieceProcessor(model_proto=tokenizer)
            ids = library.encode(text)
            yield {"text": text, "ids": ids, "decoded": library.decode(ids)}
        else:
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            yield {"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)}


def main():
    folder = pathlib.Path(sys.argv[1])
    expected = {}
    for name, tokenizer in small_set():
        is_model = isinstance(tokenizer, bytes)
        (folder / name).write_bytes(tokenizer if is_model else file_of(name, tokenizer))
        expected[name] = list(cases(tokenizer))
    rows = [f'"{name}": [\n' + ",\n".join(json.dumps(case) for case in rows) + "]" for name, rows in expected.items()]
    (folder / "expected.json").write_text("{" + ",\n".join(rows) + "}\n")


if __name__ == "__main__":
    main()
