// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/exchange/chunks.hpp>
#include <kozero/exchange/import_folder.hpp>
#include <kozero/io/safetensors.hpp>
#include <kozero/io/tokenizer.hpp>
#include <kozero/io/weights_stream.hpp>

#include "copied_tokenizer.hpp"
#include "folder_guard.hpp"
#include "imported_deck.hpp"
#include "tensor_names.hpp"

namespace kozero::exchange {
namespace {

namespace fs = std::filesystem;

void write_weights(const std::string& path, const ImportOrder& order, const ParameterTable& table,
                   const std::vector<io::StoredTensor>& tensors) {
  io::WeightsStream stream(path, {.model = order.description});
  std::vector<float> piece;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    auto dataset = stream.create(table.rows()[i]);
    for_each_chunk(table.rows()[i].extent(), [&](std::int64_t first, std::int64_t count) {
      piece.resize(static_cast<std::size_t>(count));
      tensors[i].file->read(*tensors[i].entry, first, count, piece.data());
      dataset.write(first, first + count, piece.data());
    });
    dataset.close();
  }
  stream.close();
}

/// Copies tokenizer.json where KoZeRO can read it and its ids are the model's. Returns the reason where not.
std::string take_tokenizer(const ImportOrder& order, const FolderGuard& out) {
  const std::string path = (fs::path(order.folder) / "tokenizer.json").string();
  if (!fs::exists(path)) return order.folder + " has no tokenizer.json: give data.tokens, not data.text";
  try {
    const int vocab = io::make_tokenizer(path)->vocab_size();
    if (vocab > order.config.vocab) {
      return path + ": its " + std::to_string(vocab) + " ids are more than the model's " +
             std::to_string(order.config.vocab) + "; left out: give data.tokens, not data.text";
    }
  } catch (const Error& error) {
    return std::string(error.what()) + "; left out: give data.tokens, not data.text";
  }
  copy_tokenizer(path, out / "tokenizer.json");
  return "";
}

}  // namespace

Imported import_folder(const ImportOrder& order, const ParameterTable& table) {
  const io::SafetensorsFolder source(order.folder);
  const auto tensors = tensors_of(order.config, table, source);
  FolderGuard folder(order.out);
  write_weights(folder / "weights.h5", order, table, tensors);
  Imported result;
  result.remark = take_tokenizer(order, folder);
  write_imported_deck(order.config, order.out, result.remark.empty(), folder / "deck.toml");
  folder.commit();
  result.tensors = static_cast<std::int64_t>(tensors.size());
  result.bytes = table.num_parameters() * static_cast<std::int64_t>(sizeof(float));
  return result;
}

}  // namespace kozero::exchange
