// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// inspected.cpp: finds and verifies what `inspect` reads, and compares two checkpoints or weights files.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <sstream>

#include <kozero/core/error.hpp>
#include <kozero/dist/communicator.hpp>
#include <kozero/dist/make_communicator.hpp>
#include <kozero/train/run_files.hpp>
#include <kozero/train/settings.hpp>
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/inspection.hpp"
#include "io/checkpoint/weights_file.hpp"
#include "io/deck/deck.hpp"
#include "io/posix/file.hpp"
#include "io/posix/readable.hpp"
#include "io/run/run_folder.hpp"
#include "src/commands/inspected.hpp"

namespace kozero::commands {
namespace {

/// The checkpoint or weights file that the path names.
std::string subject_of(const std::string& given) {
  using Kind = train::NamedPath::Kind;
  const train::NamedPath named = train::named_path(given);
  if (named.kind == Kind::checkpoint || named.kind == Kind::weights_file) return named.path;
  const std::string checkpoint = named.kind == Kind::run ? train::newest_checkpoint(named.path) : "";
  if (!checkpoint.empty()) return checkpoint;
  const std::string weights = named.path + "/" + train::kWeightsFile;
  if (io::is_there(weights)) return weights;
  throw Error(Failure::deck, given +
                                 ": nothing to inspect; accepted are a checkpoint (step_...), a run's folder that "
                                 "has one, a weights file");
}

/// Rows and optimizer states by the same parts that train, without memory for them.
std::vector<io::ListedTensor> by_deck(const io::Deck& deck) {
  MemoryLedger ledger(MemoryLedger::Mode::plan);
  const auto comm = dist::make_planned_communicator("self", 0, 1, ledger);
  train::Settings settings = train::settings_of(deck, 1, 0, 0);
  settings.staged = false;
  const auto engine = train::make_engine(settings, *comm, ledger);
  std::vector<std::string> groups = {"/parameters"};
  for (const auto& state : engine->optimizer_states()) groups.push_back("/optimizer/" + state.name);
  std::sort(groups.begin() + 1, groups.end());
  std::vector<io::ListedTensor> tensors;
  for (const auto& group : groups) {
    const auto first = static_cast<std::ptrdiff_t>(tensors.size());
    for (const auto& row : engine->parameters().rows()) {
      tensors.push_back({group + "/" + row.name, row.shape});
    }
    std::sort(tensors.begin() + first, tensors.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  return tensors;
}

std::string hdf5_file_of(const Inspected& inspected) {
  return inspected.manifest ? inspected.path + "/" + io::kStateFile : inspected.path;
}

}  // namespace

Inspected find_inspected(const std::string& path, dist::Communicator& comm) {
  Inspected inspected;
  inspected.path = dist::from_first_rank(comm, [&] { return subject_of(path); });
  const std::string kind =
      dist::from_first_rank(comm, [&] { return io::is_folder(inspected.path) ? "checkpoint" : "weights"; });
  if (kind == "checkpoint") {
    inspected.manifest = io::read_manifest(comm, inspected.path);
    inspected.record = inspected.manifest->record;
    return inspected;
  }
  const auto description = io::read_weights_header(comm, inspected.path);
  inspected.record.step = description.step;
  inspected.record.tokens = description.tokens;
  inspected.record.model = description.model;
  return inspected;
}

std::vector<io::ListedTensor> tensors_of(const Inspected& inspected) {
  return by_deck(io::parse_deck(inspected.record.deck, inspected.path + "/" + io::kManifestFile));
}

std::string verified(const Inspected& inspected, dist::Communicator& comm) {
  if (!inspected.manifest) {
    io::verify_weights_header(comm, inspected.path);
    return fmt::format("verified     {}: every byte is as it was written", inspected.path);
  }
  const io::Manifest manifest = io::verify_checkpoint(comm, inspected.path);
  std::int64_t bytes = 0;
  for (const auto& [name, hashes] : manifest.files) bytes += hashes.size;
  return fmt::format("verified     {}: every byte of {} files, {}, is as it was written", inspected.path,
                     manifest.files.size(), io::readable_bytes(bytes));
}

io::Hdf5File opened(const Inspected& inspected, dist::Communicator& comm) {
  if (inspected.manifest) io::verify_checkpoint(comm, inspected.path);
  if (!inspected.manifest) io::verify_weights_header(comm, inspected.path);
  return dist::agreed(comm, [&] { return io::Hdf5File(hdf5_file_of(inspected), io::Hdf5Access::read); });
}

namespace {

/// What a record says, one line a field.
std::map<std::string, std::string> fields_of(const Inspected& inspected) {
  const io::CheckpointRecord& record = inspected.record;
  std::map<std::string, std::string> fields = {{"step", std::to_string(record.step)},
                                               {"tokens", std::to_string(record.tokens)}};
  const auto model = nlohmann::json::parse(record.model, nullptr, /*allow_exceptions=*/false);
  for (const auto& [key, value] : model.items()) fields["model " + key] = value.dump();
  if (!inspected.manifest) return fields;
  fields["optimizer start"] = std::to_string(record.optimizer_start);
  fields["data seed"] = std::to_string(record.seed);
  fields["data global batch"] = std::to_string(record.global_batch);
  fields["data samples"] = std::to_string(record.num_samples);
  fields["tokenizer"] = record.tokenizer;
  if (const auto& scale = record.loss_scale) {
    fields["loss scale"] = fmt::format("{:.0f}", scale->scale);
    fields["loss scale good steps"] = std::to_string(scale->good_steps);
  }
  std::istringstream keys(io::fingerprint(io::parse_deck(record.deck, inspected.path + "/" + io::kManifestFile)));
  for (std::string line; std::getline(keys, line);) {
    const auto colon = line.find(": ");
    fields["deck " + line.substr(0, colon)] = line.substr(colon + 2);
  }
  return fields;
}

void compare_records(const Inspected& a, const Inspected& b, Comparison& all) {
  const auto fields_a = fields_of(a);
  const auto fields_b = fields_of(b);
  all.json["record"] = nlohmann::ordered_json::object();
  for (const auto& [field, value] : fields_a) {
    const auto other = fields_b.find(field);
    if (other == fields_b.end() || other->second == value) continue;
    all.lines.push_back(fmt::format("{}: {} and {}", field, value, other->second));
    all.json["record"][field] = {value, other->second};
  }
}

/// Shortest digits that read back as the same value; a NaN by its bits.
std::string digits_of(float value) {
  if (!std::isnan(value)) return fmt::format("{}", value);
  return fmt::format("nan ({:#010x})", std::bit_cast<std::uint32_t>(value));
}

void add_missing(const io::ListedTensor& tensor, const std::string& holder, Comparison& all) {
  ++all.different;
  all.lines.push_back(fmt::format("{}: only in {}", tensor.name, holder));
  all.json["tensors"].push_back({{"name", tensor.name}, {"only_in", holder}});
}

void add_shapes(const io::ListedTensor& a, const io::ListedTensor& b, Comparison& all) {
  ++all.different;
  all.lines.push_back(
      fmt::format("{}: shape ({}) and ({})", a.name, fmt::join(a.shape, ", "), fmt::join(b.shape, ", ")));
  all.json["tensors"].push_back({{"name", a.name}, {"shapes", {a.shape, b.shape}}});
}

void add_values(const io::ListedTensor& tensor, const io::TensorDifference& found, Comparison& all) {
  if (found.count == 0) return;
  ++all.different;
  const auto index = io::index_of(found.first, tensor.shape);
  all.lines.push_back(fmt::format("{}: first at ({}): {} and {}; {} of {} differ, by at most {}", tensor.name,
                                  fmt::join(index, ", "), digits_of(found.a), digits_of(found.b), found.count,
                                  tensor.extent(), found.largest));
  all.json["tensors"].push_back({{"name", tensor.name},
                                 {"first", index},
                                 {"values", {digits_of(found.a), digits_of(found.b)}},
                                 {"count", found.count},
                                 {"largest", found.largest}});
}

}  // namespace

Comparison compared(const Inspected& a, const Inspected& b, const std::string& pattern, dist::Communicator& comm) {
  Comparison all;
  dist::agreed(comm, [&] { compare_records(a, b, all); });
  all.json["tensors"] = nlohmann::ordered_json::array();
  const io::Hdf5File file_a = opened(a, comm);
  const io::Hdf5File file_b = opened(b, comm);
  const auto tensors_a = dist::agreed(comm, [&] { return io::chosen_tensors(io::list_tensors(file_a), pattern); });
  const auto tensors_b = dist::agreed(comm, [&] { return io::chosen_tensors(io::list_tensors(file_b), pattern); });
  std::map<std::string, io::ListedTensor> others;
  for (const auto& tensor : tensors_b) others[tensor.name] = tensor;
  std::vector<io::ListedTensor> in_both;
  for (const auto& tensor : tensors_a) {
    ++all.tensors;
    const auto other = others.find(tensor.name);
    if (other == others.end()) {
      add_missing(tensor, a.path, all);
      continue;
    }
    if (other->second.shape == tensor.shape) in_both.push_back(tensor);
    if (other->second.shape != tensor.shape) add_shapes(tensor, other->second, all);
    others.erase(other);
  }
  for (const auto& [name, tensor] : others) {
    ++all.tensors;
    add_missing(tensor, b.path, all);
  }
  const auto found = io::differences_of(comm, file_a, file_b, in_both);
  for (std::size_t i = 0; i < in_both.size(); ++i) add_values(in_both[i], found[i], all);
  return all;
}

}  // namespace kozero::commands
