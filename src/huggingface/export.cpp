// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// export.cpp: writes the folder's config, tokenizer and safetensors shards, or the HDF5 weights file.
#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include <kozero/core/architecture.hpp>
#include <kozero/core/error.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/huggingface/adapters.hpp>
#include <kozero/huggingface/export.hpp>
#include <kozero/model/model.hpp>
#include "io/checkpoint/weights_file.hpp"
#include "io/posix/file.hpp"
#include "io/run/run_folder.hpp"
#include "io/safetensors/reader.hpp"
#include "io/safetensors/writer.hpp"
#include "io/text/character_tokenizer.hpp"
#include "io/text/pretokenizer.hpp"
#include "io/text/tokenizer.hpp"
#include "io/text/tokenizer_json.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/folder.hpp"

namespace kozero::huggingface {
namespace {

/// Rows [first, last) of the table in one file.
struct Shard {
  std::size_t first = 0;
  std::size_t last = 0;
  std::int64_t bytes = 0;
};

/// Shards of consecutive tensors, as many per shard as fit in `most` bytes.
std::vector<Shard> shards_of(const ParameterTable& table, std::int64_t element_bytes, std::int64_t most) {
  std::vector<Shard> shards(1);
  for (std::size_t i = 0; i < table.tensors().size(); ++i) {
    const std::int64_t bytes = table.tensors()[i].extent() * element_bytes;
    if (most > 0 && shards.back().bytes > 0 && shards.back().bytes + bytes > most) shards.push_back({i, i, 0});
    shards.back().bytes += bytes;
    shards.back().last = i + 1;
  }
  return shards;
}

std::string shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return io::kSafetensorsFile;
  std::array<char, 64> name{};
  std::snprintf(name.data(), name.size(), "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name.data();
}

/// Reads the tensors of order.merged, or of the file after a comparison of every name and shape.
TensorReader reader_of(const ExportOrder& order, const ParameterTable& table) {
  if (order.merged.read) return order.merged.read;
  // Without shards, this reads nothing but compares every name and shape.
  io::read_weights(*distributed::make_self_communicator(), order.weights, table, {});
  return file_tensors(order.weights, table);
}

/// The tensors that transformers' network of this type has.
struct ExportedTensors {
  ParameterTable table;
  TensorReader read;
};

/// transformers' GPT-2 always has biases: those that the network does not have are zeros.
ExportedTensors with_zero_biases(const ExportOrder& order, const ParameterTable& table, const TensorReader& read) {
  if (order.config.bias) return {table, read};
  model::Config biased = order.config;
  biased.bias = true;
  ExportedTensors exported{model::make_model<float>(biased)->parameters(), {}};
  std::map<std::string, std::size_t> index_of;
  for (std::size_t i = 0; i < table.tensors().size(); ++i) index_of[table.tensors()[i].name] = i;
  std::vector<std::optional<std::size_t>> sources;
  for (const auto& tensor : exported.table.tensors()) {
    const auto found = index_of.find(tensor.name);
    sources.push_back(found == index_of.end() ? std::nullopt : std::optional(found->second));
  }
  exported.read = [read, sources](std::size_t index, std::int64_t first, std::int64_t count, float* to) {
    if (const auto& source = sources[index]) return read(*source, first, count, to);
    std::fill_n(to, count, 0.0F);
  };
  return exported;
}

void write_shard(const std::string& path, const Shard& shard, const ExportOrder& order, const ParameterTable& table,
                 const TensorReader& read) {
  std::vector<io::PlannedTensor> planned;
  for (std::size_t i = shard.first; i < shard.last; ++i) {
    planned.push_back({exported_name(order.config, table.tensors()[i].name), table.tensors()[i].shape,
                       stored_type(order.dtype).safetensors});
  }
  io::SafetensorsWriter writer(path, planned);
  std::vector<float> chunk;
  for (std::size_t i = shard.first; i < shard.last; ++i) {
    for_each_chunk(table.tensors()[i].extent(), [&](std::int64_t first, std::int64_t count) {
      chunk.resize(static_cast<std::size_t>(count));
      read(i, first, count, chunk.data());
      writer.append(chunk.data(), count);
    });
  }
  writer.close();
}

/// tokenizer_config.json, which tells AutoTokenizer the class of the tokenizer's file.
nlohmann::ordered_json tokenizer_config(const io::Tokenizer& tokenizer, std::int64_t seq) {
  const bool is_sentencepiece = tokenizer.file_name() == io::kTokenizerModelFile;
  nlohmann::ordered_json json = {{"tokenizer_class", is_sentencepiece ? "LlamaTokenizer" : "PreTrainedTokenizerFast"},
                                 {"model_max_length", seq},
                                 {"clean_up_tokenization_spaces", false}};
  if (is_sentencepiece) {
    json["add_bos_token"] = false;
  } else if (tokenizer.end_of_text() >= 0 && tokenizer.name() != "bytes") {  // its end of text is an ordinary byte
    const std::array<Token, 1> id = {tokenizer.end_of_text()};
    json["bos_token"] = json["eos_token"] = tokenizer.decode(id);
  }
  return json;
}

/// How to load a tokenizer whose ids transformers' AutoTokenizer would change; "" if it would not.
std::string note_on_loading(const ExportOrder& order, const io::Tokenizer& tokenizer,
                            const std::string& tokenizer_file) {
  const std::string& type = exported_type(order.config);
  const io::PublishedSplit& forced = io::published_split(architecture(type).split);
  if (forced.name != std::string_view(architecture(type).split)) return "";
  if (dynamic_cast<const io::CharacterTokenizer*>(&tokenizer) == nullptr) {
    const io::TokenizerJson own = io::read_tokenizer_json(
        tokenizer_file, io::read_whole_file(tokenizer_file, std::numeric_limits<std::int64_t>::max()));
    if (own.split == forced.expression && own.nfc == forced.nfc) return "";
  }
  return "AutoTokenizer splits text for " + type + " as " + forced.name +
         " do, which gives other ids than this tokenizer; load it with PreTrainedTokenizerFast.from_pretrained(\"" +
         order.out + "\")";
}

/// Writes the tokenizer's file unchanged (plain bytes as BPE), and its config. Returns the id of end-of-text, or -1.
int write_tokenizer(const ExportOrder& order, const FolderGuard& folder, std::vector<std::string>& notes) {
  if (order.tokenizer.empty()) {
    notes.emplace_back("the run has no tokenizer");
    return -1;
  }
  const auto tokenizer = io::make_tokenizer(order.tokenizer);
  const std::string file = folder / tokenizer->file_name();
  if (tokenizer->name() == "bytes") {
    io::write_whole_file(file, io::ByteTokenizer::hugging_face_text());
    notes.emplace_back(
        "its tokenizer is plain bytes, written as byte-level BPE without merges; documents begin with "
        "byte 0");
  } else {
    copy_tokenizer(order.tokenizer, file);
  }
  if (tokenizer->file_name() == io::kTokenizerModelFile) {
    notes.emplace_back(io::kTokenizerModelFile +
                       std::string(" is a SentencePiece model, which transformers reads if it is of BPE kind"));
  } else if (const std::string note = note_on_loading(order, *tokenizer, file); !note.empty()) {
    notes.push_back(note);
  }
  io::write_whole_file(folder / "tokenizer_config.json", tokenizer_config(*tokenizer, order.config.seq).dump(2) + "\n");
  return tokenizer->end_of_text();
}

/// Throws Error(deck) if `out` exists; with `force` only if it is not a weights file.
void require_free(const std::string& out, bool force) {
  const io::PathKind kind = io::path_kind(out);
  if (kind == io::PathKind::nothing) return;
  if (!force) {
    throw Error(Failure::deck, out + ": there is something already; name a file that is not there");
  }
  if (kind == io::PathKind::file) {
    static_cast<void>(io::read_weights_header(out));
    return;
  }
  throw Error(Failure::deck, out + ": --force replaces a weights file, and this is none; name another file");
}

}  // namespace

Exported export_folder(const ExportOrder& order, const ParameterTable& own) {
  const StoredType& type = stored_type(order.dtype);
  config_text(order.config, -1);
  const auto [table, read] = with_zero_biases(order, own, reader_of(order, own));

  FolderGuard folder(order.out, order.force);
  Exported result;
  const int end_of_text = write_tokenizer(order, folder, result.notes);
  if (!order.config.bias) {
    result.notes.emplace_back("model.bias = false: transformers' GPT-2 has biases, which are written as zeros");
  }
  const auto shards = shards_of(table, io::bytes_of_dtype(type.safetensors), order.max_shard_bytes);
  io::WeightMap map;
  for (std::size_t index = 0; index < shards.size(); ++index) {
    const std::string name = shard_name(index, shards.size());
    write_shard(folder / name, shards[index], order, table, read);
    result.bytes += shards[index].bytes;
    for (std::size_t i = shards[index].first; i < shards[index].last; ++i) {
      map.emplace(exported_name(order.config, table.tensors()[i].name), name);
    }
  }
  if (shards.size() > 1) {
    io::write_whole_file(folder / io::kSafetensorsIndex, io::safetensors_index_text(map, result.bytes));
  }
  io::write_whole_file(folder / "config.json", config_text(order.config, end_of_text, type.transformers));
  folder.commit();
  result.tensors = static_cast<std::int64_t>(map.size());
  result.files = static_cast<std::int64_t>(shards.size());
  return result;
}

Exported export_weights(const ExportOrder& order, const ParameterTable& table) {
  require_free(order.out, order.force);
  const TensorReader read = reader_of(order, table);
  io::WeightsDescription description =
      order.merged.read ? order.merged.description
                        : io::read_weights(*distributed::make_self_communicator(), order.weights, table, {});
  if (order.config.tie_embeddings) description.ties = io::tied_head(table);
  io::WeightsStream stream(order.out, table, description);
  std::vector<float> chunk;
  Exported result;
  result.files = 1;
  for (std::size_t i = 0; i < table.tensors().size(); ++i) {
    const auto& tensor = table.tensors()[i];
    for_each_chunk(tensor.extent(), [&](std::int64_t first, std::int64_t count) {
      chunk.resize(static_cast<std::size_t>(count));
      read(i, first, count, chunk.data());
      stream.write(i, first, chunk);
    });
    ++result.tensors;
    result.bytes += tensor.extent() * static_cast<std::int64_t>(sizeof(float));
  }
  stream.close();
  return result;
}

}  // namespace kozero::huggingface
