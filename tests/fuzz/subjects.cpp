// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// subjects.cpp: writes valid checkpoints, weights, safetensors, shards, tuning, tokenizer and record files; their
// readers.
#include <data/records_files.hpp>
#include <io/safetensors_bytes.hpp>
#include <io/weights_case.hpp>
#include <kozero/data/token_shard.hpp>
#include <kozero/distributed/communicator.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/weights_file.hpp"
#include "io/deck/deck.hpp"
#include "io/deck/matrix_file.hpp"
#include "io/deck/tuning_file.hpp"
#include "io/posix/file.hpp"
#include "io/safetensors/reader.hpp"
#include "io/text/character_tokenizer.hpp"
#include "io/text/tokenizer.hpp"
#include "kernels/matmul/product_tuning.hpp"
#include "src/data/document_formats.hpp"
#include "src/huggingface/config_json.hpp"

#include "subjects.hpp"

namespace kozero::tests {
namespace {

Subject subject(const std::string& name, const std::string& path, std::function<void()> read) {
  return {name, path, bytes_of(path), std::move(read)};
}

void read_values(const io::SafetensorsFile& file) {
  for (const auto& entry : file.entries()) {
    std::vector<float> values(static_cast<std::size_t>(entry.extent()));
    file.read(entry, 0, entry.extent(), values.data());
  }
}

std::string safetensors() {
  using io::entry_text;
  return io::safetensors_bytes(
      io::header_of("\"__metadata__\":{\"format\":\"pt\"}," + entry_text("wte.weight", "F32", "[2,3]", "[0,24]") + "," +
                    entry_text("h.0.bias", "BF16", "[4]", "[24,32]") + "," +
                    entry_text("none", "F16", "[0]", "[32,32]")),
      32);
}

/// A checkpoint of the small table; returns its folder.
std::string save_checkpoint(const ScratchFolder& folder) {
  const ParameterTable table = io::small_table();
  io::RankSlices mine(table, 0, 1);
  mine.set_values();
  const io::CheckpointRecord record{.step = 5,
                                    .tokens = 50,
                                    .seed = 7,
                                    .model = R"({"dim":16})",
                                    .tokenizer = "bytes 0",
                                    .deck = "[run]\nsteps = 9\n"};
  const std::string path = io::checkpoint_folder(folder.path(), 5);
  io::write_checkpoint(*distributed::make_self_communicator(), path, table,
                       {record, {{io::kParameterGroup, mine.readable()}}, {}});
  return path;
}

/// Reads as the program does: libhdf5 reads only bytes that agree with the manifest.
void read_checkpoint(const std::string& path) {
  const auto comm = distributed::make_self_communicator();
  io::verify_checkpoint(*comm, path);
  const ParameterTable table = io::small_table();
  io::RankSlices mine(table, 0, 1);
  io::read_tensor_file(*comm, path + "/" + io::kStateFile, table, {{io::kParameterGroup, mine.shards}});
}

/// Reads as the program does: libhdf5 reads only bytes that agree with the header.
void read_weights_file(const std::string& path) {
  const auto comm = distributed::make_self_communicator();
  io::read_weights_header(path);
  io::verify_weights_header(*comm, path);
  const ParameterTable table = io::small_table();
  io::RankSlices mine(table, 0, 1);
  io::read_weights(*comm, path, table, mine.shards);
}

void add_weights(std::vector<Subject>& all, const ScratchFolder& folder) {
  const ParameterTable table = io::small_table();
  io::RankSlices mine(table, 0, 1);
  mine.set_values();
  const std::string path = folder / "weights.h5";
  io::write_weights(*distributed::make_self_communicator(), path, table, mine.readable(),
                    {.model = R"({"dim":16})", .step = 5});
  all.push_back(subject("weights.h5", path, [path] { read_weights_file(path); }));
}

std::string write_shard(const std::string& path, std::int64_t vocab) {
  data::TokenShardWriter writer(path, vocab);
  for (Token token = 0; token < 300; ++token) writer.append(std::span(&token, 1));
  writer.close();
  return path;
}

void read_shard(const std::string& path, std::int64_t vocab) {
  const data::TokenShard shard(path, vocab);
  std::vector<Token> tokens(static_cast<std::size_t>(shard.num_tokens()));
  shard.read(0, tokens);
}

void read_documents(const std::string& path, const std::string& chat_template = "") {
  data::TextFile file;
  file.path = path;
  file.bytes = 1;
  file.rules.chat_template = chat_template;
  const auto reader = data::FileCorpus({file}).read(1024);
  for (io::TextBlock block; reader->next(block);) {
  }
}

void add_records(std::vector<Subject>& all, const ScratchFolder& folder) {
  std::vector<std::string> texts;
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    texts.push_back("document " + std::to_string(i) + " \u00e9");
    lines += R"({"id": 7, "text": "document \u00e9 \n", "meta": {"score": 1.5}})" + std::string("\n");
  }
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"a.jsonl", lines}, {"a.jsonl.gz", gzipped(lines)}, {"a.jsonl.zst", zstd_frame(lines)}}) {
    const std::string path = folder.put(name, bytes);
    all.push_back(subject(name, path, [path] { read_documents(path); }));
  }
  const std::vector<std::string> conversations = {
      R"({"messages": [{"role": "user", "content": "\u00e9"}, {"role": "assistant", "content": "<think>\n</think> b",
         "weight": 1}], "id": 7})",
      R"({"prompt": "Hi", "completion": "Hello"})", R"({"instruction": "Hi", "input": "you", "output": "Hello"})",
      R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello"}]})"};
  for (std::size_t i = 0; i < conversations.size(); ++i) {
    const std::string name = "chat" + std::to_string(i) + ".jsonl";
    std::string line = conversations[i];
    std::erase(line, '\n');
    const std::string path = folder.put(name, line + "\n" + line + "\n" + line + "\n");
    all.push_back(subject(name, path, [path] { read_documents(path, "qwen3"); }));
  }
