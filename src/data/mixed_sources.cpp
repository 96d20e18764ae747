// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// mixed_sources.cpp: the samples of several sources as one set, and what a run says of a mixture.
#include <fmt/format.h>
#include <utility>

#include <kozero/core/error.hpp>
#include "io/deck/check.hpp"
#include "src/data/sources.hpp"

namespace kozero::data {
namespace {

/// The samples of several sources, numbered one source behind the other.
class SourcesInTurn final : public SampleSource {
 public:
  explicit SourcesInTurn(std::vector<std::shared_ptr<const SampleSource>> sources) : sources_(std::move(sources)) {}
  [[nodiscard]] std::int64_t num_samples() const override {
    std::int64_t all = 0;
    for (const auto& source : sources_) all += source->num_samples();
    return all;
  }
  void read(std::int64_t index, std::span<Token> window) const override {
    const auto [source, sample] = place(index);
    source->read(sample, window);
  }
  void change_targets(std::int64_t index, std::span<Token> targets) const override {
    const auto [source, sample] = place(index);
    source->change_targets(sample, targets);
  }
  [[nodiscard]] std::int64_t ignored_targets(std::int64_t index) const override {
    const auto [source, sample] = place(index);
    return source->ignored_targets(sample);
  }
  void find_documents(std::int64_t index, std::span<const Token> inputs,
                      std::vector<std::int32_t>& begins) const override {
    const auto [source, sample] = place(index);
    source->find_documents(sample, inputs, begins);
  }
  [[nodiscard]] Token document_start() const override { return sources_.front()->document_start(); }

 private:
  /// The sample's source, and its number there.
  [[nodiscard]] std::pair<const SampleSource*, std::int64_t> place(std::int64_t index) const {
    std::size_t i = 0;
    for (; index >= sources_[i]->num_samples(); ++i) index -= sources_[i]->num_samples();
    return {sources_[i].get(), index};
  }

  std::vector<std::shared_ptr<const SampleSource>> sources_;
};

}  // namespace

std::vector<std::int64_t> DataSet::slots() const {
  if (!is_mixture()) return {};
  std::vector<double> weights;
  for (const auto& source : sources) weights.push_back(source.weight);
  return mixture_slots(weights);
}

std::unique_ptr<SampleSource> sources_in_turn(const std::vector<SourceData>& sources) {
  std::vector<std::shared_ptr<const SampleSource>> all;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const SourceData& source = sources[i];
    if (source.train == nullptr || source.train->num_samples() == 0) {
      throw Error(Failure::deck, fmt::format("data.source[{}] (name {}) holds {} training tokens, not one sample of "
                                             "model.seq + 1; give it more text, or leave it out",
                                             i, source.name, source.tokens));
    }
    all.push_back(source.train);
  }
  return std::make_unique<SourcesInTurn>(std::move(all));
}

Sampler sampler_of(const DataSet& data, std::uint64_t seed, std::int64_t global_batch, const SamplingBegin& begin) {
  if (!data.is_mixture()) return {seed, data.train->num_samples(), global_batch, begin};
  std::vector<MixedSource> sources;
  for (const auto& source : data.sources) sources.push_back({source.train->num_samples(), source.weight});
  return {seed, sources, global_batch, begin};
}

void require_passes(const DataSet& data, const io::Deck& deck, const Sampler& sampler, std::int64_t steps) {
  if (!data.is_mixture()) return;
  for (std::size_t i = 0; i < data.sources.size(); ++i) {
    const SourceData& source = data.sources[i];
    if (source.epochs == 0) continue;
    const std::int64_t possible = sampler.last_step(i, source.epochs, steps);
    if (possible == steps) continue;
    io::refuse(
        io::origin_of(deck, "data.source"), fmt::format("data.source[{}].epochs = {}", i, source.epochs),
        fmt::format("source {} ends at step {} of {}, and the run would make {:.2f} passes over it; accepted: at "
                    "most {} steps, more epochs, or a smaller weight",
                    source.name, possible, steps, sampler.passes_after(steps, i), possible));
  }
}

std::string mixture_text(const DataSet& data, const Sampler& sampler, std::int64_t steps_before, std::int64_t steps) {
  if (!data.is_mixture()) return "";
  std::string text = fmt::format("; of each {} samples", kMixtureSlots);
  for (std::size_t i = 0; i < data.sources.size(); ++i) {
    const SourceData& source = data.sources[i];
    text += fmt::format("{} {}{} of {} ({} tokens, {:.2f} passes in {} steps)", i == 0 ? "" : ",",
                        sampler.mixture()->slots()[i], i == 0 ? " are" : "", source.name, source.tokens,
                        sampler.passes_after(steps, i), steps - steps_before);
  }
  return text;
}

io::DataIdentity identity_of(const DataSet& data, DataCheck& check, distributed::Communicator& comm) {
  io::DataIdentity identity = check.identity(comm);
  identity.answers = data.answers;
  const auto slots = data.slots();
  for (std::size_t i = 0; i < slots.size(); ++i) {
    identity.mixture += fmt::format("{}{}/{} from {} samples", i == 0 ? "" : ", ", slots[i], kMixtureSlots,
                                    data.sources[i].train->num_samples());
  }
  return identity;
}

}  // namespace kozero::data
