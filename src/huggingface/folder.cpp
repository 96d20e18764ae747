// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// folder.cpp: the map of tensor names, and creation, commit and removal of the output folder.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include <kozero/core/error.hpp>
#include <kozero/huggingface/adapters.hpp>
#include "io/checkpoint/weights_file.hpp"
#include "io/hdf5/file.hpp"
#include "io/posix/file.hpp"
#include "io/run/run_folder.hpp"
#include "src/huggingface/adapter_config.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/folder.hpp"

namespace kozero::huggingface {

namespace fs = std::filesystem;
namespace {

constexpr const char* kHead = "lm_head.weight";

/// The tensor under its plain name, or under transformers' prefixed name.
std::optional<io::StoredTensor> find(const model::Config& config, const std::string& name,
                                     const io::SafetensorsFolder& folder, std::set<std::string>& used) {
  const auto& tensors = folder.tensors();
  const auto plain = tensors.find(name);
  const std::string exported = exported_name(config, name);
  const auto prefixed = exported == name ? tensors.end() : tensors.find(exported);
  if (plain != tensors.end() && prefixed != tensors.end()) {
    refuse_tensor(folder.path(), name, "it is there with and without the prefix " + tensor_names(config).prefix);
  }
  const auto found = plain != tensors.end() ? plain : prefixed;
  if (found == tensors.end()) return std::nullopt;
  used.insert(found->first);
  return found->second;
}

void check(const io::StoredTensor& tensor, const std::vector<std::int64_t>& shape) {
  const auto& entry = *tensor.entry;
  if (entry.shape != shape) {
    refuse_tensor(tensor.file->path(), entry.name,
                  "shape " + io::shape_text(entry.shape) + ", config.json makes it " + io::shape_text(shape));
  }
  if (entry.dtype != "F32" && entry.dtype != "F16" && entry.dtype != "BF16") {
    refuse_tensor(tensor.file->path(), entry.name, "dtype " + entry.dtype + "; accepted are F32, F16, BF16");
  }
}

/// Names of constants that old versions of transformers stored beside the weights.
std::set<std::string> buffers_of(const model::Config& config) {
  std::set<std::string> names;
  const TensorNames& format = tensor_names(config);
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    for (std::string buffer : format.buffers) {
      buffer.replace(buffer.find('*'), 1, std::to_string(layer));
      names.insert(buffer);
      names.insert(format.prefix + buffer);
    }
  }
  return names;
}

/// Two copies of tied matrices in a file must have equal bits.
void check_tied_copy(const io::StoredTensor& head, const io::StoredTensor& embedding) {
  check(head, embedding.entry->shape);
  for_each_chunk(head.entry->extent(), [&, ours = std::vector<float>(), theirs = std::vector<float>()](
                                           std::int64_t first, std::int64_t count) mutable {
    ours.resize(static_cast<std::size_t>(count));
    theirs.resize(static_cast<std::size_t>(count));
    head.file->read(*head.entry, first, count, ours.data());
    embedding.file->read(*embedding.entry, first, count, theirs.data());
    if (std::memcmp(ours.data(), theirs.data(), ours.size() * sizeof(float)) != 0) {
      refuse_tensor(head.file->path(), head.entry->name,
                    "config.json ties it to " + embedding.entry->name + ", but their values differ");
    }
  });
}

/// Whether a folder has an exported model or exported adapters.
bool holds_export(const std::string& folder) {
  return io::is_hugging_face_folder(folder) || io::is_there(folder + "/" + kAdapterConfig);
}

/// Throws Error(deck) if `out` exists and may not be replaced.
void require_free(const std::string& out, bool force) {
  std::error_code problem;
  if (!fs::exists(out, problem) || (fs::is_directory(out, problem) && fs::is_empty(out, problem))) return;
  const bool is_export = holds_export(out);
  if (force && is_export) return;
  throw Error(
      Failure::deck,
      out + (force ? ": --force replaces an exported model, and this is none; name another folder"
             : is_export
                 ? ": there is an exported model already; name another folder, or replace it by `export --force`"
                 : ": there is something already; name a folder that is not there or is empty"));
}

}  // namespace

void refuse_tensor(const std::string& path, const std::string& tensor, const std::string& reason) {
  throw Error(Failure::input, path + ": tensor " + io::shown(tensor) + ": " + reason);
}

