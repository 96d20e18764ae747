// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// sampler.cpp: the positions of a step, the permutation of an epoch, and the sum over granules.
#include <kozero/data/sampler.hpp>
#include <string>

#include <kozero/core/error.hpp>
#include <kozero/core/random.hpp>

namespace kozero::data {

double sum_over_granules(const std::vector<double>& values, int ranks, std::int64_t granules) {
  const auto micro_steps = std::ssize(values) / ranks;
  double sum = 0.0;
  for (std::int64_t g = 0; g < granules; ++g) {
    sum += values.at(static_cast<std::size_t>(g % ranks * micro_steps + g / ranks));
  }
  return sum;
}

Sampler::Sampler(std::uint64_t seed, std::int64_t num_samples, std::int64_t global_batch, std::int64_t steps_before)
    : seed_(seed), num_samples_(num_samples), global_batch_(global_batch), steps_before_(steps_before) {
  if (num_samples < 1) {
    throw Error(Failure::deck,
                "the data hold no whole sample of model.seq + 1 tokens: give more text or a smaller seq");
  }
}

double Sampler::epochs_after(std::int64_t step) const {
  if (step <= steps_before_) return 0.0;
  const Share now = positions(step);
  return static_cast<double>(epoch(step)) +
         static_cast<double>(now.first + now.count) / static_cast<double>(num_samples_);
}

Share Sampler::positions(std::int64_t step) const {
  const std::int64_t first = (step - 1 - steps_before_) % steps_per_epoch() * global_batch_;
  return Share{first, std::min(global_batch_, num_samples_ - first)};
}

std::int64_t Sampler::sample(std::int64_t epoch, std::int64_t position) const {
  const std::uint64_t key = stream_key(seed_, "epoch." + std::to_string(epoch));
  return static_cast<std::int64_t>(
      permuted(key, static_cast<std::uint64_t>(position), static_cast<std::uint64_t>(num_samples_)));
}

}  // namespace kozero::data
