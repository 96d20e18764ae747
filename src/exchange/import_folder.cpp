// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/exchange/chunks.hpp>
#include <kozero/exchange/folder_tokenizer.hpp>
#include <kozero/exchange/import_folder.hpp>
#include <kozero/exchange/imported_deck.hpp>
#include <kozero/io/safetensors.hpp>
#include <kozero/io/weights_stream.hpp>

#include "copied_tokenizer.hpp"
#include "folder_guard.hpp"
#include "tensor_names.hpp"

namespace kozero::exchange {
namespace {

namespace fs = std::filesystem;

void write_weights(const std::string& path, const ImportOrder& order, const ParameterTable& table,
                   const std::vector<io::StoredTensor>& tensors) {
  const auto ties = order.config.tie_embeddings ? io::tied_head(table) : io::Ties();
  io::WeightsStream stream(path, table, {.model = order.description, .ties = ties});
  std::vector<float> piece;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for_each_chunk(table.rows()[i].extent(), [&](std::int64_t first, std::int64_t count) {
      piece.resize(static_cast<std::size_t>(count));
      tensors[i].file->read(*tensors[i].entry, first, count, piece.data());
      stream.write(i, first, piece);
    });
  }
  stream.close();
}

/// The tokenizer's name in OUT, "" where none comes along; `remark` says why.
std::string take_tokenizer(const ImportOrder& order, const FolderGuard& out, std::string& remark) {
  const FolderTokenizer found = tokenizer_of(order.folder, order.config.vocab);
  if (found.path.empty()) {
    remark = found.reason + (found.is_there ? "; left out" : "") + ": give data.tokens, not data.text";
    return "";
  }
  const std::string name = fs::path(found.path).filename().string();
  copy_tokenizer(found.path, out / name);
  return name;
}

}  // namespace

Imported import_folder(const ImportOrder& order, const ParameterTable& table) {
  const io::SafetensorsFolder source(order.folder);
  const auto tensors = tensors_of(order.config, table, source);
  FolderGuard folder(order.out);
  write_weights(folder / "weights.h5", order, table, tensors);
  Imported result;
  const std::string tokenizer = take_tokenizer(order, folder, result.remark);
  const std::string tokenizer_path = tokenizer.empty() ? "" : (fs::path(order.out) / tokenizer).string();
  io::write_resolved(imported_deck(order.config, order.out, tokenizer_path), folder / "deck.toml");
  folder.commit();
  result.tensors = static_cast<std::int64_t>(tensors.size());
  result.bytes = table.num_parameters() * static_cast<std::int64_t>(sizeof(float));
  return result;
}

}  // namespace kozero::exchange
