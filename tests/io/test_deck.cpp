// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_deck.cpp: values, overrides, defaults, the written deck, the fingerprint.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include <kozero/core/error.hpp>
#include "io/deck/check.hpp"
#include "io/deck/deck.hpp"
#include "io/deck/schema.hpp"

namespace {

using namespace kozero;
using namespace kozero::io;
namespace fs = std::filesystem;

const std::string kSmallest = R"(run.steps = 10
[model]
layers = 2
dim = 64
heads = 4
seq = 32
[data]
text = ["a.txt"]
[train]
global_batch = 8
)";

Deck smallest(const std::vector<std::string>& overrides = {}) {
  return parse_deck(kSmallest, "a/small.toml", overrides);
}

/// An empty folder that is the current directory during the object's lifetime.
class Folder {
 public:
  Folder() : before_(fs::current_path()), path_(fs::temp_directory_path() / "kozero_test_deck") {
    fs::remove_all(path_);
    fs::create_directories(path_);
    fs::current_path(path_);
  }
  ~Folder() {
    fs::current_path(before_);
    fs::remove_all(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

 private:
  fs::path before_;
  fs::path path_;
};

void write_file(const fs::path& path, const std::string& text) {
  if (path.has_parent_path()) fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("an empty deck has the promised defaults") {
  const Deck deck = smallest();
  CHECK(deck.run.dir == "runs/small");
  CHECK(deck.model.dropout == 0.0);
  CHECK(deck.model.tie_embeddings);
  CHECK(deck.optim.lr == 1e-4);
  CHECK(deck.optim.betas == std::array<double, 2>{0.9, 0.95});
  CHECK(deck.optim.weight_decay == 0.1);
  CHECK(deck.optim.schedule == "cosine");
  CHECK(deck.optim.warmup_steps == kNotGiven);
  CHECK(deck.checkpoint.every == 1000);
  CHECK(deck.checkpoint.keep == 3);
  CHECK(deck.train.grad_clip == 1.0);
  CHECK(deck.zero.stage == 0);
  CHECK(deck.is_set("model.dim"));
  CHECK_FALSE(deck.is_set("optim.lr"));
  CHECK_FALSE(smallest({"model.arch=llama"}).model.tie_embeddings);
  CHECK(resolved_text(deck).find("\ntie_embeddings = true  # default\n") != std::string::npos);
  CHECK(smallest({"model.arch=llama", "model.tie_embeddings=true"}).model.tie_embeddings);
  CHECK(smallest({"model.preset=llama-1b"}).model.arch == "llama");
  CHECK(smallest({"model.preset=tiny"}).model.arch == "gpt2");
  CHECK(smallest({"model.preset=qwen2-0.5b"}).model.arch == "qwen2");
  CHECK(smallest({"model.preset=qwen3-0.6b"}).model.arch == "qwen3");
  CHECK(smallest({"model.preset=qwen3-8b"}).model.qk_norm);
}

TEST_CASE("qwen2 and qwen3 say which part they have; llama may be given either; another arch takes it back") {
  const auto parts = [](const std::vector<std::string>& overrides) {
    const Deck deck = smallest(overrides);
    return std::pair(deck.model.qkv_bias, deck.model.qk_norm);
  };
  CHECK(parts({"model.arch=llama"}) == std::pair(false, false));
  CHECK(parts({"model.arch=qwen2"}) == std::pair(true, false));
  CHECK(parts({"model.arch=qwen3"}) == std::pair(false, true));
  CHECK(parts({"model.arch=llama", "model.qk_norm=true", "model.qkv_bias=true"}) == std::pair(true, true));
  const Deck qwen2 = parse_deck(resolved_text(smallest({"model.arch=qwen2"})), "deck.toml", {"model.arch=gpt2"});
  CHECK_FALSE(qwen2.model.qkv_bias);
}

TEST_CASE("RoPE's scaling is one table, what it leaves out is Llama 3's") {
  const auto scaling =
      smallest({"model.arch=llama", "model.rope_scaling={type=\"llama3\", factor=32}"}).model.rope_scaling;
  CHECK(scaling.factor == 32.0);
  CHECK(scaling.low_freq_factor == 1.0);
  CHECK(scaling.high_freq_factor == 4.0);
  CHECK(scaling.original_seq == 8192);
  const std::string table =
      "[model.rope_scaling]\ntype = \"llama3\"\nfactor = 2.5\nhigh_freq_factor = 3\noriginal_seq = 64\n";
  const Deck deck = parse_deck(kSmallest + table, "b.toml", {"model.arch=qwen3"});
  CHECK(deck.model.rope_scaling.factor == 2.5);
  CHECK(deck.model.rope_scaling.high_freq_factor == 3.0);
  CHECK(resolved_text(deck).find("rope_scaling = {type = \"llama3\", factor = 2.5, low_freq_factor = 1.0, "
                                 "high_freq_factor = 3.0, original_seq = 64}  # b.toml:") != std::string::npos);
  CHECK(parse_deck(kSmallest + table, "b.toml", {"model.arch=qwen3", "model.rope_scaling=none"})
            .model.rope_scaling.factor == 1.0);
}

TEST_CASE("overrides are TOML, else text, and one value is a list of one") {
  CHECK(smallest({"zero.stage=3"}).zero.stage == 3);
  CHECK(smallest({"zero.stage=3", "zero.stage=1"}).zero.stage == 1);
  CHECK(smallest({"optim.lr=1"}).optim.lr == 1.0);
  CHECK(smallest({"optim.kind=sgd"}).optim.kind == "sgd");
  CHECK(smallest({"optim.kind=\"sgd\""}).optim.kind == "sgd");
  CHECK(smallest({"run.dir=my run # 2"}).run.dir == "my run # 2");
  CHECK(smallest({"run.dir=a=b"}).run.dir == "a=b");
  CHECK(smallest({"data.tokenizer=x\ny = 1"}).data.tokenizer == "x\ny = 1");
  CHECK(smallest({"data.text=book.txt"}).data.text == std::vector<std::string>{"book.txt"});
  CHECK(smallest({"data.text=['x', 'y']"}).data.text == std::vector<std::string>{"x", "y"});
  CHECK(smallest({"data.text=[/x]"}).data.text == std::vector<std::string>{"/x"});
  CHECK(smallest({"data.text=[/x, y z]"}).data.text == std::vector<std::string>{"/x", "y z"});
  CHECK(smallest({"optim.betas=[0.5, 0.75]"}).optim.betas == std::array<double, 2>{0.5, 0.75});
  CHECK(smallest({"zero.stage=3"}).origins.at("zero.stage") == "command line");
  CHECK(smallest().origins.at("model.dim") == "a/small.toml:4");
  CHECK(smallest().origins.at("run.steps") == "a/small.toml:1");
}

TEST_CASE("integers may be written as 1e3, sizes and times with a unit; plain numbers keep their meaning") {
  CHECK(smallest({"run.steps=1e3"}).run.steps == 1000);
  CHECK(smallest({"zero.offload_optimizer=disk", "zero.offload_mib=1.5GiB"}).zero.offload_mib == 1536);
  CHECK(smallest({"zero.offload_optimizer=disk", "zero.offload_mib=1 GB"}).zero.offload_mib == 953);
  CHECK(smallest({"zero.bucket_mib=512KiB"}).zero.bucket_mib == 0.5);
  CHECK(smallest({"zero.bucket_mib=8"}).zero.bucket_mib == 8.0);
  CHECK(smallest({"comm.timeout_s=10min"}).comm.timeout_s == 600.0);
  CHECK(smallest({"comm.timeout_s=10"}).comm.timeout_s == 10.0);
  CHECK(smallest({"run.max_minutes=2h"}).run.max_minutes == 120.0);
  CHECK(smallest({"checkpoint.io_timeout_s=90s"}).checkpoint.io_timeout_s == 90.0);
  CHECK(parse_deck(kSmallest + "[comm]\ntimeout_s = \"1d\"\n", "a.toml").comm.timeout_s == 86400.0);
  CHECK(resolved_text(smallest({"run.max_minutes=2h"})).find("max_minutes = 120.0  # command line") !=
        std::string::npos);
}

TEST_CASE("a word or a number: a number may be quoted, and is written without quotes") {
  CHECK(smallest({"train.recompute=full"}).train.recompute == "full");
  CHECK(smallest().train.recompute == "none");
  for (const char* four : {"train.recompute=4", "train.recompute=\"4\"", "train.recompute=4.0"}) {
    const Deck deck = smallest({four});
    CHECK(deck.train.recompute.is_number());
    CHECK(deck.train.recompute.number() == 4);
    CHECK(resolved_text(deck).find("recompute = 4 ") != std::string::npos);
    CHECK(parse_deck(resolved_text(deck), "deck.toml").train.recompute == std::int64_t{4});
  }
  for (const char* wrong : {"train.recompute=0", "train.recompute=65", "train.recompute=\"\"", "train.recompute=4.5"}) {
    CHECK_THROWS_AS(smallest({wrong}), Error);
  }
}

TEST_CASE("what the command line chooses replaces what the file chose otherwise, and a note says so") {
  using Notes = std::vector<std::string>;
  const Deck epochs = smallest({"run.epochs=2"});
  CHECK(epochs.run.epochs == 2);
  CHECK(epochs.run.steps == 0);
  CHECK_FALSE(epochs.is_set("run.steps"));
  CHECK(epochs.notes == Notes{"command line: run.epochs = 2 wins over run.steps = 10 (a/small.toml:1)"});
  const Deck synthetic = smallest({"data.synthetic=true"});
  CHECK(synthetic.data.synthetic);
  CHECK(synthetic.data.text.empty());
  CHECK(synthetic.notes ==
        Notes{R"(command line: data.synthetic = true wins over data.text = ["a.txt"] (a/small.toml:8))"});
  CHECK(smallest({"data.synthetic=false"}).data.text.size() == 1);
  CHECK(smallest({"data.synthetic=false", "run.steps=7", "optim.lr=1"}).notes.empty());
  CHECK(smallest({"train.accumulate=3"}).train.global_batch == 0);
  const std::string with_betas = kSmallest + "[optim]\nbetas = [0.5, 0.6]\nmin_lr = 1e-5\nschedule = \"cosine\"\n";
  const Deck sgd = parse_deck(with_betas, "b.toml", {"optim.kind=sgd", "optim.schedule=constant"});
  CHECK(sgd.optim.betas == OptimKeys().betas);
  CHECK(sgd.optim.min_lr == 0.0);
  CHECK(sgd.notes == Notes{R"(command line: optim.kind = "sgd" wins over optim.betas = [0.5, 0.6] (b.toml:12))",
                           R"(command line: optim.schedule = "constant" wins over optim.min_lr = 1e-5 (b.toml:13))"});
  const std::string offloaded = kSmallest + "[zero]\noffload_optimizer = \"disk\"\noffload_mib = 64\n";
  CHECK(parse_deck(offloaded, "c.toml", {"zero.offload_optimizer=none"}).notes ==
        Notes{R"(command line: zero.offload_optimizer = "none" wins over zero.offload_mib = 64 (c.toml:13))"});
}

TEST_CASE("a key is read only beside the values that all its rules name") {
  CHECK(is_read(smallest(), "optim.betas"));
  CHECK_FALSE(is_read(smallest({"optim.kind=sgd"}), "optim.betas"));
  CHECK(is_read(smallest({"optim.kind=sgd"}), "optim.lr"));
  CHECK(is_read(smallest({"train.precision=fp16"}), "train.loss_scale_window"));
  CHECK_FALSE(is_read(smallest({"train.precision=fp16", "train.loss_scale=1024"}), "train.loss_scale_window"));
  CHECK_FALSE(is_read(smallest(), "train.loss_scale_window"));
}

TEST_CASE("the written deck reads back as the same deck and says where values came from") {
  const std::vector<std::vector<std::string>> cases = {
      {},
      {"model.arch=llama", "model.kv_heads=2", "zero.stage=3"},
      {"model.preset=llama-8b", "train.accumulate=2"},
      {"model.preset=qwen3-8b"},
      {"model.arch=qwen2", "model.rope_scaling={type='llama3', factor=8, low_freq_factor=0.3}"},
      {"optim.lr=0.12345678901234567", "optim.betas=[0.1, 1e-300]", "optim.eps=3e-17", "run.max_minutes=1e22"},
      {"data.tokenizer=quote \" back \\ tab \t line \n bell \a delete \x7f end", "data.text=['\xc3\xa4', 'b']"},
      {"model.arch=linear", "model.ffn=3", "data.synthetic=true", "optim.kind=sgd", "optim.momentum=0.5"},
      {"run.seed=9223372036854775807", "run.epochs=1"},
  };
  for (const auto& overrides : cases) {
    const Deck deck = smallest(overrides);
    const Deck again = parse_deck(resolved_text(deck), "deck.toml");
    CHECK(first_difference(fingerprint(deck), fingerprint(again)).empty());
    CHECK(fingerprint(deck) == fingerprint(again));
  }
  const std::string text = resolved_text(smallest({"zero.stage=3"}));
  CHECK(text.find("stage = 3  # command line\n") != std::string::npos);
  CHECK(text.find("dim = 64  # a/small.toml:4\n") != std::string::npos);
  CHECK(text.find("lr = 1e-4  # default\n") != std::string::npos);
  CHECK(text.find("# epochs: not given\n") != std::string::npos);
  CHECK(text.find("# warmup_steps: 5 % of the run's steps, at most 1000\n") != std::string::npos);
}

TEST_CASE("a preset's shape stays open in the written deck") {
  const Deck deck = parse_deck(resolved_text(smallest({"model.preset=llama-8b", "model.dim=64"})), "deck.toml");
  CHECK_FALSE(deck.is_set("model.rope_theta"));
  CHECK_FALSE(deck.is_set("model.norm_eps"));
  CHECK_FALSE(deck.is_set("model.tie_embeddings"));
  CHECK(deck.is_set("model.dim"));
}

TEST_CASE("a preset on the command line replaces the deck's shape as a whole, and a note says so") {
  const std::string text = R"(run.steps = 10
data.text = ["a.txt"]
train.global_batch = 8
[model]
arch = "llama"
layers = 4
dim = 128
heads = 8
kv_heads = 2
vocab = 1024
seq = 128
tie_embeddings = true
vocab_block = 64
)";
  const Deck deck = parse_deck(text, "a.toml", {"model.preset=qwen3-8b", "model.layers=3"});
  CHECK(deck.notes == std::vector<std::string>{
                          "command line: model.preset = \"qwen3-8b\" replaces the deck's arch, dim, heads, kv_heads, "
                          "vocab, tie_embeddings; model.seq = 128 stays"});
  CHECK(deck.model.arch == "qwen3");
  CHECK(deck.model.layers == 3);
  for (const char* key : {"dim", "heads", "kv_heads", "vocab", "tie_embeddings"}) {
    CHECK_FALSE(deck.is_set(std::string("model.") + key));
  }
  CHECK(deck.model.seq == 128);
  CHECK(deck.model.vocab_block == 64);
  CHECK(deck.origins.at("model.layers") == "command line");
  const Deck again = parse_deck(resolved_text(deck), "deck.toml");
  CHECK(fingerprint(again) == fingerprint(deck));
  CHECK_FALSE(again.is_set("model.dim"));

  const Deck sizes = parse_deck(text, "a.toml", {"model.preset=tiny"});
  CHECK(sizes.model.arch == "llama");
  CHECK(sizes.model.vocab == 1024);
  CHECK_FALSE(sizes.is_set("model.kv_heads"));
  // The file's keys win over a preset in the file; a preset on the command line wins over the file's keys.
  const std::string of_file =
      "run.steps = 1\ndata.synthetic = true\ntrain.global_batch = 1\n"
      "model.preset = \"gpt2-124m\"\nmodel.layers = 2\nmodel.dropout = 0.1\n";
  CHECK(parse_deck(of_file, "a.toml").model.layers == 2);
  CHECK(parse_deck(of_file, "a.toml").notes.empty());
  const Deck other = parse_deck(of_file, "a.toml", {"model.preset=llama-8b"});
  CHECK(other.notes.front() == "command line: model.preset = \"llama-8b\" replaces the deck's preset, layers");
  CHECK(other.model.dropout == 0.0);  // Llama does not read it
}

TEST_CASE("a note says that the last micro-batch of a step is short") {
  CHECK(smallest({"train.micro_batch=4"}).notes.empty());
  CHECK(smallest({"train.micro_batch=16"}).notes.empty());
  CHECK(smallest({"train.micro_batch=3"}).notes ==
        std::vector<std::string>{"train.global_batch = 8 is no multiple of train.micro_batch = 3: the last micro-batch "
                                 "of each step has 2 sequences"});
}

TEST_CASE("fingerprints name the first key that differs, whatever the origin") {
  const std::string here = fingerprint(smallest({"zero.stage=1", "train.global_batch=8"}));
  CHECK(fingerprint(smallest({"zero.stage=1"})) == here);
  CHECK(first_difference(here, fingerprint(smallest({"zero.stage=2"}))) == "zero.stage: 1 and 2");
  CHECK(first_difference(here, fingerprint(smallest({"zero.stage=1", "data.text=b"}))) ==
        "data.text: [\"a.txt\"] and [\"b\"]");
  CHECK(first_difference(here, here).empty());
}

TEST_CASE("data is looked up in the current directory, then above the deck's folder") {
  const Folder folder;
  write_file("tree/inputs/a.toml", kSmallest + "[optim]\n");
  write_file("tree/a.txt", "above");
  CHECK(read_deck("tree/inputs/a.toml").data.text.front() == "tree/a.txt");
  write_file("a.txt", "here");
  CHECK(read_deck("tree/inputs/a.toml").data.text.front() == "a.txt");
  CHECK(read_deck("tree/inputs/a.toml", {"data.text=nowhere.txt"}).data.text.front() == "nowhere.txt");
}

TEST_CASE("the resolved deck is written, or the failure names the file") {
  const Folder folder;
  write_resolved(smallest(), "deck.toml");
  CHECK(fingerprint(read_deck("deck.toml")) == fingerprint(smallest()));
  try {
    write_resolved(smallest(), "no/such/folder/deck.toml");
    FAIL("nothing was thrown");
  } catch (const Error& error) {
    CHECK(error.failure() == Failure::write);
    CHECK(std::string(error.what()) == "no/such/folder/deck.toml: the resolved deck could not be written");
  }
}

TEST_CASE("every row has a name of its own, a meaning, and a default that it accepts or that is a text") {
  std::set<std::string> keys;
  for (const auto& row : deck_schema()) {
    INFO(row.key);
    CHECK(keys.insert(row.key).second);
    CHECK_FALSE(row.help.empty());
    Deck deck;
    CHECK((accepts(row, row.value_in(deck)) || !row.default_text.empty()));
  }
}

TEST_CASE("a row says what it accepts and what a missing key means") {
  const auto accepted = [](const char* key) { return accepted_values(*find_row(key)); };
  CHECK(accepted("zero.stage") == "0 | 1 | 2 | 3");
  CHECK(accepted("optim.kind") == "adamw | sgd");
  CHECK(accepted("train.recompute") == "none | selective | full | integer 1 to 64");
  CHECK(accepted("comm.timeout_s") == "number > 0, or a time as 90s, 10min, 2h");
  CHECK(accepted("model.tie_embeddings") == "true | false");
  CHECK(default_of(*find_row("model.tie_embeddings")) == "true for gpt2, else false");
  CHECK(default_of(*find_row("zero.stage")) == "0");
  const auto& rows = deck_schema();
  const auto first = std::count_if(rows.begin(), rows.end(), [](const DeckRow& row) { return row.is_first; });
  CHECK((first >= 20 && first <= 30));
}
