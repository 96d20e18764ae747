// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdio>
#include <vector>

#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/dist/self_communicator.hpp>
#include <kozero/exchange/chunks.hpp>
#include <kozero/exchange/config_json.hpp>
#include <kozero/exchange/export_folder.hpp>
#include <kozero/io/hdf5_file.hpp>
#include <kozero/io/safetensors.hpp>
#include <kozero/io/safetensors_index.hpp>
#include <kozero/io/safetensors_writer.hpp>
#include <kozero/io/tokenizer.hpp>
#include <kozero/io/weights.hpp>
#include <kozero/io/whole_file.hpp>

#include "copied_tokenizer.hpp"
#include "folder_guard.hpp"
#include "tensor_names.hpp"

namespace kozero::exchange {
namespace {

/// Rows [first, last) of the table in one file.
struct Shard {
  std::size_t first = 0;
  std::size_t last = 0;
  std::int64_t bytes = 0;
};

std::int64_t bytes_of(const Parameter& row) { return row.extent() * static_cast<std::int64_t>(sizeof(float)); }

/// Consecutive rows, as many as fit.
std::vector<Shard> shards_of(const ParameterTable& table, std::int64_t most) {
  std::vector<Shard> shards(1);
  for (std::size_t i = 0; i < table.rows().size(); ++i) {
    const std::int64_t bytes = bytes_of(table.rows()[i]);
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

void write_shard(const std::string& path, const Shard& shard, const ExportOrder& order, const ParameterTable& table,
                 const io::Hdf5File& weights) {
  std::vector<io::PlannedTensor> planned;
  for (std::size_t i = shard.first; i < shard.last; ++i) {
    planned.push_back({exported_name(order.config, table.rows()[i].name), table.rows()[i].shape});
  }
  io::SafetensorsWriter writer(path, planned);
  std::vector<float> piece;
  for (std::size_t i = shard.first; i < shard.last; ++i) {
    const auto dataset = weights.open_dataset(io::weights_dataset(table.rows()[i].name));
    for_each_chunk(table.rows()[i].extent(), [&](std::int64_t first, std::int64_t count) {
      piece.resize(static_cast<std::size_t>(count));
      dataset.read(first, first + count, piece.data());
      writer.append(piece.data(), count);
    });
  }
  writer.close();
}

/// tokenizer.json as it is, and what AutoTokenizer needs beside it. Returns the id of end-of-text, or -1.
int write_tokenizer(const ExportOrder& order, const FolderGuard& folder, std::string& remark) {
  if (order.tokenizer.empty()) {
    remark = "the run has no tokenizer";
    return -1;
  }
  const auto tokenizer = io::make_tokenizer(order.tokenizer);
  copy_tokenizer(order.tokenizer, folder / "tokenizer.json");
  if (tokenizer->name() == "bytes") {
    remark = "its tokenizer is plain bytes, which Hugging Face has no class for; token ids are the text's bytes";
    return -1;
  }
  const int end_of_text = tokenizer->end_of_text();
  nlohmann::ordered_json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                 {"model_max_length", order.config.seq},
                                 {"clean_up_tokenization_spaces", false}};
  if (end_of_text >= 0) {
    const std::array<Token, 1> id = {end_of_text};
    json["bos_token"] = json["eos_token"] = tokenizer->decode(id);
  }
  io::write_whole_file(folder / "tokenizer_config.json", json.dump(2) + "\n");
  return end_of_text;
}

}  // namespace

Exported export_folder(const ExportOrder& order, const ParameterTable& table) {
  config_text(order.config, -1);
  // With no slices, this reads nothing but compares every name and shape.
  io::read_weights(*dist::make_self_communicator(), order.weights, table, {});
  const io::Hdf5File weights(order.weights, io::Hdf5Access::read, nullptr);

  FolderGuard folder(order.out);
  Exported result;
  const int end_of_text = write_tokenizer(order, folder, result.remark);
  const auto shards = shards_of(table, order.max_shard_bytes);
  io::WeightMap map;
  for (std::size_t index = 0; index < shards.size(); ++index) {
    const std::string name = shard_name(index, shards.size());
    write_shard(folder / name, shards[index], order, table, weights);
    result.bytes += shards[index].bytes;
    for (std::size_t i = shards[index].first; i < shards[index].last; ++i) {
      map.emplace(exported_name(order.config, table.rows()[i].name), name);
    }
  }
  if (shards.size() > 1) {
    io::write_whole_file(folder / io::kSafetensorsIndex, io::safetensors_index_text(map, result.bytes));
  }
  io::write_whole_file(folder / "config.json", config_text(order.config, end_of_text));
  folder.commit();
  result.tensors = static_cast<std::int64_t>(map.size());
  result.files = static_cast<std::int64_t>(shards.size());
  return result;
}

}  // namespace kozero::exchange
