// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// trace.cpp: the search for the first difference, tensors gathered from shards, and traces in CBOR files.
#include <fmt/format.h>
#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include <kozero/core/error.hpp>
#include <kozero/core/views.hpp>
#include <kozero/distributed/agreement.hpp>
#include <kozero/distributed/communicator.hpp>
#include <kozero/run/trace.hpp>
#include "io/posix/file.hpp"

namespace kozero::run {

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }
bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }

std::uint64_t Trace::hash() const {
  std::uint64_t all = 0;
  for (const std::uint64_t one : hashes.back()) all = 31 * all + one;
  return all;
}

std::optional<Difference> difference(const Trace& first, const Trace& other) {
  const auto differing_tensor = [&](std::size_t step) -> std::optional<int> {
    const auto found = std::ranges::mismatch(first.hashes[step], other.hashes[step]).in1;
    if (found == first.hashes[step].end()) return std::nullopt;
    return static_cast<int>(found - first.hashes[step].begin());
  };
  for (std::size_t i = 0; i < first.losses.size(); ++i) {
    const auto say = [&](const char* what, double then, double now) {
      const std::optional<int> tensor = differing_tensor(i);
      return Difference{fmt::format("step {}: the {} is {:.17g} and was {:.17g}", i + 1, what, now, then),
                        tensor ? tensor : differing_tensor(first.losses.size() - 1)};
    };
    if (!same_bits(first.losses[i], other.losses[i])) return say("loss", first.losses[i], other.losses[i]);
    if (!same_bits(first.norms[i], other.norms[i])) return say("gradient norm", first.norms[i], other.norms[i]);
    const std::optional<int> tensor = differing_tensor(i);
    if (!tensor) continue;
    return Difference{
        fmt::format("step {}: the bits of {} after it", i + 1, first.tensors[static_cast<std::size_t>(*tensor)]),
        tensor};
  }
  return std::nullopt;
}

std::string element_difference(const std::string& tensor, const std::vector<float>& first,
                               const std::vector<float>& other, std::size_t step) {
  for (std::size_t i = 0; i < std::min(first.size(), other.size()); ++i) {
    if (same_bits(first[i], other[i])) continue;
    return fmt::format("{}[{}] is {:.9g} and was {:.9g} after step {}", tensor, i, other[i], first[i], step);
  }
  return "";
}

std::vector<float> whole_tensor(const ParameterTable& table, int tensor,
                                const distributed::DistributedArray<float>& master) {
  std::vector<float> all;
  for (const Parameter& row : table.rows_of_tensor(tensor)) {
    const UnitRange& shard = master.layout().shard(row.unit);
    const TensorPart part = row.part_in(shard.begin, shard.extent);
    std::string mine;
    if (part.extent > 0) {
      const auto values = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(),
                                                              slice(master.shard(row.unit), part.begin, part.extent));
      mine.assign(reinterpret_cast<const char*>(values.data()), values.extent(0) * sizeof(float));
    }
    for (const std::string& bytes : distributed::gather_text(master.comm(), mine)) {
      if (master.comm().rank() != 0 || bytes.empty()) continue;
      all.resize(all.size() + bytes.size() / sizeof(float));
      std::memcpy(all.data() + all.size() - bytes.size() / sizeof(float), bytes.data(), bytes.size());
    }
  }
  return all;
}

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 36;
constexpr std::size_t kMostElements = std::size_t{1} << 25;  // weights in a file, to find the first that differs

std::vector<std::uint64_t> bits_of(const std::vector<double>& values) {
  std::vector<std::uint64_t> bits;
  for (const double value : values) bits.push_back(std::bit_cast<std::uint64_t>(value));
  return bits;
}

std::vector<double> values_of(const std::vector<std::uint64_t>& bits) {
  std::vector<double> values;
  for (const std::uint64_t one : bits) values.push_back(std::bit_cast<double>(one));
  return values;
}

}  // namespace

void write_trace(const std::string& path, const Trace& trace) {
  nlohmann::json json = {{"losses", bits_of(trace.losses)}, {"norms", bits_of(trace.norms)},
                         {"hashes", trace.hashes},          {"tensors", trace.tensors},
                         {"threads", trace.threads},        {"weights", nlohmann::json::array()}};
  std::size_t elements = 0;
  for (const auto& tensor : trace.weights) elements += tensor.size();
  for (const auto& tensor : trace.weights) {
    if (elements > kMostElements) break;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(tensor.data());
    json["weights"].push_back(nlohmann::json::binary({bytes, bytes + tensor.size() * sizeof(float)}));
  }
  std::string bytes;
  nlohmann::json::to_cbor(json, bytes);
  io::write_whole_file(path, bytes);
}

Trace read_trace(const std::string& path) {
  const std::string bytes = io::read_whole_file(path, kMostBytes);
  try {
    const auto json = nlohmann::json::from_cbor(bytes);
    Trace trace{.losses = values_of(json.at("losses")),
                .norms = values_of(json.at("norms")),
                .hashes = json.at("hashes"),
                .tensors = json.at("tensors"),
                .threads = json.at("threads"),
                .weights = {}};
    for (const auto& tensor : json.at("weights")) {
      const auto& data = tensor.get_binary();
      auto& values = trace.weights.emplace_back(data.size() / sizeof(float));
      if (!values.empty()) std::memcpy(values.data(), data.data(), values.size() * sizeof(float));
    }
    const bool is_whole =
        !trace.losses.empty() && trace.norms.size() == trace.losses.size() &&
        trace.hashes.size() == trace.losses.size() &&
        (trace.weights.empty() || trace.weights.size() == trace.tensors.size()) &&
        std::ranges::all_of(trace.hashes, [&](const auto& of_step) { return of_step.size() == trace.tensors.size(); });
    if (is_whole) return trace;
  } catch (const nlohmann::json::exception&) {  // reported below
  }
  throw Error(Failure::input, path + ": no whole trace of verify; remove it to have it written anew");
}

}  // namespace kozero::run
