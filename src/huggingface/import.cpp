// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// import.cpp: reads tensors, tokenizer and config of a Hugging Face folder, and writes a run's folder from them.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <vector>

#include <kozero/core/error.hpp>
#include <kozero/huggingface/import.hpp>
#include "io/checkpoint/weights_file.hpp"
#include "io/deck/schema.hpp"
#include "io/posix/file.hpp"
#include "io/run/run_folder.hpp"
#include "io/safetensors/reader.hpp"
#include "io/text/tokenizer.hpp"
#include "src/huggingface/config_json.hpp"
#include "src/huggingface/folder.hpp"

namespace kozero::huggingface {

model::Config read_folder_config(const std::string& folder, std::vector<std::string>* notes) {
  constexpr std::int64_t kLeastOfLayer = 9;  // tensors: those of a Llama layer
  const std::string path = folder + "/config.json";
  model::Config config = read_config(path, notes);
  const io::SafetensorsFolder files(folder);
  if (notes != nullptr && !files.note().empty()) notes->push_back(files.note());
  const auto tensors = static_cast<std::int64_t>(files.tensors().size());
  if (config.layers * kLeastOfLayer <= tensors) return config;
  throw Error(Failure::input, path + ": " + std::to_string(config.layers) + " layers have " +
                                  std::to_string(config.layers * kLeastOfLayer) + " tensors and more, the folder has " +
                                  std::to_string(tensors));
}

FolderWeights::FolderWeights(const std::string& folder, const model::Config& config, const ParameterTable& table)
    : table_(table), folder_(folder), tensors_(tensors_of(config, table, folder_)) {}

void FolderWeights::read(const io::RangeValues<float>& shard) const { read_shard(table_, tensors_, shard); }

namespace {

/// Why a file cannot be the model's tokenizer; "" if it can.
std::string objection(const std::string& path, std::int64_t vocab) {
  try {
    const int ids = io::make_tokenizer(path)->vocab_size();
    if (ids <= vocab) return "";
    return path + ": its " + std::to_string(ids) + " ids are more than the model's " + std::to_string(vocab);
  } catch (const Error& error) {
    return error.what();
  }
}

io::RopeScalingKeys as_key(const model::RopeScaling& scaling) {
  return {shortest(scaling.factor), shortest(scaling.low_freq_factor), shortest(scaling.high_freq_factor),
          scaling.original_seq};
}
double as_key(float value) { return shortest(value); }
template <class T>
T as_key(const T& value) {
  return value;
}

/// Sets a key and the origin of its value.
template <class T>
void set(io::Deck& deck, const std::string& key, const T& value, const char* origin) {
  *std::get<T*>(io::find_row(key)->value_in(deck)) = value;
  deck.origins[key] = origin;
}

namespace fs = std::filesystem;

void write_weights(const std::string& path, const ImportOrder& order, const ParameterTable& table,
                   const std::vector<io::StoredTensor>& tensors) {
  const auto ties = order.config.tie_embeddings ? io::tied_head(table) : io::Ties();
  io::WeightsStream stream(path, table, {.model = order.description, .ties = ties});
  std::vector<float> chunk;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for_each_chunk(table.tensors()[i].extent(), [&](std::int64_t first, std::int64_t count) {
      chunk.resize(static_cast<std::size_t>(count));
      read_finite(tensors[i], first, count, chunk.data());
      stream.write(i, first, chunk);
    });
  }
  stream.close();
}

/// Copies the tokenizer and returns its name in OUT; "" if there is none, with the reason in `remark`.
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

/// The tensors' types, each once, by their names in KoZeRO.
std::string dtypes_of(const std::vector<io::StoredTensor>& tensors) {
  std::set<std::string> types;
  for (const auto& tensor : tensors) types.insert(tensor.entry->dtype);
  std::string text;
  for (const auto& type : types) text += (text.empty() ? "" : " and ") + type;
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char letter) { return std::tolower(letter); });
  return text;
}

}  // namespace

FolderTokenizer tokenizer_of(const std::string& folder, std::int64_t vocab) {
  FolderTokenizer found;
  for (const char* name : {io::kTokenizerFile, io::kTokenizerModelFile}) {
    const std::string path = (std::filesystem::path(folder) / name).string();
    if (!io::is_there(path)) continue;
    found.is_there = true;
    const std::string reason = objection(path, vocab);
    if (reason.empty()) return {path, "", true};
    if (found.reason.empty()) found.reason = reason;
  }
  if (!found.is_there) {
    found.reason = folder + " has no " + io::kTokenizerFile + " and no " + io::kTokenizerModelFile;
  }
  return found;
}

io::Deck imported_deck(const model::Config& config, const std::string& run_dir, const std::string& tokenizer) {
  using Texts = std::vector<std::string>;
  io::Deck deck;
  model::for_each_field(config, [&](const model::Field& field, const auto& value) {
    if (config.rotary ? field.biased : field.rotary) return;
    set(deck, std::string("model.") + field.name, as_key(value), "config.json");
  });
  set(deck, "run.dir", run_dir, "import");
  set(deck, "run.steps", std::int64_t{1}, "import");
  set(deck, "train.global_batch", std::int64_t{8}, "import");
  set(deck, "train.micro_batch", std::int64_t{1}, "import");
  set(deck, "data.val_fraction", 0.0, "import");
  if (!tokenizer.empty()) {
    set(deck, "data.text", Texts{"give-data.text"}, "import: names no data");
    set(deck, "data.tokenizer", tokenizer, "import");
  } else {
    set(deck, "data.tokens", Texts{"give-data.tokens"}, "import: names no data");
  }
  return deck;
}

Imported import_folder(const ImportOrder& order, const ParameterTable& table) {
  const io::SafetensorsFolder source(order.folder);
  const auto tensors = tensors_of(order.config, table, source);
  FolderGuard folder(order.out);
  write_weights(folder / io::kWeightsFile, order, table, tensors);
  Imported result;
  const std::string tokenizer = take_tokenizer(order, folder, result.remark);
  const std::string tokenizer_path = tokenizer.empty() ? "" : (fs::path(order.out) / tokenizer).string();
  io::write_resolved(imported_deck(order.config, order.out, tokenizer_path), folder / io::kDeckFile);
  folder.commit();
  result.tensors = static_cast<std::int64_t>(tensors.size());
  result.dtypes = dtypes_of(tensors);
  result.bytes = table.num_parameters() * static_cast<std::int64_t>(sizeof(float));
  return result;
}

}  // namespace kozero::huggingface
