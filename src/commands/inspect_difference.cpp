// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <kozero/dist/agreed.hpp>
#include <kozero/io/deck.hpp>
#include <kozero/io/tensor_difference.hpp>

#include "inspect_difference.hpp"

namespace kozero::commands {
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
  const auto place = io::place_of(found.first, tensor.shape);
  all.lines.push_back(fmt::format("{}: first at ({}): {} and {}; {} of {} differ, by at most {}", tensor.name,
                                  fmt::join(place, ", "), digits_of(found.a), digits_of(found.b), found.count,
                                  tensor.extent(), found.largest));
  all.json["tensors"].push_back({{"name", tensor.name},
                                 {"first", place},
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
