// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// test_folders.cpp: import and export of whole folders: stored samples with transformers' logits (make_folders.py), and
// import(export(x)) = x in bits.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <fstream>

#include <nlohmann/json.hpp>

#include <kozero/core/random.hpp>
#include <kozero/huggingface/export.hpp>
#include <kozero/huggingface/import.hpp>
#include <support/scratch_folder.hpp>
#include <support/thrown.hpp>
#include "io/checkpoint/weights_file.hpp"
#include "io/hdf5/file.hpp"
#include "io/safetensors/reader.hpp"
#include "io/safetensors/writer.hpp"

#include "imported_model.hpp"

namespace kozero::huggingface {
namespace {

namespace fs = std::filesystem;

ParameterTable table_of(const model::Config& config) { return model::make_model<float>(config)->parameters(); }

Imported import(const std::string& folder, const std::string& out) {
  const auto config = read_config(folder + "/config.json");
  return import_folder({folder, out, config, "{}"}, table_of(config));
}

void check_logits(const std::string& name) {
  const std::string stored = std::string(KOZERO_TEST_DATA) + "/" + name;
  const tests::ScratchFolder folder("huggingface_" + name);
  import(stored, folder / "run");
  std::ifstream file(stored + "/logits.json");
  const auto record = nlohmann::json::parse(file);
  const auto wanted = record["logits"].get<std::vector<float>>();
  tests::ImportedModel model(read_config(stored + "/config.json"), folder / "run/weights.h5");
  const auto found = model.logits(record["tokens"].get<std::vector<Token>>());
  REQUIRE(found.size() == wanted.size());
  float largest = 0.0F;
  float difference = 0.0F;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max(largest, std::abs(wanted[i]));
    difference = std::max(difference, std::abs(found[i] - wanted[i]));
  }
  INFO("off by " << difference << " of " << largest);
  CHECK(difference <= 1e-4F * largest);
}

TEST_CASE("GPT-2 without prefix, tied, f32: transformers' logits") { check_logits("gpt2"); }

TEST_CASE("Llama with grouped queries, bf16, in shards: transformers' logits") { check_logits("llama"); }

TEST_CASE("Llama with Llama 3's RoPE scaling: transformers' logits") { check_logits("llama3"); }

TEST_CASE("Qwen2, tied, with biases: transformers' logits") { check_logits("qwen2"); }

TEST_CASE("Qwen3, with norms of q and k and wide heads: transformers' logits") { check_logits("qwen3"); }

/// A weights file in which every element has different bits, including denormals.
std::vector<std::uint32_t> write_run(const std::string& path, const ParameterTable& table) {
  std::vector<std::uint32_t> all;
  io::WeightsStream stream(path, table, {.model = "{}"});
  for (std::size_t index = 0; index < table.rows().size(); ++index) {
    std::vector<std::uint32_t> bits(static_cast<std::size_t>(table.rows()[index].extent()));
    for (std::size_t i = 0; i < bits.size(); ++i) {
      bits[i] = philox(3, counter_of(all.size() + i)).x[0];
      if ((bits[i] & 0x7F800000U) == 0x7F800000U) bits[i] &= ~0x40000000U;  // an infinity or NaN
    }
    std::vector<float> values(bits.size());
    std::memcpy(values.data(), bits.data(), bits.size() * sizeof(float));
    stream.write(index, 0, values);
    all.insert(all.end(), bits.begin(), bits.end());
  }
  stream.close();
  return all;
}

std::vector<std::uint32_t> read_run(const std::string& path, const ParameterTable& table) {
  std::vector<std::uint32_t> all;
  const io::Hdf5File file(path, io::Hdf5Access::read);
  for (const auto& row : table.rows()) {
    std::vector<float> values(static_cast<std::size_t>(row.extent()));
    file.open_dataset(io::weights_dataset(row.name)).read(0, row.extent(), values.data());
    const std::size_t before = all.size();
    all.resize(before + values.size());
    std::memcpy(all.data() + before, values.data(), values.size() * sizeof(float));
  }
  return all;
}

std::vector<model::Config> configs() {
  model::Config gpt2{.arch = "gpt2", .layers = 2, .dim = 12, .heads = 3, .vocab = 31, .seq = 7};
  model::Config untied = gpt2;
  untied.tie_embeddings = false;
  untied.ffn = 20;
  model::Config llama{.arch = "llama",
                      .layers = 3,
                      .dim = 12,
                      .heads = 4,
                      .kv_heads = 2,
                      .head_dim = 6,
                      .ffn = 20,
                      .vocab = 31,
                      .seq = 7,
                      .tie_embeddings = false,
                      .rope_theta = 500.0F};
  model::Config tied = llama;
  tied.tie_embeddings = true;
  model::Config qwen2 = llama, qwen3 = tied;
  qwen2.arch = "qwen2";
  qwen3.arch = "qwen3";
  qwen2.layers = qwen3.layers = 1;
  qwen3.rope_scaling.factor = 8.0F;
  std::vector<model::Config> all = {gpt2, untied, llama, tied, qwen2, qwen3};
  for (auto& config : all) config = model::resolved(config);
  return all;
}

TEST_CASE("import(export(x)) = x in bits: whole, and in shards") {
  for (const auto& config : configs()) {
    for (const std::int64_t most : {std::int64_t{0}, std::int64_t{3000}, std::int64_t{1}}) {
      const tests::ScratchFolder folder("round_trip");
      const auto table = table_of(config);
      const auto bits = write_run(folder / "weights.h5", table);
      const auto made = export_folder({.weights = folder / "weights.h5",
                                       .tokenizer = "",
                                       .out = folder / "hf",
                                       .config = config,
                                       .max_shard_bytes = most},
                                      table);
      CHECK(made.files == (most == 0 ? 1 : most == 1 ? made.tensors : made.files));
      CHECK((made.files > 1) == fs::exists(folder / "hf/model.safetensors.index.json"));
      CHECK(made.notes == std::vector<std::string>{"the run has no tokenizer"});
      import(folder / "hf", folder / "again");
      CHECK(read_run(folder / "again/weights.h5", table) == bits);
      CHECK_FALSE(fs::exists(folder / "again.partial"));
    }
  }
}

TEST_CASE("export of a GPT-2 without biases: zeros where transformers has biases, the other tensors in bits") {
  model::Config config = configs()[0];
  config.bias = false;
  const tests::ScratchFolder folder("no_biases");
  const auto table = table_of(config);
  const auto bits = write_run(folder / "weights.h5", table);
  const auto made =
      export_folder({.weights = folder / "weights.h5", .tokenizer = "", .out = folder / "hf", .config = config}, table);
  CHECK(made.tensors == std::ssize(table_of(configs()[0]).tensors()));
  CHECK(made.notes.back() == "model.bias = false: transformers' GPT-2 has biases, which are written as zeros");

  import(folder / "hf", folder / "again");
  CHECK(read_run(folder / "again/weights.h5", table) == bits);
  CHECK(read_config(folder / "hf/config.json").bias);
  const io::Hdf5File file(folder / "again/weights.h5", io::Hdf5Access::read);
  std::size_t biases = 0;
  const auto biased = table_of(configs()[0]);
  for (const auto& row : biased.rows()) {
    if (!row.name.ends_with(".bias")) continue;
    std::vector<float> values(static_cast<std::size_t>(row.extent()), 1.0F);
    file.open_dataset(io::weights_dataset(row.name)).read(0, row.extent(), values.data());
    CHECK(values == std::vector<float>(values.size(), 0.0F));
    ++biases;
  }
  CHECK(biases == 13);
}

/// A folder of the first config with changes.
class ChangedFolder {
 public:
  ChangedFolder() : config_(configs()[0]) {
    const auto table = table_of(config_);
    for (const auto& row : table.rows()) tensors.push_back({row.name, row.shape});
    folder_.put("hf/config.json", config_text(config_, -1));
  }
  std::vector<io::PlannedTensor> tensors;  ///< of zeros
  float last_value = 0.0F;                 ///< the last tensor's last value

