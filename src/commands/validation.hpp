// SPDX-FileCopyrightText: The KoZeRO authors
// SPDX-License-Identifier: Apache-2.0
// validation.hpp: the loss on a run's validation data: when it is measured, on which samples, and how it is printed.
//   after each train.eval_every-th step; with checkpoint.keep_best before each save of a run that goes on; at the end
//   on train.eval_batches global batches of samples, spread evenly over the set: the same ones every time
//   step 100: validation 5.9123 on 40,960 of 71,720 tokens
#pragma once
#include <functional>
#include <optional>
#include <string>

#include <kozero/train/assembly.hpp>
#include <kozero/train/data_set.hpp>
#include <kozero/train/evaluation.hpp>

namespace kozero::commands {

/// Throws Error(deck) where checkpoint.keep_best needs validation data and the data are too few to keep any.
void require_validation_data(const io::Deck& deck, const train::DataSet& data);

class Validation {
 public:
  /// All outlive it.
  Validation(const io::Deck& deck, const train::Settings& settings, train::Assembly& assembly, dist::Communicator& comm,
             const train::DataSet& data);

  /// There are validation data.
  [[nodiscard]] bool possible() const { return data_.validation != nullptr; }
  /// Whether the loss is measured after this step, whose state `is_saved` or not.
  [[nodiscard]] bool due(std::int64_t step, bool is_saved) const;
  /// Collective. None where `stops` said so before a batch.
  [[nodiscard]] std::optional<train::Evaluation> measure(const std::function<bool()>& stops) const;
  /// "on 40,960 of 71,720 tokens"
  [[nodiscard]] std::string coverage(const train::Evaluation& evaluation) const;

 private:
  const io::Deck& deck_;
  const train::Settings& settings_;
  train::Assembly& assembly_;
  dist::Communicator& comm_;
  const train::DataSet& data_;
};

}  // namespace kozero::commands