#ifdef KOZERO_HAS_PARQUET
  const std::string path = folder / "a.parquet";
  write_parquet(path, texts, 15);
  all.push_back(subject("Parquet", path, [path] { read_documents(path); }));
#endif
}

void add_safetensors(std::vector<Subject>& all, const ScratchFolder& folder) {
  const std::string one = folder.put("model.safetensors", safetensors());
  all.push_back(subject("safetensors", one, [one] { read_values(io::SafetensorsFile(one)); }));
  folder.put("hf/a.safetensors", safetensors());
  const std::string index =
      folder.put("hf/model.safetensors.index.json",
                 io::safetensors_index_text(
                     {{"wte.weight", "a.safetensors"}, {"h.0.bias", "a.safetensors"}, {"none", "a.safetensors"}}, 32));
  all.push_back(subject("safetensors index", index, [hf = folder / "hf"] { io::SafetensorsFolder opened(hf); }));
  model::Config config{.arch = "qwen3", .layers = 2, .dim = 32, .heads = 4, .vocab = 64, .seq = 16};
  config.rope_scaling.factor = 8.0F;
  const std::string json = folder.put("config.json", huggingface::config_text(model::resolved(config), 1));
  all.push_back(subject("config.json", json, [json] { huggingface::read_config(json); }));
}

/// Reads as the program does, including kinds and algorithms.
void read_tuning(const std::string& path) {
  constexpr std::int64_t kLargest = 1 << 24;
  kernels::use_product_algorithms(io::parse_tuning(io::read_whole_file(path, kLargest), path).products, path);
}

void add_tuning(std::vector<Subject>& all, const ScratchFolder& folder) {
  const auto known = kernels::known_product_algorithms();
  const std::string algorithm = known.empty() ? "any" : known.back();
  const std::string path =
      folder.put("tuning.toml", io::tuning_text({.device = "a \"processor\"",
                                                 .library = "KoZeRO's units",
                                                 .threads = 4,
                                                 .products = {{"f32 = f32 x f32, 7 x 13 x 5, none none", algorithm},
                                                              {"f32 += f32 x f32, 8 x 8 x 5, none none", algorithm}}}));
  all.push_back(subject("tuning file", path, [path] { read_tuning(path); }));
}

void add_tokenizers(std::vector<Subject>& all, const ScratchFolder& folder) {
  for (const char* name : {"gpt2.json", "qwen.json", "prefix.json", "bpe.model", "unigram.model"}) {
    const std::string path = folder.put(name, bytes_of(std::string(KOZERO_TOKENIZERS) + "/" + name));
    all.push_back(subject(name, path, [path] {
      const auto tokenizer = io::make_tokenizer(path);
      const auto tokens = tokenizer->encode("The cat \xE2\x84\xAB 12 <normal>\n\xFF");
      (void)tokenizer->decode(tokens);
    }));
  }
  const std::string characters = folder / "characters.json";
  io::CharacterTokenizer({U'\n', U'a', U'\u00E9', U'\U0001F600'}, "").save(characters);
  all.push_back(subject("characters.json", characters, [characters] {
    const auto tokenizer = io::make_tokenizer(characters);
    (void)tokenizer->decode(tokenizer->encode("a\xC3\xA9\n\xF0\x9F\x98\x80"));
  }));
}

}  // namespace

std::vector<Subject> all_subjects(const ScratchFolder& folder) {
  std::vector<Subject> all;
  const std::string checkpoint = save_checkpoint(folder);
  for (const char* file : {io::kManifestFile, io::kStateFile}) {
    all.push_back(subject(file, checkpoint + "/" + file, [checkpoint] { read_checkpoint(checkpoint); }));
  }
  add_weights(all, folder);
  add_safetensors(all, folder);
  add_tuning(all, folder);
  add_tokenizers(all, folder);
  add_records(all, folder);
  for (const std::int64_t vocab : {1000, 100000}) {
    const std::string path = write_shard(folder / (std::to_string(vocab) + ".bin"), vocab);
    all.push_back(subject("token shard of " + std::to_string(vocab), path, [=] { read_shard(path, vocab); }));
  }
  const std::string deck = folder.put("deck.toml", bytes_of(std::string(KOZERO_INPUTS) + "/quickstart.toml"));
  all.push_back(subject("deck", deck, [deck] { io::read_deck(deck); }));
  all.back().refusal = 2;
  folder.put("quickstart.toml", bytes_of(deck));
  const std::string matrix = folder.put("sweep.toml", bytes_of(std::string(KOZERO_INPUTS) + "/sweep_scaling.toml"));
  all.push_back(subject("matrix of a sweep", matrix, [matrix] { io::read_matrix(matrix); }));
  all.back().refusal = 2;
  return all;
}

}  // namespace kozero::tests