  std::string refusal() {
    fs::remove(folder_ / "hf/model.safetensors");
    io::SafetensorsWriter writer(folder_ / "hf/model.safetensors", tensors);
    for (const auto& tensor : tensors) {
      std::vector<float> values(static_cast<std::size_t>(tensor.bytes() / 4));
      if (&tensor == &tensors.back()) values.back() = last_value;
      writer.append(values.data(), static_cast<std::int64_t>(values.size()));
    }
    writer.close();
    fs::remove_all(folder_ / "out");
    const auto thrown = tests::thrown_by([&] { import(folder_ / "hf", folder_ / "out"); });
    CHECK(fs::exists(folder_ / "out") == thrown.text.empty());
    CHECK_FALSE(fs::exists(folder_ / "out.partial"));
    const std::string path = folder_ / "hf/model.safetensors: tensor ";
    return thrown.text.starts_with(path) ? thrown.text.substr(path.size()) : thrown.text;
  }

 private:
  tests::ScratchFolder folder_{"changed_folder"};
  model::Config config_;
};

TEST_CASE("Tensors that are not the model's are refused; buffers of old versions are passed over") {
  ChangedFolder folder;
  CHECK(folder.refusal().empty());
  const auto honest = folder.tensors;
  folder.tensors.push_back({"h.1.attn.bias", {1, 1, 7, 7}});
  folder.tensors.push_back({"transformer.h.0.attn.masked_bias", {}});
  folder.tensors.push_back({"lm_head.weight", {31, 12}});  // tied, and equal
  CHECK(folder.refusal().empty());
  folder.last_value = 1e-30F;
  CHECK(folder.refusal() == "lm_head.weight: config.json ties it to wte.weight, but their values differ");
  folder.last_value = 0.0F;
  folder.tensors.back().shape = {31, 11};
  CHECK(folder.refusal() == "lm_head.weight: shape (31, 11), config.json makes it (31, 12)");

  folder.tensors = honest;
  folder.tensors.push_back({"h.2.attn.bias", {1}});
  CHECK(folder.refusal() == "h.2.attn.bias: it is not one of the model's");
  folder.tensors = honest;
  folder.tensors.push_back({"transformer.wte.weight", {31, 12}});
  CHECK(folder.refusal() == "wte.weight: it is there with and without the prefix transformer.");
  folder.tensors = honest;
  folder.tensors[3].name = "h.0.ln_1.bios";
  CHECK(folder.refusal() == "h.0.ln_1.bias: it is missing");
  folder.tensors = honest;
  folder.tensors[0].shape = {12, 31};
  CHECK(folder.refusal() == "wte.weight: shape (12, 31), config.json makes it (31, 12)");
}

TEST_CASE("A folder that holds something is not written into") {
  const tests::ScratchFolder folder("taken");
  const std::string stored = std::string(KOZERO_TEST_DATA) + "/gpt2";
  folder.put("out/mine", "x");
  const auto thrown = tests::thrown_by([&] { import(stored, folder / "out"); });
  CHECK(thrown.status == 2);
  CHECK(thrown.text == (folder / "out") + ": there is something already; name a folder that is not there or is empty");
  CHECK(tests::thrown_by([&] { import(stored, "/proc/out"); }).status == 4);
  fs::create_directory(folder / "empty");
  import(stored, folder / "empty/");
  CHECK(fs::exists(folder / "empty/weights.h5"));
}

TEST_CASE("The tokenizer comes along where KoZeRO can read it") {
  const tests::ScratchFolder folder("with_tokenizer");
  fs::copy(std::string(KOZERO_TEST_DATA) + "/gpt2", folder / "hf");
  CHECK(import(folder / "hf", folder / "a").dtypes == "f32");
  fs::remove_all(folder / "a");
  CHECK(import(folder / "hf", folder / "a").remark ==
        (folder / "hf") + " has no tokenizer.json and no tokenizer.model: give data.tokens, not data.text");
  folder.put("hf/tokenizer.json", "{}");
  const std::string remark = import(folder / "hf", folder / "b").remark;
  CHECK(remark.starts_with((folder / "hf/tokenizer.json") + ": "));
  CHECK(remark.ends_with("; left out: give data.tokens, not data.text"));
  CHECK_FALSE(fs::exists(folder / "b/tokenizer.json"));
}

}  // namespace
}  // namespace kozero::huggingface
