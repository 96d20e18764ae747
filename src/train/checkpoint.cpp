// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/io/weights.hpp>
#include <kozero/train/checkpoint.hpp>
#include <kozero/train/trained_weights.hpp>

namespace kozero::train {
namespace {

std::string group_of(const optim::NamedState& state) { return "optimizer/" + state.name; }

/// All that this rank holds of a state.
std::vector<DeviceSlice> held(const optim::NamedState& state, const std::vector<zero::Piece>& pieces) {
  std::vector<DeviceSlice> slices;
  for (const auto& piece : pieces) {
    const UnitRange& range = piece.range;
    slices.push_back({range.unit, range.begin, slice(state.values, range.first, range.extent)});
  }
  return slices;
}

/// What this rank owns of a state: of a whole unit its slice, so that every element has one writer.
std::vector<DeviceSlice> owned(const optim::NamedState& state, const std::vector<zero::Piece>& pieces,
                               const std::vector<UnitRange>& ranges) {
  std::vector<DeviceSlice> slices;
  for (const auto& whole : held(state, pieces)) {
    const auto mine = std::ranges::lower_bound(ranges, whole.unit, {}, &UnitRange::unit);
    if (mine == ranges.end() || mine->unit != whole.unit) continue;
    slices.push_back({mine->unit, mine->begin, slice(whole.values, mine->begin - whole.begin, mine->extent)});
  }
  return slices;
}

void compare(std::vector<std::string>& differences, const std::string& what, const std::string& saved,
             const std::string& mine) {
  if (saved != mine) differences.push_back(fmt::format("{} is {} and was {}", what, mine, saved));
}

}  // namespace

std::vector<StateGroup> owned_state(const Parts& parts) {
  const zero::Weights& weights = parts.state.weights();
  std::vector<StateGroup> groups = {{io::kParameterGroup, slices_of(weights)}};
  for (const auto& state : parts.optimizer.states()) {
    groups.push_back({group_of(state), owned(state, parts.state.pieces(), weights.my_ranges())});
  }
  return groups;
}

io::Ties ties_of(const model::Network& network) {
  return network.config().tie_embeddings ? io::tied_head(network.parameters()) : io::Ties();
}

io::CheckpointContents contents_of(const Parts& parts, const io::CheckpointRecord& record,
                                   const std::map<std::string, std::string>& texts, std::vector<HostSlices>& slices) {
  io::CheckpointContents contents{record, {}, texts, ties_of(parts.network)};
  for (const auto& group : owned_state(parts)) {
    slices.emplace_back(group.slices).fetch();
    contents.groups.push_back({group.name, slices.back().named<const float>()});
  }
  return contents;
}

std::int64_t save_checkpoint(const std::string& folder, const Parts& parts, const io::CheckpointRecord& record,
                             const std::map<std::string, std::string>& texts) {
  std::vector<HostSlices> slices;
  const auto contents = contents_of(parts, record, texts, slices);
  return io::write_checkpoint(parts.comm, folder, parts.network.parameters(), contents);
}

std::vector<std::string> load_state(const std::string& file, const Parts& parts, dist::Communicator& control) {
  std::vector<HostSlices> slices = {HostSlices(slices_of(parts.state.weights()))};
  std::vector<io::TensorGroup<float>> groups = {{io::kParameterGroup, slices[0].named<float>()}};
  for (const auto& state : parts.optimizer.states()) {
    slices.emplace_back(held(state, parts.state.pieces()));
    groups.push_back({group_of(state), slices.back().named<float>()});
  }
  const auto absent = io::read_tensor_file(control, file, parts.network.parameters(), groups);
  for (std::size_t i = 0; i < (absent.empty() ? slices.size() : 1); ++i) slices[i].store();
  parts.state.weights().publish();
  return absent;
}

std::string identity_of(const io::Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return "none";
  std::string bytes;
  for (Token id = 0; id < tokenizer->vocab_size(); ++id) {
    const std::string token = tokenizer->decode(std::vector<Token>{id});
    bytes += std::to_string(token.size()) + ":" + token;
  }
  return fmt::format("{} {}", tokenizer->name(), io::xxh3_128(bytes));
}

std::vector<std::string> disagreements(const io::CheckpointRecord& saved, const io::CheckpointRecord& mine) {
  std::vector<std::string> differences;
  const auto model_then = nlohmann::ordered_json::parse(saved.model);
  const auto model_now = nlohmann::ordered_json::parse(mine.model);
  const auto text_in = [](const auto& model, const std::string& key) {
    return model.contains(key) ? model[key].dump() : std::string("not given");
  };
  for (const auto& [key, value] : model_now.items()) {
    compare(differences, "model." + key, text_in(model_then, key), value.dump());
  }
  for (const auto& [key, value] : model_then.items()) {
    if (!model_now.contains(key)) compare(differences, "model." + key, value.dump(), text_in(model_now, key));
  }
  compare(differences, "the tokenizer", saved.tokenizer, mine.tokenizer);
  compare(differences, "the global batch", std::to_string(saved.global_batch), std::to_string(mine.global_batch));
  return differences;
}

}  // namespace kozero::train
