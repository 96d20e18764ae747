// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <kozero/model/accept.hpp>
#include <kozero/model/architecture.hpp>
#include <kozero/model/config.hpp>

namespace kozero::model {
namespace {

constexpr std::int64_t kMostTokens = (std::int64_t{1} << 31) - 1;  // token ids are 32-bit
constexpr std::int64_t kMostChannels = std::int64_t{1} << 24;      // a product of two extents stays far below 2^63

void accept_range(const std::string& key, std::int64_t value, std::int64_t least, std::int64_t most) {
  accept(value >= least && value <= most, key, value,
         "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
}

void accept_extents(const Config& config) {
  accept_range("layers", config.layers, 1, 65536);
  accept_range("dim", config.dim, 1, kMostChannels);
  accept_range("heads", config.heads, 1, kMostChannels);
  accept_range("kv_heads", config.kv_heads, 0, kMostChannels);
  accept_range("head_dim", config.head_dim, 0, kMostChannels);
  accept_range("ffn", config.ffn, 0, kMostChannels);
  accept_range("vocab", config.vocab, 1, kMostTokens);
  accept_range("seq", config.seq, 1, kMostChannels);
}

void accept_numbers(const Config& config) {
  const auto text = [](float value) { return std::to_string(value); };
  accept(config.dropout >= 0.0F && config.dropout < 1.0F, "dropout", text(config.dropout),
         "a number from 0 up to, but not, 1");
  accept(config.rope_theta > 0.0F, "rope_theta", text(config.rope_theta), "a number above 0");
  accept(config.norm_eps > 0.0F, "norm_eps", text(config.norm_eps), "a number above 0");
  const RopeScaling& scaling = config.rope_scaling;
  accept(scaling.factor >= 1.0F, "rope_scaling.factor", text(scaling.factor), "a number of at least 1");
  accept(scaling.low_freq_factor > 0.0F, "rope_scaling.low_freq_factor", text(scaling.low_freq_factor),
         "a number above 0");
  accept(scaling.high_freq_factor > scaling.low_freq_factor, "rope_scaling.high_freq_factor",
         text(scaling.high_freq_factor), "a number above low_freq_factor = " + text(scaling.low_freq_factor));
  accept_range("rope_scaling.original_seq", scaling.original_seq, 1, kMostChannels);
}

}  // namespace

Config resolved(Config config) {
  const auto& known = architectures<float>();
  const auto same_name = [&](const Architecture<float>& architecture) { return architecture.name == config.arch; };
  const auto found = std::find_if(known.begin(), known.end(), same_name);
  if (found == known.end()) {
    std::vector<std::string> names;
    std::string accepted;
    for (const auto& architecture : known) {
      accepted += (names.empty() ? "" : ", ") + architecture.name;
      names.push_back(architecture.name);
    }
    const std::string nearest = nearest_name(config.arch, names.data(), names.data() + names.size());
    accept(false, "arch", "\"" + config.arch + "\"",
           accepted + (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?"));
  }
  accept_extents(config);
  accept_numbers(config);
  found->resolve(config);
  return config;
}

}  // namespace kozero::model
