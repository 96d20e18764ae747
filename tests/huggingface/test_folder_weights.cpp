// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_folder_weights.cpp: a folder's tensors in any shards of any partition, bit for bit; exports of a run in 16 bits,
// as one plain file, and with a SentencePiece model.
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <fstream>

#include <kozero/core/parameter_table.hpp>
#include <kozero/huggingface/export.hpp>
#include <kozero/huggingface/import.hpp>
#include <kozero/model/model.hpp>
#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "io/checkpoint/weights_file.hpp"
#include "io/hdf5/file.hpp"
#include "io/safetensors/float_formats.hpp"
#include "io/text/tokenizer.hpp"
#include "src/huggingface/config_json.hpp"

namespace kozero::huggingface {
namespace {

namespace fs = std::filesystem;

std::string stored(const std::string& name) { return std::string(KOZERO_TEST_DATA) + "/" + name; }
std::string tokenizer(const std::string& name) { return std::string(KOZERO_TOKENIZERS) + "/" + name; }

/// A stored sample, imported: its table and its weights file.
struct Sample {
  explicit Sample(const std::string& name)
      : folder("sample_" + name),
        config(read_config(stored(name) + "/config.json")),
        table(model::make_model<float>(config)->parameters()) {
    import_folder({stored(name), folder / "run", config, "{}"}, table);
    weights = folder / "run/weights.h5";
  }
  [[nodiscard]] std::vector<float> tensor(const std::string& file, const Parameter& row) const {
    std::vector<float> values(static_cast<std::size_t>(row.extent()));
    const io::Hdf5File opened(file, io::Hdf5Access::read);
    opened.open_dataset(io::weights_dataset(row.name)).read(0, row.extent(), values.data());
    return values;
  }
  tests::ScratchFolder folder;
  model::Config config;
  ParameterTable table;
  std::string weights;
};

/// The unit's elements by the imported file, pads zero.
std::vector<float> unit_of(const Sample& sample, const ParameterTable& table, int unit) {
  std::vector<float> all(static_cast<std::size_t>(table.unit(unit).extent));
  for (const auto& row : table.rows()) {
    if (row.unit != unit) continue;
    std::vector<float> values(static_cast<std::size_t>(row.extent()));
    const io::Hdf5File opened(sample.weights, io::Hdf5Access::read);
    opened.open_dataset(io::weights_dataset(row.name)).read(row.first, row.first + row.extent(), values.data());
    std::copy(values.begin(), values.end(), all.begin() + row.offset);
  }
  return all;
}

}  // namespace

TEST_CASE("every shard of every unit, on 1 to 9 ranks, has the bits that import has") {
  for (const std::string name : {"gpt2", "llama"}) {
    const Sample sample(name);
    for (const std::int64_t vocab_block : {0, 8, 24}) {
      model::Config config = sample.config;
      config.vocab_block = vocab_block;
      const auto table = model::make_model<float>(config)->parameters();
      const FolderWeights source(stored(name), config, table);
      for (int unit = 0; unit < table.num_units(); ++unit) {
        const auto wanted = unit_of(sample, table, unit);
        for (int ranks = 1; ranks <= 9; ++ranks) {
          const Partition cut(table.unit(unit).extent, ranks);
          for (int rank = 0; rank < ranks; ++rank) {
            std::vector<float> shard(static_cast<std::size_t>(cut.size(rank)), -1.0F);
            source.read({unit, cut.begin(rank), HostVector<float>(shard.data(), shard.size())});
            INFO(name << ", blocks of " << vocab_block << ", unit " << unit << ", rank " << rank << " of " << ranks);
            const std::size_t bytes = shard.size() * sizeof(float);
            CHECK((bytes == 0 || std::memcmp(shard.data(), wanted.data() + cut.begin(rank), bytes) == 0));
          }
        }
      }
    }
  }
}

TEST_CASE("a folder of another shape is refused by the tensor's name") {
  const Sample sample("gpt2");
  model::Config other = sample.config;
  other.seq = 8;
  const auto table = model::make_model<float>(other)->parameters();
  const auto thrown = tests::thrown_by([&] { FolderWeights(stored("gpt2"), other, table); });
  CHECK(thrown.status == 3);
  CHECK(thrown.text.find("tensor wpe.weight: shape (16, 16), config.json makes it (8, 16)") != std::string::npos);
}

TEST_CASE("exported as bf16 and f16: the nearest values, said in config.json, half the bytes") {
  const Sample sample("gpt2");
  for (const std::string dtype : {"bf16", "f16"}) {
    const std::string out = sample.folder / dtype;
    const auto made =
        export_folder({.weights = sample.weights, .tokenizer = "", .out = out, .config = sample.config, .dtype = dtype},
                      sample.table);
    CHECK(made.bytes == 2 * sample.table.num_parameters());
    CHECK(tests::bytes_of(out + "/config.json")
              .find(dtype == "bf16" ? "\"dtype\": \"bfloat16\"" : "\"dtype\": \"float16\"") != std::string::npos);
    import_folder({out, out + "_run", sample.config, "{}"}, sample.table);
    for (const auto& row : sample.table.rows()) {
      auto wanted = sample.tensor(sample.weights, row);
      for (float& value : wanted) {
        value =
            dtype == "f16" ? io::float_of_f16(io::f16_of_float(value)) : io::float_of_bf16(io::bf16_of_float(value));
      }
      INFO(dtype << " " << row.name);
      CHECK(sample.tensor(out + "_run/weights.h5", row) == wanted);
      if (row.name == "wte.weight") CHECK(wanted != sample.tensor(sample.weights, row));
    }
  }
  const auto thrown = tests::thrown_by([&] {
    export_folder({.weights = sample.weights,
                   .tokenizer = "",
                   .out = sample.folder / "x",
                   .config = sample.config,
                   .dtype = "f8"},
                  sample.table);
  });
  CHECK(thrown.text == "--dtype f8: accepted are f32, bf16, f16");
  CHECK_FALSE(fs::exists(sample.folder / "x"));
}

TEST_CASE("the parameters alone in one plain file, with step and tokens; nothing is overwritten") {
  const Sample sample("llama");
  const std::string out = sample.folder / "w.h5";
  ExportOrder order{.weights = sample.weights, .tokenizer = "", .out = out, .config = sample.config};
  order.config.tie_embeddings = false;
  const auto made = export_weights(order, sample.table);
  CHECK(made.tensors == static_cast<std::int64_t>(sample.table.rows().size()));
  CHECK(made.bytes == 4 * sample.table.num_parameters());
  for (const auto& row : sample.table.rows()) CHECK(sample.tensor(out, row) == sample.tensor(sample.weights, row));
  CHECK(io::read_weights_header(out).model == "{}");
  const auto again = tests::thrown_by([&] { export_weights(order, sample.table); });
  CHECK(again.status == 2);
  CHECK(again.text == out + ": there is something already; name a file that is not there");
  order.force = true;
  CHECK(export_weights(order, sample.table).tensors == made.tensors);
  std::ofstream(sample.folder / "mine") << "not weights";
  order.out = sample.folder / "mine";
  CHECK(tests::thrown_by([&] { export_weights(order, sample.table); }).status == 3);
}

TEST_CASE("a folder's tokenizer: tokenizer.json, or else tokenizer.model; its ids must be the model's") {
  const tests::ScratchFolder folder("folder_tokenizer");
  CHECK(tokenizer_of(folder.path(), 1000).reason == folder.path() + " has no tokenizer.json and no tokenizer.model");
  fs::copy(tokenizer("bpe.model"), folder / "tokenizer.model");
  CHECK(tokenizer_of(folder.path(), 500).path == folder / "tokenizer.model");
  CHECK(tokenizer_of(folder.path(), 499).reason ==
        (folder / "tokenizer.model") + ": its 500 ids are more than the model's 499");
  fs::copy(tokenizer("qwen.json"), folder / "tokenizer.json");
  CHECK(tokenizer_of(folder.path(), 500).path == folder / "tokenizer.json");
  folder.put("tokenizer.json", "{}");
  CHECK(tokenizer_of(folder.path(), 500).path == folder / "tokenizer.model");
  folder.put("tokenizer.model", "x");
  const auto neither = tokenizer_of(folder.path(), 500);
  CHECK(neither.path.empty());
  CHECK(neither.is_there);
  CHECK(neither.reason.starts_with((folder / "tokenizer.json") + ": "));
}

TEST_CASE("a config with more layers than the folder has tensors for is refused before a network is built") {
  const Sample sample("llama");
  const std::string out = sample.folder / "hf";
  export_folder({.weights = sample.weights, .tokenizer = "", .out = out, .config = sample.config}, sample.table);
  CHECK(read_folder_config(out).layers == sample.config.layers);
  model::Config deep = sample.config;
  deep.layers = 10000;
  sample.folder.put("hf/config.json", config_text(deep, -1));
  const auto thrown = tests::thrown_by([&] { read_folder_config(out); });
  CHECK(thrown.status == 3);
  CHECK(thrown.text.starts_with(out + "/config.json: 10000 layers have 90000 tensors and more, the folder has "));
}

TEST_CASE("ranks that read other weights of the same shapes, or a file that changes, are told") {
  const Sample sample("llama");
  const std::string out = sample.folder / "hf";
  export_folder({.weights = sample.weights, .tokenizer = "", .out = out, .config = sample.config}, sample.table);
  const std::string file = out + "/model.safetensors";
  const FolderWeights first(out, sample.config, sample.table);
  CHECK(first.fingerprint() == FolderWeights(out, sample.config, sample.table).fingerprint());
  first.require_unchanged();
  std::string bytes = tests::bytes_of(file);
  const std::size_t header = 8 + static_cast<std::size_t>(*reinterpret_cast<const std::uint64_t*>(bytes.data()));
  bytes[header] = static_cast<char>(bytes[header] ^ 1);
  std::ofstream(file, std::ios::binary) << bytes;
  CHECK(first.fingerprint() == FolderWeights(out, sample.config, sample.table).fingerprint());  // the same file
  CHECK(tests::thrown_by([&] { first.require_unchanged(); }).text.starts_with(file + ": it was written to while "));
  bytes[header] = static_cast<char>(bytes[header] ^ 1);
  fs::remove(file);
  std::ofstream(file, std::ios::binary) << bytes;
  CHECK(first.fingerprint() != FolderWeights(out, sample.config, sample.table).fingerprint());
}

TEST_CASE("a SentencePiece model goes out byte for byte, by transformers' name") {
  const Sample sample("llama");
  const auto made = export_folder({.weights = sample.weights,
                                   .tokenizer = tokenizer("bpe.model"),
                                   .out = sample.folder / "hf",
                                   .config = sample.config},
                                  sample.table);
  CHECK(tests::bytes_of(sample.folder / "hf/tokenizer.model") == tests::bytes_of(tokenizer("bpe.model")));
  CHECK_FALSE(fs::exists(sample.folder / "hf/tokenizer.json"));
  CHECK(tests::bytes_of(sample.folder / "hf/tokenizer_config.json").find("\"LlamaTokenizer\"") != std::string::npos);
  CHECK(made.notes == std::vector<std::string>{
                          "tokenizer.model is a SentencePiece model, which transformers reads if it is of BPE kind"});
}

TEST_CASE("an exported Qwen2 says how to load a tokenizer with another split than Qwen's") {
  const auto notes_of = [](const std::string& config, const std::string& file) {
    const Sample sample(config);
    return export_folder({.weights = sample.weights,
                          .tokenizer = file.empty() ? sample.folder.put("bytes.json", io::ByteTokenizer::file_text())
                                                    : tokenizer(file),
                          .out = sample.folder / "hf",
                          .config = sample.config},
                         sample.table)
        .notes;
  };
  const std::string note =
      "AutoTokenizer splits text for qwen2 as Qwen 2 and 3 do, which gives other ids than this tokenizer; load it with "
      "PreTrainedTokenizerFast.from_pretrained(\"";
  REQUIRE(notes_of("qwen2", "gpt2.json").size() == 1);
  CHECK(notes_of("qwen2", "gpt2.json")[0].starts_with(note));
  CHECK(notes_of("qwen2", "llama3.json").size() == 1);
  CHECK(notes_of("qwen2", "qwen.json").empty());
  CHECK(notes_of("qwen3", "gpt2.json").empty());
  REQUIRE(notes_of("qwen2", "").size() == 2);  // plain bytes: text would be composed first
  CHECK(notes_of("qwen2", "")[1].starts_with(note));
}

}  // namespace kozero::huggingface