const StoredType& stored_type(const std::string& name) {
  static constexpr std::array<StoredType, 3> kTypes = {
      {{"f32", "F32", "float32"}, {"bf16", "BF16", "bfloat16"}, {"f16", "F16", "float16"}}};
  for (const auto& type : kTypes) {
    if (name == type.name || name == type.transformers) return type;
  }
  if (name == "fp16") return kTypes.back();  // the deck's word
  throw Error(Failure::deck, "--dtype " + name + ": accepted are f32, bf16, f16");
}

std::string exported_name(const model::Config& config, const std::string& name) {
  return name == kHead ? name : tensor_names(config).prefix + name;
}

std::vector<io::StoredTensor> tensors_of(const model::Config& config, const ParameterTable& table,
                                         const io::SafetensorsFolder& folder) {
  std::set<std::string> used;
  std::vector<io::StoredTensor> tensors;
  for (const auto& wanted : table.tensors()) {
    const auto found = find(config, wanted.name, folder, used);
    if (!found) refuse_tensor(folder.path(), wanted.name, "it is missing");
    check(*found, wanted.shape);
    tensors.push_back(*found);
  }
  const auto head = folder.tensors().find(kHead);
  if (config.tie_embeddings && head != folder.tensors().end()) {
    check_tied_copy(head->second, tensors.front());
    used.insert(kHead);
  }
  const auto buffers = buffers_of(config);
  for (const auto& [name, tensor] : folder.tensors()) {
    if (used.contains(name) || buffers.contains(name)) continue;
    refuse_tensor(tensor.file->path(), name, "it is not one of the model's");
  }
  return tensors;
}

void read_finite(const io::StoredTensor& tensor, std::int64_t first, std::int64_t count, float* to) {
  const io::TensorEntry& entry = *tensor.entry;
  tensor.file->read(entry, first, count, to);
  io::require_finite(tensor.file->path(), {entry.name, entry.shape}, first, {to, static_cast<std::size_t>(count)});
}

void read_shard(const ParameterTable& table, const std::vector<io::StoredTensor>& tensors,
                const io::RangeValues<float>& shard) {
  std::fill_n(shard.values.data(), shard.values.extent(0), 0.0F);
  for (const Parameter& row : table.rows_of(shard.unit)) {
    const TensorPart part = row.part_in(shard.begin, static_cast<std::int64_t>(shard.values.extent(0)));
    if (part.extent == 0) continue;
    const io::StoredTensor& tensor = tensors[static_cast<std::size_t>(row.tensor)];
    for_each_chunk(part.extent, [&](std::int64_t first, std::int64_t count) {
      read_finite(tensor, part.first + first, count, shard.values.data() + part.begin + first);
    });
  }
}

TensorReader file_tensors(const std::string& file, const ParameterTable& table) {
  const auto opened = std::make_shared<const io::Hdf5File>(file, io::Hdf5Access::read);
  return [opened, file, &table](std::size_t index, std::int64_t first, std::int64_t count, float* to) {
    const Tensor& tensor = table.tensors()[index];
    opened->open_dataset(io::weights_dataset(tensor.name)).read(first, first + count, to);
    io::require_finite(file, tensor, first, {to, static_cast<std::size_t>(count)});
  };
}

FolderGuard::FolderGuard(const std::string& out, bool force) : out_((fs::path(out) / "").parent_path().string()) {
  if (out_.empty()) throw Error(Failure::deck, "OUT = \"" + out + "\": accepted is the path of a folder");
  require_free(out_, force);
  std::error_code problem;
  partial_ = io::partial_name(out_);
  fs::remove_all(partial_, problem);
  fs::create_directories(partial_, problem);
  if (problem) throw Error(Failure::write, partial_ + ": cannot make the folder: " + problem.message());
}

FolderGuard::~FolderGuard() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(partial_, ignored);
}

void FolderGuard::commit() {
  std::error_code problem;
  const std::string old = out_ + ".replaced";
  fs::remove_all(old, problem);
  if (holds_export(out_)) fs::rename(out_, old, problem);
  if (problem) throw Error(Failure::write, out_ + ": cannot be replaced: " + problem.message());
  io::publish(out_);
  fs::remove_all(old, problem);
  committed_ = true;
}

}  // namespace kozero::huggingface
