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

Sampler::Sampler(std::uint64_t seed, std::int64_t num_samples, std::int64_t global_batch, const SamplingBegin& begin)
    : seed_(seed), num_samples_(num_samples), global_batch_(global_batch), begin_(begin) {
  if (num_samples < 1) {
    throw Error(Failure::deck,
                "the data hold no whole sample of model.seq + 1 tokens: give more text or a smaller seq");
  }
}

Sampler::Sampler(std::uint64_t seed, const std::vector<MixedSource>& sources, std::int64_t global_batch,
                 const SamplingBegin& begin)
    : seed_(seed), num_samples_(0), global_batch_(global_batch), begin_(begin) {
  std::vector<double> weights;
  for (const auto& source : sources) {
    if (source.num_samples < 1) throw Error(Failure::deck, "a source of a mixture has no whole sample");
    sources_.push_back({num_samples_, source.num_samples});
    weights.push_back(source.weight);
    num_samples_ += source.num_samples;
  }
  mixture_.emplace(weights);
}

double Sampler::epochs_after(std::int64_t step) const {
  if (step <= begin_.steps_before) return 0.0;
  if (mixture_) return static_cast<double>(taken_after(step)) / static_cast<double>(num_samples_);
  const Share now = positions(step);
  return static_cast<double>(epoch(step)) +
         static_cast<double>(now.first + now.count) / static_cast<double>(num_samples_);
}

Share Sampler::positions(std::int64_t step) const {
  if (mixture_) return Share{taken_after(step - 1), global_batch_};
  const std::int64_t first = (step - 1 - begin_.steps_before) % steps_per_epoch() * global_batch_;
  return Share{first, std::min(global_batch_, num_samples_ - first)};
}

std::int64_t Sampler::sample(std::int64_t epoch, std::int64_t position) const {
  const std::uint64_t key = stream_key(seed_, "epoch." + std::to_string(epoch));
  return static_cast<std::int64_t>(
      permuted(key, static_cast<std::uint64_t>(position), static_cast<std::uint64_t>(num_samples_)));
}

SampleName Sampler::name(std::int64_t step, std::int64_t position) const {
  if (!mixture_) return {begin_.streams + epoch(step), sample(epoch(step), position)};
  const auto [number, index] = mixture_->place(position);
  const Source& source = sources_[number];
  const std::int64_t epoch = index / source.num_samples;
  const std::uint64_t key = stream_key(seed_, "source." + std::to_string(number) + ".epoch." + std::to_string(epoch));
  const std::uint64_t sample = permuted(key, static_cast<std::uint64_t>(index % source.num_samples),
                                        static_cast<std::uint64_t>(source.num_samples));
  return {begin_.streams + epoch, source.first + static_cast<std::int64_t>(sample)};
}

double Sampler::passes_after(std::int64_t step, std::size_t source) const {
  return static_cast<double>(mixture_->count(source, taken_after(step))) /
         static_cast<double>(sources_[source].num_samples);
}

std::int64_t Sampler::last_step(std::size_t source, std::int64_t passes, std::int64_t steps) const {
  std::int64_t possible = begin_.steps_before;
  std::int64_t too_many = steps + 1;
  while (possible + 1 < too_many) {
    const std::int64_t step = possible + (too_many - possible) / 2;
    const bool fits = mixture_->count(source, taken_after(step)) <= passes * sources_[source].num_samples;
    (fits ? possible : too_many) = step;
  }
  return possible;
}

}  // namespace kozero::data
